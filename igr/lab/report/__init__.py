"""Figures, findings and one page, made from stored runs."""
