"""Reproduce the paper: run matrices, protocols, tables, figures. Not part of the wheel."""
