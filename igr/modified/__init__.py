"""The modified equation: the field whose flow passes through the steps of an optimizer."""
