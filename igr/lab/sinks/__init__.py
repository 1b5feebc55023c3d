"""Sinks, which receive the events of a training: CSV files, TensorBoard, the live table, or a class of your own."""
