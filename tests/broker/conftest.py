"""A broker of its own for each test, on a free port, with nobody else about."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import structlog
from broker_cases import BrokerCase


@pytest.fixture(autouse=True)
def structlog_is_not_configured() -> Iterator[None]:
    """capture_logs configures structlog for good, and later tests look for lines in Python's logging."""
    yield
    structlog.reset_defaults()


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerCase]:
    """A broker that runs, and a client that speaks with it."""
    case = BrokerCase(tmp_path / "store")
    await case.start()
    yield case
    await case.stop()
