"""The explicit penalty E + mu |grad E|^2: its gradient, and the differences of gradients that make it cheap."""
