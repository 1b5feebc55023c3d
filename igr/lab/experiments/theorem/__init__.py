"""The theorem on networks: gradient descent beside the gradient flow and the modified flows of order 1 and 2."""
