"""Solvers: they sweep the blocks U, V, W of a network from the head to the input."""
