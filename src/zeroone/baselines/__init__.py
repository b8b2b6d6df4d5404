"""Baselines: networks trained by back-propagation and Adam, in the same loop, by the same scorer.

The only place where autograd is used.
"""
