"""A slave that speaks RocketMQ's frames over a real socket, for tests of the master."""

from __future__ import annotations

import asyncio
import socket
from typing import Self

from gantrymq.ha.frames import FrameReader, LogFrame, encode_report

TIMEOUT_S = 20


class TestSlave:
    """Copies a master's log into ``log``. ``local`` is the address that it connects from."""

    __test__ = False

    def __init__(self, address: str, local: str = "127.0.0.1") -> None:
        host, _, port = address.rpartition(":")
        self._address, self._local = (host, int(port)), local
        self._frames = FrameReader()
        self._read: list[LogFrame] = []
        self.log = bytearray()
        self.begin = -1  # the offset of the first frame
        self.sizes: list[int] = []

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(*self._address, local_addr=(self._local, 0))
        return self

    async def __aexit__(self, *of: object) -> None:
        self._writer.close()

    def report(self, offset: int) -> None:
        self._writer.write(encode_report(offset))

    def write(self, raw: bytes) -> None:
        self._writer.write(raw)

    async def frame(self) -> LogFrame:
        """The next frame; raises EOFError if the master closes the connection."""
        while not self._read:
            raw = await asyncio.wait_for(self._reader.read(1 << 16), TIMEOUT_S)
            if not raw:
                raise EOFError
            self._read += self._frames.feed(raw)
        frame = self._read.pop(0)
        if not frame.is_heartbeat:
            self.begin = frame.offset if self.begin < 0 else self.begin
            assert frame.offset == self.begin + len(self.log), "a frame begins where the one before it ended"
            self.log += frame.body
            self.sizes.append(len(frame.body))
        return frame

    async def copy_to(self, end: int, *, acks: bool = True) -> None:
        """Copy until the log ends at ``end``."""
        while self.begin + len(self.log) < end or self.begin < 0:
            frame = await self.frame()
            if acks and not frame.is_heartbeat:
                self.report(frame.end_offset)

    async def closed(self) -> None:
        """Wait until the master has closed the connection."""
        try:
            while True:
                await self.frame()
        except (EOFError, ConnectionError):
            return

    def reset(self) -> None:
        """Break the connection, as a killed process does."""
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self._writer.transport.abort()
