"""Reproduce the tables and figures of the paper, from records only."""
