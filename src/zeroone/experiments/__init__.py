"""Experiments: runs put together for people, as tables, figures and pages."""
