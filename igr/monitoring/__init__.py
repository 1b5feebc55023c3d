"""The regularizer and the regime in anyone's training loop: a transformation, its readings, and sinks."""
