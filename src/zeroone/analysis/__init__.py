"""The errors of a network on data, and the size and cost of a network."""
