"""Networks to ship: integers only, the same scores to the bit wherever they run."""

from zeroone.deploy.files import load, read_integers, write_integers
from zeroone.deploy.integer_form import IntegerNetwork
from zeroone.deploy.quantise import quantise
from zeroone.deploy.runtime import IntegerModel

__all__ = [
    "IntegerModel",
    "IntegerNetwork",
    "load",
    "quantise",
    "read_integers",
    "write_integers",
]
