"""The regime of the learning rate along the training of small networks."""
