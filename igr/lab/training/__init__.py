"""Stacks of networks, trained and measured together."""
