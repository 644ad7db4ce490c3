"""Requests that make no sense: each is answered, none is a fault of ours, and the next one is served."""

from __future__ import annotations

import random
from typing import Any

import pytest
import structlog
from broker_cases import BrokerCase

from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.header import CommandHeader

ROUNDS = 6
FIELDS = sorted(
    {
        name
        for header in CommandHeader.__subclasses__()
        for one in [header, *header.__subclasses__()]
        for name in one.__struct_encode_fields__
    }
    | set("abcdefghijklmn")
)
TEXTS = [
    "",
    "0",
    "-1",
    "1",
    "7",
    "T",
    "G",
    "%RETRY%G",
    "a b",
    "ü",
    "true",
    "9" * 30,
    "x" * 300,
    "\x01\x02",
    "{}",
    "null",
]
BODIES = [
    b"",
    b"{}",
    b"[]",
    b"null",
    b"\xff\xfe",
    b"{",
    b"0",
    b'{"a":{1:2}}',
    b"x" * 1000,
    b'{"topic":1}',
    b'{"mqSet":[{}]}',
]


def nonsense(rng: random.Random, code: int) -> RemotingCommand:
    fields: dict[str, Any] = {name: rng.choice(TEXTS) for name in rng.sample(FIELDS, rng.randrange(len(FIELDS)))}
    return RemotingCommand(code, ext_fields=fields, body=rng.choice(BODIES), remark=rng.choice([None, "x"]))


@pytest.mark.asyncio
async def test_malformed_requests_are_answered_with_errors(broker: BrokerCase, rng: random.Random) -> None:
    with structlog.testing.capture_logs() as logs:
        for _ in range(ROUNDS):
            for code in [*RequestCode, 0, -1, 32_767]:
                request = nonsense(rng, int(code))
                if code == RequestCode.END_TRANSACTION:  # with an unknown state it has no answer, as in RocketMQ
                    await broker.client.invoke_oneway(broker.server.address, request)
                else:
                    await broker.client.invoke(broker.server.address, request, 60_000)
    assert [line for line in logs if line["event"] == "a request failed"] == []
    assert (await broker.send("Fine")).code == ResponseCode.SUCCESS
