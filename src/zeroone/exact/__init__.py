"""The exact solver: Algorithm 3 of the paper."""
