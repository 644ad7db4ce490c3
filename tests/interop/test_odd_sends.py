"""Sends that no client of RocketMQ makes: ours answers them, and keeps them, as the real broker does."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest

from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.offset import GetMaxOffsetRequestHeader
from gantrymq.remoting.headers.send import SendMessageRequestHeaderV2
from gantrymq.remoting.transport.client import RemotingClient

from .java_cluster import JavaCluster
from .our_broker import OurBroker

TIMEOUT_MS = 10_000
PREPARED, COMMIT, ROLLBACK = 4, 8, 12
IN_NO_QUEUE = (0, "", "0", "0", 0)


def of_batch(*bodies: bytes) -> bytes:
    """The body of a batch, message by message."""
    heads = [struct.pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) for body in bodies]
    return b"".join(head + body + b"\0\0" for head, body in zip(heads, bodies, strict=True))


Fields = dict[str, Any]
SENDS: dict[str, Fields] = {
    **{f"sysFlag {flag}": {"sys_flag": flag} for flag in (0, 1, 3, 4, 5, 7, 8, 9, 12, 13, 64, 128, 192, 256, 1 << 20)},
    "sysFlag -1": {"sys_flag": -1},
    "sysFlag least": {"sys_flag": -(1 << 31)},
    **{
        f"sysFlag {flag} {name}": {"sys_flag": flag, **of}
        for flag in (PREPARED, COMMIT, ROLLBACK)
        for name, of in {
            "delayed": {"properties": "DELAY\x0118\x02"},
            "without the transaction": {"properties": "TRAN_MSG\x01false\x02"},
            "consumed before": {"reconsume_times": 1},
            "batch": {"batch": True, "body": of_batch(b"a", b"b"), "code": RequestCode.SEND_BATCH_MESSAGE},
        }.items()
    },
    "batch": {"batch": True, "body": of_batch(b"a", b"b"), "code": RequestCode.SEND_BATCH_MESSAGE},
    "batch without its mark": {"body": of_batch(b"a"), "code": RequestCode.SEND_BATCH_MESSAGE},
    "delayed batch": {"batch": True, "body": of_batch(b"a"), "properties": "DELAY\x013\x02"},
    **{f"queue {number}": {"queue_id": number} for number in (1, 4, 100, (1 << 31) - 1)},
    **{
        f"property {text}": {"properties": text.replace("=", "\x01") + "\x02"}
        for text in (
            *("INNER_NUM=2", "CLUSTER=x", "WAIT=false", "DELAY=0", "DELAY=-1", "TIMER_DELAY_SEC=3", "POP_CK=x"),
            *("REAL_TOPIC=Other", "INNER_MULTI_DISPATCH=%LMQ%a", "RETRY_TOPIC=x", "ORIGIN_MESSAGE_ID=x", "__CRC32#=1"),
        )
    },
    **{
        f"topic {name}": {"topic": name}
        for name in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "a b")
    },
    **{f"consumed {times} times": {"reconsume_times": times} for times in (-1, 1, 17)},
}


async def ask(client: RemotingClient, address: str, header: Any, body: bytes = b"", code: int | None = None) -> Any:
    return await client.invoke(address, RemotingCommand.request(header, body, code=code), TIMEOUT_MS)


async def end_of(client: RemotingClient, address: str, topic: str, queue_id: int) -> int:
    """How many messages a queue has."""
    answer = await ask(client, address, GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id))
    return int(answer.ext_fields["offset"])


async def answers(address: str) -> dict[str, tuple[int, str, str | None, str | None, int]]:
    """Each answer: code, how its remark begins, queue and offset; and how many messages the queue has then."""
    client, said, places = RemotingClient(), {}, {}
    for number, (name, fields) in enumerate([*SENDS.items(), ("last", {})]):
        fields = dict(fields)
        body, code = fields.pop("body", name.encode()), fields.pop("code", RequestCode.SEND_MESSAGE_V2)
        header: Fields = {
            "producer_group": "P", "topic": f"Odd{number}", "default_topic": "TBW102", "default_topic_queue_nums": 4,
            "queue_id": 0, "sys_flag": 0, "born_timestamp": 1_700_000_000_000, "flag": 0, "reconsume_times": 0,
            "unit_mode": False, "batch": False, **fields,
            "properties": f"UNIQ_KEY\x01U{number}\x02" + fields.get("properties", ""),
        }  # fmt: skip
        answer = await ask(client, address, SendMessageRequestHeaderV2(**header), body, code)
        remark = str(answer.remark or "").split("\n")[0][:40]
        said[name] = (answer.code, remark, answer.ext_fields.get("queueId"), answer.ext_fields.get("queueOffset"))
        places[name] = (header["topic"], header["queue_id"])
    while not await end_of(client, address, *places["last"]):  # so all in front of it is dispatched
        await asyncio.sleep(0.01)
    found = {name: (*of, await end_of(client, address, *places[name])) for name, of in said.items()}
    await client.close()
    return found


@pytest.mark.slow
def test_unusual_sends_are_answered_and_stored_like_real_broker(cluster: JavaCluster, tmp_path: Path) -> None:
    theirs = asyncio.run(answers(cluster.broker))
    with OurBroker(
        tmp_path / "store", {"brokerName": "broker-odd", "timerWheelEnable": False}, namesrv=cluster.namesrv
    ) as broker:
        ours = asyncio.run(answers(broker.address))
    assert ours == theirs
    # The real broker acknowledges what it puts into no queue, and so do we (with a warning in the log).
    for flag in (PREPARED, ROLLBACK):
        for name in (f"sysFlag {flag}", f"sysFlag {flag} delayed", f"sysFlag {flag} without the transaction"):
            assert ours[name] == IN_NO_QUEUE, name
        assert ours[f"sysFlag {flag} batch"][0] == ResponseCode.MESSAGE_ILLEGAL
    assert ours["sysFlag 8"] == (0, "", "0", "0", 1)
