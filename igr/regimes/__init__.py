"""Is this learning rate inside the theory? Curvature, term sizes, stability limits and a verdict."""
