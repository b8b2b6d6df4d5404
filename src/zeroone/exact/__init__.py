"""The exact solver: it sweeps the blocks U, V, W of a network from the head to the input."""
