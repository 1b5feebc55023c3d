"""ResNet-18: figures 3c, A.7 and A.8."""
