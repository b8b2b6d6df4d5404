import signal

import pytest
import torch
from hypothesis import settings

# A shell that starts the tests in the background makes them, and all they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples on every machine and in every run.
settings.register_profile("zeroone", derandomize=True, deadline=None, max_examples=200)
settings.load_profile("zeroone")


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)  # the matrices are small: a second thread only gets in the way


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(20)
