"""A name server of its own for each test, on a free port, with a clock that stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from namesrv_cases import NamesrvCase

from gantrymq.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest_asyncio.fixture
async def namesrv(tmp_path: Path, clock: ManualClock) -> AsyncIterator[NamesrvCase]:
    """A name server that runs, and a client that speaks with it."""
    case = NamesrvCase(tmp_path / "namesrv", clock=clock)
    await case.start()
    yield case
    await case.stop()
