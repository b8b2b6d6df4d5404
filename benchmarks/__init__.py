"""Benchmarks: cost, accuracy, time to error, speed of predictions, faults. Not in the wheel."""
