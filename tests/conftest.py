import pytest
import torch
from hypothesis import settings

# The same examples on every machine and in every run.
settings.register_profile("zeroone", derandomize=True, deadline=None, max_examples=200)
settings.load_profile("zeroone")


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)  # the matrices are small: a second thread only gets in the way


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(20)
