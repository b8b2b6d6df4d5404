"""Let ``python -m zeroone`` do what the command ``zeroone`` does."""

from zeroone.cli import main

main()
