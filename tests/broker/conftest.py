"""A broker of its own for each test, on a free port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest_asyncio
from broker_cases import BrokerCase, StartBroker, StartNamesrv

from gantrymq.namesrv.server import NamesrvServer
from gantrymq.namesrv.settings import NamesrvConfig


@pytest_asyncio.fixture
async def start_namesrv(tmp_path: Path) -> AsyncIterator[StartNamesrv]:
    """Starts name servers. All are stopped when the test ends or fails; ask for it in front of ``start_broker``."""
    async with AsyncExitStack() as running:

        async def start(**more: Any) -> NamesrvServer:
            settings = {name: more.pop(name) for name in list(more) if hasattr(NamesrvConfig, name)}
            namesrv = NamesrvServer(NamesrvConfig(listen_port=0, **settings), home=tmp_path / "namesrv", **more)
            running.push_async_callback(namesrv.shutdown)
            await namesrv.start()
            return namesrv

        yield start


@pytest_asyncio.fixture
async def start_broker(tmp_path: Path) -> AsyncIterator[StartBroker]:
    """Starts brokers with settings, in ``store`` unless told where. All are stopped when the test ends or fails."""
    async with AsyncExitStack() as running:

        async def start(path: Path = tmp_path / "store", **settings: Any) -> BrokerCase:
            return await running.enter_async_context(BrokerCase(path, **settings))

        yield start


@pytest_asyncio.fixture
async def broker(start_broker: StartBroker) -> BrokerCase:
    """A broker that runs, and a client that speaks with it."""
    return await start_broker()
