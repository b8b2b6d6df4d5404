"""What tests of kernels share."""

import pytest

from zeroone.deploy.build import LEVELS, kernels


@pytest.fixture(params=range(len(LEVELS)), ids=LEVELS)
def level(request):
    """One kind of kernels after the other, whatever the processor would choose."""
    if request.param > kernels().level:
        pytest.skip(f"the processor has no {LEVELS[request.param]}")
    return request.param
