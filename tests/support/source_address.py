"""A relay on loopback that connects from another address, so that a server sees a client that is not 127.0.0.1."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from gantrymq.client.runtime.loop_thread import LoopThread

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextmanager
def relay_from(source: str, address: str) -> Iterator[str]:
    """The address of a relay to ``address``, whose connections come from ``source``, such as 127.0.0.2."""
    loop, port = LoopThread("relay"), int(address.rpartition(":")[2])
    pumps: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
        for ends in ((reader, there[1]), (there[0], writer)):
            pumps.add(asyncio.ensure_future(_pump(*ends)))

    server = loop.run(asyncio.start_server(accept, "127.0.0.1", 0))
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:

        async def close() -> None:
            server.close()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

        loop.close(close())


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(1 << 16):
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
