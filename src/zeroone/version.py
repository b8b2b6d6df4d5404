"""The package's version, in the one place that the build and the records read."""

__version__ = "0.2.0"
