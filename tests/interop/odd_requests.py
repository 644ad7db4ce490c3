"""Requests about timers, delays, transactions, recalls and send-backs that no client makes, and what comes of them.

:func:`play` makes the same requests at any broker. :func:`facts_of` reads what its store has afterwards.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import re
import struct
import subprocess
import sys
import time
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import Any

from gantrymq.format.recall_handle import decode_recall_handle, encode_recall_handle
from gantrymq.model.message import parse_message_id
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.client import RemotingClient

from .java import Setting, as_by_old_release

TIMEOUT_MS = 20_000
MAX_DELAY_S = 259_200
COMMIT, ROLLBACK = 8, 12
SETTINGS: dict[str, Setting] = {
    "brokerName": "broker-a",
    "timerWheelEnable": True,
    "recallMessageEnable": True,
    "enablePropertyFilter": True,
    "messageDelayLevel": " ".join(["1s"] * 18),
    "transactionTimeOut": 600_000,
}
TOPICS = ("Timed", "Tran", "Recalled", "Back", "Filtered")
GROUPS = {"G": 1, "NoRetries": 0}
NUMBERS = ("0", "-1", "1", "+2", " 2", "02", "2.5", "x", "", "0x2", "1e1", "２", str(1 << 63), "-" + str(1 << 63))
OTHERS = (
    *("WAIT=false", "WAIT=x", "TIMER_OUT_MS=1", "TIMER_DEL_UNIQKEY=x", "TIMER_ROLL_TIMES=3", "TIMER_DEQUEUE_MS=z"),
    *(
        "REAL_TOPIC=Other",
        "REAL_TOPIC=Other;REAL_QID=x",
        "TAGS=a;KEYS=k1 k2",
        "__SHARDINGKEY=s",
        "POP_CK=x",
        "INNER_NUM=2",
    ),
    *("_SYS_MSG_PRIORITY_=2", "TRAN_MSG=false", "CLUSTER=x", "PGROUP=Q", "__transactionId__=T", "TAGS=a;TAGS=b", "a="),
    *("RETRY_TOPIC=R", "ORIGIN_MESSAGE_ID= ", "CHECK_IMMUNITY_TIME_IN_SECONDS=5", "TTL=5", "none"),
)
FILTERS = (
    *(
        "a = 1",
        "a = 1.0",
        "a > 0",
        "a IS NULL",
        "NOT a = 1",
        "b IN ('x','y')",
        "a BETWEEN 0 AND 2",
        "TRUE",
        "a",
        "NULL",
    ),
    *(
        "b CONTAINS 'x'",
        "b ENDSWITH ''",
        "c = TRUE",
        "NOT c",
        "a = 0x1",
        "a = 1L",
        "b = 'it''s'",
        "a = /* c */ 1",
        "A = 1",
    ),
    *("a LIKE 'x'", "a = b", "a <> b", "UNIQ_KEY IS NOT NULL", "a.b = 1", "a = ", "'x' = 'x'"),
)
Answer = tuple[Any, ...]


def encoded(text: str) -> str:
    """Properties written as ``name=value;name=value``, as a header has them."""
    return "".join(one.replace("=", "\x01", 1) + "\x02" for one in text.split(";")) if text else ""


def batch_of(*properties: str) -> bytes:
    """The body of a batch with one message for each text of properties."""
    found = b""
    for text in map(encoded, properties):
        found += struct.pack(">iiiii", 23 + len(text), 0, 0, 0, 1) + b"m" + struct.pack(">h", len(text)) + text.encode()
    return found


class Played:
    """The answers of the broker at ``address`` to named requests."""

    def __init__(self, address: str) -> None:
        self._address, self._client = address, RemotingClient()
        self.answers: dict[str, Answer] = {}

    async def close(self) -> None:
        await self._client.close()

    async def ask(self, code: int, fields: dict[str, Any], body: bytes = b"") -> RemotingCommand:
        texts = {name: str(value) for name, value in fields.items() if value is not None}
        return await self._client.invoke(self._address, RemotingCommand(code, ext_fields=texts, body=body), TIMEOUT_MS)

    async def case(self, name: str, code: int, fields: dict[str, Any], body: bytes = b"") -> RemotingCommand:
        assert name not in self.answers, name
        answer = await self.ask(code, fields, body)
        self.answers[name] = normal(answer)
        return answer

    async def send(self, name: str, properties: str = "", *, body: bytes = b"m", **fields: Any) -> RemotingCommand:
        """Send a message whose UNIQ_KEY is ``name``."""
        header = {
            "producer_group": "P", "topic": "Timed", "default_topic": "TBW102", "default_topic_queue_nums": 4,
            "queue_id": 0, "sys_flag": 0, "born_timestamp": now_ms(), "flag": 0, "reconsume_times": 0,
            "unit_mode": "false", "max_reconsume_times": None, "batch": "false", **fields,
        }  # fmt: skip
        short = dict(zip("abcdefghjklm", header.values(), strict=True))
        text = f"UNIQ_KEY\x01{name}\x02" + encoded(properties)
        code = RequestCode.SEND_MESSAGE_V2 if header["batch"] == "false" else RequestCode.SEND_BATCH_MESSAGE
        return await self.case(name, code, short | {"i": text}, body)

    async def max_offset(self, topic: str, queue_id: int) -> int:
        answer = await self.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": queue_id})
        return int(answer.ext_fields.get("offset", 0))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def normal(answer: RemotingCommand) -> Answer:
    """An answer without what differs between two runs, and without the text of an exception."""
    fields: dict[str, str] = {
        name: answer.ext_fields[name] for name in ("queueId", "transactionId") if name in answer.ext_fields
    }
    if "msgId" in answer.ext_fields:
        fields["ids"] = str(len(answer.ext_fields["msgId"].split(",")))
    if "recallHandle" in answer.ext_fields:
        fields["handle"] = str(decode_recall_handle(answer.ext_fields["recallHandle"])._replace(timestamp=""))
    remark = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", as_by_old_release(answer.remark or ""))
    if re.match(r"java\.|RemotingCommandError|not set any response code", remark):
        remark = ""
    return answer.code, remark, fields if answer.code == ResponseCode.SUCCESS else {}


async def timers(at: Played) -> None:
    for name in ("DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"):
        for value in NUMBERS:
            await at.send(f"{name} {value!r}", f"{name}={value}")
    for value in ("18", "19", "100", "2147483647", "-2147483648"):
        await at.send(f"level {value}", f"DELAY={value}")
    for delay_s in (MAX_DELAY_S + 1, 1 << 53):
        await at.send(f"after {delay_s}", f"TIMER_DELAY_SEC={delay_s}")
    some = ("DELAY=0", "DELAY=1", "TIMER_DELAY_SEC=1", "TIMER_DELAY_SEC=x", "TIMER_DELAY_MS=1500", "TIMER_DELIVER_MS=1")
    for pair in combinations(some, 2):
        await at.send(f"both {pair}", ";".join(pair))
    for other in OTHERS:
        for first in ("TIMER_DELAY_MS=1500", "TIMER_DELIVER_MS=1", "DELAY=1"):
            await at.send(f"{first} and {other}", f"{first};{other}")
    for sys_flag in (1, 2, 4, 8, 12, 64, 128, 256):
        for first in ("TIMER_DELAY_MS=1500", "TIMER_DELIVER_MS=x", "DELAY=1"):
            await at.send(f"sysFlag {sys_flag} {first}", first, sys_flag=sys_flag)
    for topic in ("%RETRY%G", "%RETRY%NoGroup", "%DLQ%G", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "New"):
        for first in ("TIMER_DELAY_MS=1500", "DELAY=1", "DELAY=x", "TRAN_MSG=true;PGROUP=P", ""):
            for times in (0, 1, 17):
                await at.send(f"to {topic} {first} {times}", first, topic=topic, reconsume_times=times)
    await at.send("no retries", "DELAY=1", topic="%RETRY%G", reconsume_times=1, max_reconsume_times=0)
    for queue_id in (3, 4):
        await at.send(f"queue {queue_id}", "TIMER_DELAY_MS=1500", queue_id=queue_id)
    for length in (32_450, 32_550, 32_700):
        for first in ("TIMER_DELAY_MS=1500", "DELAY=1"):
            await at.send(f"{length} bytes {first}", f"{first};x={'y' * length}")
    for first in ("DELAY=1", "DELAY=0", "TIMER_DELAY_SEC=1", "TRAN_MSG=true"):
        if "TIMER" not in first:  # the real broker delivers no timer message after such a batch
            await at.send(f"batch {first}", first, batch="true", body=batch_of("UNIQ_KEY=in batch", ""))
        await at.send(f"in batch {first}", batch="true", body=batch_of(f"UNIQ_KEY=of batch {first};{first}", ""))


HALVES: dict[str, dict[str, Any]] = {
    **{name: {"with": text} for name, text in (
        ("plain", ""), ("two tags", "TAGS=a;TAGS=b"), ("real", "REAL_TOPIC=Other;REAL_QID=9"),
        ("tags", "TAGS=t;KEYS=k"),
        ("priority", "_SYS_MSG_PRIORITY_=2"), ("checks", "TRANSACTION_CHECK_TIMES=14"), ("id", "__transactionId__=x"),
        ("first offset", "TRAN_PREPARED_QUEUE_OFFSET=0"), ("wait", "WAIT=false"), ("level 0", "DELAY=0"),
        ("level x", "DELAY=x"), ("level", "DELAY=1"), ("timed", "TIMER_DELAY_MS=1500"), ("another group", "PGROUP=Q"),
        ("inner", "INNER_NUM=2"), ("not one", "TRAN_MSG=false"), ("pop", "POP_CK=x"), ("long", f"x={'y' * 32_600}"),
        *((f"immune {value}", f"CHECK_IMMUNITY_TIME_IN_SECONDS={value}") for value in ("0", "x", "-5", "100", " 1")),
    )},
    **{f"sysFlag {value}": {"sys_flag": value} for value in (0, 5, 8, 12, 260)},
    "consumed": {"reconsume_times": 3}, "flag": {"flag": 77}, "queue": {"queue_id": 1}, "unborn": {"born_timestamp": 0},
    "consumed and delayed": {"reconsume_times": 1, "with": "DELAY=1"}, "new topic": {"topic": "TranNew"},
    "retry": {"topic": "%RETRY%G"}, "old": {"born_timestamp": 1, "with": "CHECK_IMMUNITY_TIME_IN_SECONDS=1"},
}  # fmt: skip
ENDS: dict[str, dict[str, Any]] = {
    "another group": {"producerGroup": "Q"}, "no name": {"producerGroup": ""},
    "another entry": {"tranStateTableOffset": 7},
    "no entry": {"tranStateTableOffset": -1}, "far": {"commitLogOffset": 10**15}, "before": {"commitLogOffset": -1},
    "first": {"commitLogOffset": 0}, "text": {"commitLogOffset": "x"}, "no offset": {"commitLogOffset": None},
    "another topic": {"topic": "X"}, "no id": {"msgId": None, "transactionId": None}, "wrong id": {"msgId": "x"},
    "from a check": {"fromTransactionCheck": "true"}, "from x": {"fromTransactionCheck": "x"},
}  # fmt: skip


async def transactions(at: Played) -> None:
    async def end(name: str, half: RemotingCommand, how: int, **changed: Any) -> None:
        fields = {
            "topic": "Tran", "producerGroup": "P", "tranStateTableOffset": half.ext_fields["queueOffset"],
            "commitLogOffset": offset_of(half), "commitOrRollback": how, "fromTransactionCheck": "false", "msgId": "x",
            "transactionId": "x", **changed,
        }  # fmt: skip
        await at.case(f"{name}: {how}", RequestCode.END_TRANSACTION, fields)

    for how in (COMMIT, ROLLBACK):
        for name, fields in HALVES.items():
            fields = {"topic": "Tran", "sys_flag": 4, **fields}
            text = f"TRAN_MSG=true;PGROUP=P;{fields.pop('with', '')}".rstrip(";")
            half = await at.send(f"half {name} {how}", text, **fields)
            if half.code == ResponseCode.SUCCESS:
                await end(f"end half {name}", half, how)
        for name, changed in ENDS.items():
            half = await at.send(f"half to end {name} {how}", "TRAN_MSG=true;PGROUP=P", topic="Tran", sys_flag=4)
            await end(f"end {name}", half, how, **changed)
        for then in (COMMIT, ROLLBACK):
            half = await at.send(f"half {how} then {then}", "TRAN_MSG=true;PGROUP=P", topic="Tran", sys_flag=4)
            await end(f"end {how} then {then}", half, how)
            await end(f"end {how} and {then}", half, then)
    for name, fields in {"nonsense": {"msgId": "x"}, "nothing": {}, "empty": {"msgId": ""}}.items():
        await at.case(f"resume {name}", RequestCode.RESUME_CHECK_HALF_MESSAGE, fields)
    half = await at.send("half to resume", "TRAN_MSG=true;PGROUP=P", topic="Tran", sys_flag=4)
    await at.case("resume", RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": half.ext_fields["msgId"], "topic": "T"})


def offset_of(sent: RemotingCommand) -> int:
    """The physical offset that the answer to a send names."""
    return parse_message_id(sent.ext_fields["msgId"])[1]


async def recalls(at: Played) -> None:
    sent = await at.send("to recall", "TIMER_DELAY_SEC=4", topic="Recalled")
    text = sent.ext_fields["recallHandle"]
    handle = decode_recall_handle(text)
    changed = {
        "another topic": {"topic": "Timed"}, "another broker": {"broker_name": "x"}, "past": {"timestamp": "1"},
        "never": {"timestamp": "x"}, "far": {"timestamp": str(now_ms() + 10**12)}, "huge": {"timestamp": "9" * 30},
        "negative": {"timestamp": "-5"}, "plus": {"timestamp": f"+{handle.timestamp}"},
        "another key": {"unique_key": "x"},
        "no key": {"unique_key": ""}, "more": {"unique_key": f"{handle.unique_key} more"},
    }  # fmt: skip
    handles = {name: encode_recall_handle(handle._replace(**fields)) for name, fields in changed.items()}
    handles |= {"good": text, "again": text, "empty": "", "no text": "%%%", "short": "a", "blank": f" {text}"}
    handles |= {
        "standard": base64.b64encode(b"v1 Recalled broker-a 1 ?>?>").decode(),
        "two lines": f"{text[:9]}\n{text[9:]}",
    }
    for name, value in handles.items():
        fields = {"producerGroup": "P", "topic": "Recalled", "recallHandle": value}
        await at.case(f"recall {name}", RequestCode.RECALL_MESSAGE, fields)
    for name, topic in {"of another topic": "Timed", "of no topic": "Nowhere"}.items():
        await at.case(f"recall {name}", RequestCode.RECALL_MESSAGE, {"topic": topic, "recallHandle": text})
    await at.send("recall by hand", "TIMER_DELAY_MS=1500;TIMER_DEL_UNIQKEY=x", topic="Recalled")


async def send_backs(at: Played) -> None:
    async def back(name: str, offset: Any, level: Any, **changed: Any) -> None:
        fields = {"offset": offset, "group": "G", "delayLevel": level, "originTopic": "Back", **changed}
        await at.case(f"back {name} {level}", RequestCode.CONSUMER_SEND_MSG_BACK, fields)

    for text in (
        "",
        "TIMER_DELIVER_MS=1",
        "DELAY=0",
        "RETRY_TOPIC=X",
        "ORIGIN_MESSAGE_ID= ",
        "TIMER_OUT_MS=5",
        "WAIT=true",
    ):
        sent = await at.send(f"to send back {text}", text, topic="Back")
        for level in (-1, 0, 1, 18, 19, 100, 2147483647):
            await back(f"of {text}", offset_of(sent), level)
        for most in (0, -1, 1):
            await back(f"of {text} at most {most}", offset_of(sent), 1, maxReconsumeTimes=most)
    for times in (3, 15, 16, 17):
        sent = await at.send(f"to send back, consumed {times} times", topic="Back", reconsume_times=times)
        await back(f"consumed {times} times", offset_of(sent), 0)
    odd: dict[str, dict[str, Any]] = {
        "no group": {"group": "Unknown"},
        "no retries": {"group": "NoRetries"},
        "bad": {"group": "a/b"},
    }
    odd |= {"far": {"offset": 10**12}, "before": {"offset": -1}, "text": {"offset": "x"}, "unit": {"unitMode": "true"}}
    for name, changed in odd.items():
        await back(name, changed.pop("offset", offset_of(sent)), 1, **changed)


async def filters(at: Played) -> None:
    rows = (
        ("1", "x", "true"),
        ("1.0", "y", "TRUE"),
        ("x", "", "false"),
        ("-1", "it's", "1"),
        ("9" * 19, "xx", ""),
        (" 1", "é", "t"),
    )
    for number, (a, b, c) in enumerate(rows):
        await at.send(f"row {number}", f"a={a};b={b};c={c}", topic="Filtered")
    while await at.max_offset("Filtered", 0) < len(rows):
        await asyncio.sleep(0.02)
    for number, text in enumerate(FILTERS):
        answer = await at.case(f"filter {text}", RequestCode.PULL_MESSAGE, {
            "consumerGroup": f"F{number}", "topic": "Filtered", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32,
            "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": text, "subVersion": 1,
            "expressionType": "SQL92",
        })  # fmt: skip
        found = sorted(re.findall(rb"UNIQ_KEY\x01(row \d)\x02", answer.body))
        at.answers[f"filter {text}"] += (found,)


async def play(address: str) -> Played:
    """Make all requests, and wait until what is due at once is delivered."""
    at = Played(address)
    for topic in TOPICS:
        fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
        assert (await at.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)).code == ResponseCode.SUCCESS
    for group, queues in GROUPS.items():
        body = json.dumps({"groupName": group, "retryQueueNums": queues, "retryMaxTimes": 16}).encode()
        assert (await at.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)).code == ResponseCode.SUCCESS
    for part in (timers, transactions, recalls, send_backs, filters):
        await part(at)
    await at.send("last delay", "DELAY=18", queue_id=2)
    await at.send("last timer", "TIMER_DELAY_SEC=5", queue_id=2)
    while await at.max_offset("Timed", 2) < 2:
        await asyncio.sleep(0.1)
    await at.close()
    return at


def facts_of(store: Path) -> dict[str, list[str]]:
    """The records of each UNIQ_KEY in a store, in any order, without what differs between two runs."""
    words = [
        sys.executable,
        "-m",
        "gantrymq",
        "store",
        "log",
        str(store),
        "--json",
        "--set",
        "mappedFileSizeCommitLog=67108864",
    ]
    lines = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout.splitlines()
    found = defaultdict[str, list[str]](list)
    for record in map(json.loads, lines):
        if (key := record.get("properties", {}).get("UNIQ_KEY")) is not None:
            found[key].append(fact(record))
    return {key: sorted(records) for key, records in found.items()}


def fact(record: dict[str, Any]) -> str:
    """One record as a text."""
    properties = dict(record["properties"])
    if {"TIMER_ENQUEUE_MS", "TIMER_OUT_MS"} <= properties.keys() and record["topic"] != "rmq_sys_wheel_timer":
        due_ms = int(properties["TIMER_OUT_MS"]) + 1_000  # when the slot ends
        assert record["storeTimestamp"] >= due_ms, f"an early message: {record}"
    for name, value in properties.items():
        if re.fullmatch(r"\+?\d{13,19}", value) and name.startswith(("TIMER_", "BORN_")):
            properties[name] = "a time"
        if name == "ORIGIN_MESSAGE_ID" and is_message_id(value):
            properties[name] = "an id"
    fields = [record[name] for name in ("topic", "queueId", "sysFlag", "flag", "reconsumeTimes", "bodyLength")]
    return str([*fields, record["preparedTransactionOffset"] > 0, sorted(properties.items())])


def is_message_id(text: str) -> bool:
    try:
        parse_message_id(text)
    except (ValueError, binascii.Error):
        return False
    return True
