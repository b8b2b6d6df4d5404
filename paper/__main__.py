"""Run ``zeroone reproduce`` as ``python -m paper``."""

import sys

from zeroone.cli import main

sys.argv.insert(1, "reproduce")
main()
