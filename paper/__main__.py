"""Let ``python -m paper`` do what ``zeroone reproduce`` does."""

import sys

from zeroone.cli import main

sys.argv.insert(1, "reproduce")
main()
