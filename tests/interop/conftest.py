"""What all tests against the real RocketMQ share."""

import pytest

from .java import build_jar, java_available, java_required


@pytest.fixture(scope="session", autouse=True)
def java() -> None:
    """The real RocketMQ, built; without Maven or a JDK the tests of this folder skip, or fail where it is required."""
    reason = java_available()
    if reason:
        (pytest.fail if java_required() else pytest.skip)(f"interop: {reason}")
    build_jar()
