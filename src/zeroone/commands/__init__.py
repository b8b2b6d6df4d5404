"""What each command of ``zeroone`` does, one module per command.

The signature and the docstring of a command's function are its options and its help: see
``zeroone.cli.options``.
"""
