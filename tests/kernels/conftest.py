"""Kernels are tried with seeds that stay the same, for what was found once, and with the run's."""

import pytest
from kernel_cases import OF_THE_RUN


@pytest.fixture
def seed(request: pytest.FixtureRequest, seed: int) -> int:
    """The one that ``kernel_cases.seeds`` gives, or the run's."""
    given: int = getattr(request, "param", OF_THE_RUN)
    return seed if given == OF_THE_RUN else given
