"""Data sets by name, users' own files, and shards. Importing the package registers the sets."""

# Users see the data sets in this order.
from zeroone.data import embedded, mnist, cifar  # noqa: F401, I001
