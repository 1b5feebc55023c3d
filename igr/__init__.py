"""Implicit gradient regularization."""
