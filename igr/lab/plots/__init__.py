"""The style of all figures, and the drawing functions that they share."""
