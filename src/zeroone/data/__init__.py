"""Data: arrays checked and encoded, the embedded data sets, a user's own files."""
