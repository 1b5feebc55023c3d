"""Models as plain functions of arrays."""
