"""A broker of its own for each test, on a free port, with nobody else about."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from broker_cases import BrokerCase


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerCase]:
    """A broker that runs, and a client that speaks with it."""
    case = BrokerCase(tmp_path / "store")
    await case.start()
    yield case
    await case.stop()
