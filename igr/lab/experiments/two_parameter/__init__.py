"""The two-parameter model: figures 1, A.1 and A.2."""
