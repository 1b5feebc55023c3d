"""MLPs: figures 2, 3a, 3b and A.3 to A.6."""
