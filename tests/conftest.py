import pytest
import torch
from hypothesis import settings

# The same examples on every machine and in every run.
settings.register_profile("zeroone", derandomize=True, deadline=None, max_examples=200)
settings.load_profile("zeroone")


@pytest.fixture(autouse=True)
def _two_threads():
    torch.set_num_threads(2)


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(20)
