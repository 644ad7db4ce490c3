"""Replies on their way to the client that asked: how many of them, and how much, may be under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from broker_cases import BrokerCase

from gantrymq.broker.appends import put_queue as waiting_room
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import RequestDispatcher

pytestmark = pytest.mark.asyncio


class SlowAsker(BrokerCase):
    """A broker, and a client that takes replies and answers none before ``answers`` is set."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, send_thread_pool_queue_capacity=3, broker_fast_failure_enable=False)
        self.taken, self.answers = 0, asyncio.Event()
        self.client = self.another_client(
            RequestDispatcher({RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._take_reply})
        )

    async def _take_reply(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        self.taken += 1
        await self.answers.wait()
        return request.response(ResponseCode.SUCCESS)

    async def reply(self, body: bytes = b"reply") -> int:
        properties = {"REPLY_TO_CLIENT": "c1"}
        return (await self.send(body=body, code=RequestCode.SEND_REPLY_MESSAGE_V2, properties=properties)).code

    async def under_way(self, count: int, body: bytes = b"reply") -> list[asyncio.Task[int]]:
        """Replies that the client has, and waits with."""
        replies = [asyncio.create_task(self.reply(body)) for _ in range(count)]
        while self.taken < count:
            await asyncio.sleep(0.001)
        return replies


@pytest_asyncio.fixture
async def asker(tmp_path: Path) -> AsyncIterator[SlowAsker]:
    """It has sent its heart-beat, so that a reply finds it."""
    async with SlowAsker(tmp_path / "store") as case:
        await case.heart_beat()
        yield case
        case.answers.set()


async def test_replies_above_waiting_limit_are_refused_at_once(asker: SlowAsker) -> None:
    replies = await asker.under_way(3)
    assert await asker.reply() == ResponseCode.SYSTEM_BUSY
    assert (await asker.send()).code == ResponseCode.SUCCESS  # a client that hangs is no reason to take no messages
    asker.answers.set()
    assert await asyncio.gather(*replies) == [ResponseCode.SUCCESS] * 3
    assert await asker.reply() == ResponseCode.SUCCESS


async def test_replies_above_waiting_bytes_limit_are_refused_at_once(
    asker: SlowAsker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_room, "MAX_WAITING_BYTES", 100)
    replies = await asker.under_way(1, bytes(60))
    assert await asker.reply(bytes(41)) == ResponseCode.SYSTEM_BUSY
    replies += await asker.under_way(2, bytes(20))
    asker.answers.set()
    assert await asyncio.gather(*replies) == [ResponseCode.SUCCESS] * 3
    assert await asker.reply(bytes(100)) == ResponseCode.SUCCESS
