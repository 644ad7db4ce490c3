"""Half messages and decisions of one read that are taken together have the same effect as one by one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from broker_cases import BrokerCase
from send_frames import ONEWAY, frame, header_of, send_frame
from test_send_run import Wire, no_disk, no_store

from gantrymq.broker import names
from gantrymq.broker.appends.put_group import PutGroup
from gantrymq.broker.processors.end_transaction import EndTransactionProcessor
from gantrymq.broker.processors.transaction_lane import HalfSends
from gantrymq.broker.server import BrokerServer
from gantrymq.broker.transactions import transaction_runs
from gantrymq.broker.transactions.transaction_runs import EndRun, FindTransactionRun, TransactionRun
from gantrymq.clock import ManualClock
from gantrymq.config.settings import FlushDiskType, MessageStoreConfig
from gantrymq.format.op_message import decided_offsets
from gantrymq.model.flags import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK
from gantrymq.model.host import Host
from gantrymq.model.message import StoredMessage
from gantrymq.model.status import PutMessageStatus
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import CommandRun, RemotingCommand
from gantrymq.remoting.connection import Connection, split_run
from gantrymq.remoting.headers.send import SendMessageResponseHeader
from gantrymq.remoting.transport import channel as channel_module
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import RequestDispatcher
from gantrymq.remoting.transport.tls import TlsServer
from gantrymq.store.put_result import PutMessageResult
from interop.fixed_ports import fixed_port

NOW_MS = 1_800_000_000_000


@pytest.fixture(autouse=True)
def whole_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """All requests of a read are taken in one turn, however slow the machine is."""
    monkeypatch.setattr(channel_module, "SLICE_S", 60.0)


def half_frame(number: int, body: bytes = b"body", *, marks: str = "", flag: int = 0, **more: str) -> bytes:
    """A prepared message as the Java client sends it."""
    properties = f"TRAN_MSG\x01true\x02UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02PGROUP\x01P\x02TAGS\x01t{marks}"
    return send_frame(number, body, flag=flag, **{"f": "4", "g": str(NOW_MS - 5), "i": properties, **more})


def end_frame(number: int, at: tuple[int, int], state: int, *, flag: int = ONEWAY, **more: str) -> bytes:
    """A decision as the Java client sends it, about the half message at a queue offset and a physical offset."""
    fields = {
        **{"topic": "T", "producerGroup": "P", "tranStateTableOffset": str(at[0]), "commitLogOffset": str(at[1])},
        **{"commitOrRollback": str(state), "fromTransactionCheck": "false", "msgId": "U", "transactionId": "U"},
    }
    head = header_of(fields | {"bname": "broker-a"} | more, number, code=int(RequestCode.END_TRANSACTION), flag=flag)
    return frame(head, b"")


SIX = b"".join(half_frame(0) + end_frame(1, (0, 5), TRANSACTION_COMMIT) for _ in range(3))


def find(data: bytes, begin: int = 0) -> TransactionRun | None:
    return FindTransactionRun()(data, begin)


def test_run_has_requests_of_its_frames_by_kind() -> None:
    frames = [half_frame(n) if n % 3 else end_frame(n, (n, 1000 + n), TRANSACTION_COMMIT) for n in range(9)]
    data = b"x" * 7 + b"".join(frames)
    run = find(data, 7)
    assert run is not None
    assert run.halves is not None
    assert run.ends is not None
    assert (len(run), run.oneway_count, run.end) == (9, 3, len(data))
    assert [one.opaque for one in split_run(run)] == list(range(9))
    assert [one.opaque for one in split_run(run.halves)] == [1, 2, 4, 5, 7, 8]
    assert run.halves.groups == ["P"] * 6
    assert [(end.opaque, end.ext_fields.commit_log_offset) for end in run.ends.ends] == [
        (0, 1000), (3, 1003), (6, 1006),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "third",
    [
        send_frame(2),
        half_frame(2, b=""),
        half_frame(2, b="U"),
        half_frame(2, g="0"),
        half_frame(2, f="0"),
        half_frame(2, f="132"),
        half_frame(2, b""),
        half_frame(2, marks="\x02DELAY\x013"),
        half_frame(2, marks="\x02CHECK_IMMUNITY_TIME_IN_SECONDS\x013"),
        half_frame(2, marks="\x02REAL_TOPIC\x01U"),
        half_frame(2, i="TRAN_MSG\x01TRUE\x02UNIQ_KEY\x01A\x02PGROUP\x01P"),
        half_frame(2, i="TRAN_MSG\x01true\x02UNIQ_KEY\x01A"),
        half_frame(2, i="TRAN_MSG\x01true\x02UNIQ_KEY\x01A\x02XPGROUP\x01P"),
        half_frame(2, i="TRAN_MSG\x01true\x02UNIQ_KEY\x01A\x02PGROUP\x01P\x02WAIT\x01false"),
        end_frame(2, (1, 2), 8, flag=1),
        end_frame(2, (1, 2), 8, commitLogOffset="x"),
        end_frame(2, (1, 2), 8, topic="T" * 5000),
        frame(header_of({"topic": "T"}, 2, code=int(RequestCode.END_TRANSACTION)), b""),
        frame(header_of({}, 2, code=int(RequestCode.END_TRANSACTION)), b"body"),
        frame(header_of({}, 2, code=105), b""),
        frame(b"{" * 900, b""),
    ],
)
def test_frame_that_is_not_plain_ends_run(third: bytes) -> None:
    run = find(SIX + third + half_frame(3))
    assert run is not None
    assert (len(run), run.end) == (6, len(SIX))
    assert find(third + SIX) is None
    assert find(SIX[len(half_frame(0)) :] + third + half_frame(3)) is None  # too few


@pytest.mark.parametrize("third", [half_frame(2), end_frame(2, (1, 2), 8)])
@pytest.mark.parametrize("kept", [1, 7, 8, 50, -1])
def test_incomplete_frame_is_in_no_run(third: bytes, kept: int) -> None:
    run = find(SIX + third[:kept])
    assert run is not None
    assert (len(run), run.end) == (6, len(SIX))


def test_requests_behind_odd_half_message_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    frames_of = transaction_runs._frames
    monkeypatch.setattr(transaction_runs, "_frames", lambda data, at: looked.append(at) or frames_of(data, at))
    odd, finder = half_frame(1, marks="\x02DELAY\x013"), FindTransactionRun()
    frames = [odd, *(half_frame(n) for n in range(90))]
    data, positions = b"".join(frames), [len(b"".join(frames[:count])) for count in (0, 1, 2, 64)]
    runs = [finder(data, at) for at in positions]
    assert [run and len(run) for run in runs] == [None, None, None, 27]
    assert looked == [positions[0], positions[3]]


class Fed:
    """What a broker made of some reads: the bytes of its log, its queues, its answers and its sums."""

    def __init__(self, case: BrokerCase, out: bytes) -> None:
        server = case.server
        held = server.store._log.get_message(0, server.store._log.max_offset)
        assert held is not None
        with held:
            self.log = held.array.tobytes()
        self.exact = sorted((one.opaque, one.code, one.remark, one.fields()) for one in answers_in(out))
        self.answers = [
            (opaque, code, remark, {name: text for name, text in fields.items() if name != "msgId"})
            for opaque, code, remark, fields in self.exact
        ]
        self.queues = {
            queue: self._records(server, *queue, end)
            for queue, end in server.store._puts._appender._next_offsets.items()
        }
        self.decided = {
            offset
            for op in server.store.get(names.TRANS_OP_HALF_TOPIC, 0, 0, max_msgs=1000).messages
            for offset in decided_offsets(op.tags, op.body)
        }
        self.open = server.tables.transaction_metrics.counts()
        self.under_way = dict(server._context.decisions._under_way)
        stats = server.measures.stats
        self.sums = (stats.put_total, server.measures.store.put_times, server.measures.store.put_failed)
        self.by_topic = {key: (item.value, item.times) for key, item in stats._items.items()}

    @staticmethod
    def _records(server: BrokerServer, topic: str, queue_id: int, end: int) -> list[tuple[object, ...]]:
        if topic == names.TRANS_OP_HALF_TOPIC:
            return []
        return [
            (one.body, dict(one.properties), one.sys_flag, one.flag, one.born_timestamp_ms, one.reconsume_times)
            + ((one.queue_offset,) if one.prepared_transaction_offset == 0 else (_key_of_half(server, one),))
            for at in range(0, end, 30)
            for one in server.store.get(topic, queue_id, at, max_msgs=30).messages
        ]


def _key_of_half(server: BrokerServer, final: StoredMessage) -> str:
    half = server.store.message_at(final.prepared_transaction_offset)
    assert half is not None
    return half.properties["UNIQ_KEY"]


def answers_in(out: bytes) -> list[Any]:
    return Connection().receive(out)


class Producer:
    """Makes the frames of half messages and of decisions on those that were answered."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.number = rng, 0
        self.open: list[int] = []
        self.done: list[int] = []

    def half(self) -> bytes:
        self.number += 1
        rng, number = self.rng, self.number
        odd = {
            0: {"marks": "\x02CHECK_IMMUNITY_TIME_IN_SECONDS\x015"},
            1: {"marks": "\x02DELAY\x012"},
            2: {"e": "9"},
            3: {"b": "U"},
            4: {"b": "no such topic!"},
            5: {"f": "8", "h": "7", "j": "2"},
        }.get(rng.randrange(40), {})
        self.open.append(number)
        body = rng.randbytes(rng.randrange(1, 200) if rng.randrange(40) else 5000)
        return half_frame(number, body, flag=0, **odd)

    def end(self, places: dict[int, tuple[int, int]]) -> bytes:
        """A decision: mostly on a half message that is open, also on others."""
        self.number += 1
        rng = self.rng
        if rng.randrange(12) or not self.done:
            which = self.open.pop(0) if rng.randrange(3) else self.open.pop(rng.randrange(len(self.open)))
            self.done.append(which)
        else:
            which = rng.choice(self.done)
        state = rng.choice([TRANSACTION_COMMIT] * 6 + [TRANSACTION_ROLLBACK, TRANSACTION_ROLLBACK, TRANSACTION_NONE])
        at = places.get(which, (3, 77))
        more = rng.choice(
            [{}] * 9 + [{"producerGroup": "Q"}, {"tranStateTableOffset": "99"}, {"fromTransactionCheck": "true"}]
        )
        return end_frame(self.number, at, state, flag=rng.choice([ONEWAY, ONEWAY, 0]), **more)


async def feed(
    path: Path,
    seed: int,
    *,
    together: bool,
    is_mixed: bool = True,
    has_ends: bool = True,
    broken: Any = None,
    reads: int = 20,
    **settings: Any,
) -> Fed:
    """Let a broker at a fixed moment have the reads of a producer; each comes when the last one is answered."""
    rng, wire = random.Random(seed), Wire()
    producer, places = Producer(rng), dict[int, tuple[int, int]]()
    settings = {"broker_fast_failure_enable": False, "transaction_check_interval_ms": 1 << 40, **settings}
    async with BrokerCase(path, clock=ManualClock(NOW_MS), **settings) as case:
        server = case.server
        channel = Channel(
            server.dispatcher, server=TlsServer(), find_runs=server.dispatcher.find_runs if together else None
        )
        channel.connection_made(cast(asyncio.Transport, wire))
        channel.data_received(send_frame(0, b"first"))
        await settle(case, wire)
        for number in range(reads):
            ends = [
                producer.end(places) for _ in range(min(len(producer.open), rng.randrange(1, 9)) if has_ends else 0)
            ]
            halves = [producer.half() for _ in range(rng.randrange(2, 12))]
            frames = [*halves, *ends]
            if is_mixed:
                order = sorted(rng.sample(range(len(frames)), len(ends)))
                mixed = iter(halves)
                frames = [ends[order.index(at)] if at in order else next(mixed) for at in range(len(frames))]
            channel.data_received(b"".join(frames))
            await settle(case, wire)
            for answer in answers_in(wire.out):
                if answer.code == ResponseCode.SUCCESS and "msgId" in answer.ext_fields:
                    header = answer.read(SendMessageResponseHeader)
                    places[answer.opaque] = header.queue_offset, int(header.msg_id[-16:], 16)
            if broken is not None and number == 2:
                broken(server)
        return await made(case, wire)


async def settle(case: BrokerCase, wire: Wire) -> None:
    """Wait until everything is answered and in its queues."""
    for _ in range(3):
        await asyncio.sleep(0)
    server = case.server
    while wire.is_paused or server.dispatcher._later_runs or not server.puts.is_idle or server._new_topics._answers:
        await asyncio.sleep(0)
    while case.server.store.dispatch_behind_bytes or case.server.dispatcher._tasks:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0)


async def made(case: BrokerCase, wire: Wire) -> Fed:
    await settle(case, wire)
    case.server._ops.write_all()
    await settle(case, wire)
    return Fed(case, wire.out)


async def assert_same(path: Path, seed: int, *, is_mixed: bool = True, **settings: Any) -> Fed:
    """Together and one by one the broker makes the same, in the same order in each queue."""
    settings["listen_port"] = fixed_port()  # a part of the message ids
    alone = await feed(path / "alone", seed, together=False, is_mixed=is_mixed, **settings)
    together = await feed(path / "together", seed, together=True, is_mixed=is_mixed, **settings)
    # Taken together, decisions are stored behind the half messages between them.
    for name, value in vars(alone).items():
        if not is_mixed or name not in ("log", "exact"):
            assert vars(together)[name] == value, name
    return together


@pytest.mark.asyncio
@pytest.mark.parametrize("flush", [FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH])
@pytest.mark.parametrize("is_mixed", [True, False])
async def test_run_has_effects_and_answers_of_its_requests(
    tmp_path: Path, rng: random.Random, flush: FlushDiskType, is_mixed: bool
) -> None:
    fed = await assert_same(
        tmp_path, rng.getrandbits(32), is_mixed=is_mixed, flush_disk_type=flush, max_message_size_bytes=4000
    )
    assert len({code for _, code, _, _ in fed.answers}) > 2
    assert len(fed.queues["T", 0]) > 3
    assert len(fed.decided) > 20


@pytest.mark.asyncio
async def test_broker_takes_usual_transactions_as_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[tuple[str, int]] = []
    put, run = HalfSends.put, EndTransactionProcessor.run

    def counted_halves(self: HalfSends, channel: Channel, halves: Any) -> bool:
        is_put = put(self, channel, halves)
        taken.append(("halves", len(halves) if is_put else 0))
        return is_put

    def counted_ends(self: EndTransactionProcessor, channel: Channel, ends: Any) -> Sequence[Any]:
        left = run(self, channel, ends)
        taken.append(("ends", len(ends) - len(left)))
        return left

    monkeypatch.setattr(HalfSends, "put", counted_halves)
    monkeypatch.setattr(EndTransactionProcessor, "run", counted_ends)
    async with BrokerCase(tmp_path, clock=ManualClock(NOW_MS)) as case:
        wire = Wire()
        channel = Channel(case.server.dispatcher, server=TlsServer(), find_runs=case.server.dispatcher.find_runs)
        channel.connection_made(cast(asyncio.Transport, wire))
        channel.data_received(send_frame(99))
        await settle(case, wire)
        channel.data_received(b"".join(half_frame(n) for n in range(10)))
        await settle(case, wire)
        headers = [one.read(SendMessageResponseHeader) for one in answers_in(wire.out)[1:]]
        places = [(header.queue_offset, int(header.msg_id[-16:], 16)) for header in headers]
        ends = [end_frame(n, at, TRANSACTION_COMMIT) for n, at in enumerate(places)]
        channel.data_received(b"".join(end + half_frame(n) for n, end in enumerate(ends)))
        await settle(case, wire)
        assert case.server.measures.stats.put_total == 31
    assert taken == [("halves", 10), ("halves", 10), ("ends", 10)]


@pytest.mark.asyncio
async def test_run_at_broker_refusing_sends_is_refused_request_by_request(tmp_path: Path) -> None:
    fed = await assert_same(tmp_path, 7, has_ends=False, send_thread_pool_queue_capacity=4, reads=6)
    assert ResponseCode.SYSTEM_BUSY in {code for _, code, _, _ in fed.answers}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("broken", "code"),
    [(no_disk, ResponseCode.FLUSH_DISK_TIMEOUT), (no_store, ResponseCode.SERVICE_NOT_AVAILABLE)],
)
async def test_run_that_fails_answers_each_request_with_error(tmp_path: Path, broken: Any, code: ResponseCode) -> None:
    fed = await assert_same(tmp_path, 5, broken=broken, flush_disk_type=FlushDiskType.SYNC_FLUSH, reads=6)
    assert code in {code for _, code, _, _ in fed.answers}


@pytest.mark.asyncio
async def test_commits_larger_than_a_share_of_a_file_are_put_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    init = PutGroup.__init__

    def counted(self: PutGroup, each: Sequence[Any]) -> None:
        sizes.append(len(each))
        init(self, each)

    monkeypatch.setattr(PutGroup, "__init__", counted)
    await assert_same(tmp_path, 3, is_mixed=False, mapped_file_size_commit_log=40_000, reads=6)
    assert 1 in sizes


def test_group_of_puts_leaves_out_what_cannot_be_stored() -> None:
    good, bad = Mock(), Mock()
    good.check.return_value, bad.check.return_value = PutMessageStatus.PUT_OK, PutMessageStatus.MESSAGE_ILLEGAL
    good.size_bytes, good.topic, good.queue_id, bad.topic, bad.queue_id = 9, "T", 1, "U", 2
    good.append.return_value = PutMessageResult(PutMessageStatus.PUT_OK, "T", 1, 100, 5, 9)
    file, host = Mock(wrote_position=0), Host.parse("127.0.0.1:1")
    group = PutGroup([bad, good])
    assert group.check(MessageStoreConfig(), host) is PutMessageStatus.PUT_OK
    result = group.append(file, {}, NOW_MS, host)
    assert (result.phy_offset, result.phy_offsets, group.size_bytes) == (100, [100], 9)
    assert [one.status for one in group.results] == [PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PUT_OK]
    assert PutGroup([bad]).check(MessageStoreConfig(), host) is PutMessageStatus.MESSAGE_ILLEGAL
    bad.append.assert_not_called()


class LaneInParts:
    """A lane that takes the half messages of a run at once, and its decisions when they come back."""

    find = FindTransactionRun()

    def __init__(self) -> None:
        self.taken: list[object] = []

    def process(self, channel: Channel, run: CommandRun, /) -> Sequence[RemotingCommand]:
        self.taken.append(type(run))
        return [run.ends] if isinstance(run, TransactionRun) and run.ends is not None else ()


@pytest.mark.asyncio
async def test_later_part_of_run_is_taken_before_other_requests_and_the_end() -> None:
    lane, run, other = LaneInParts(), find(SIX), RemotingCommand(105)
    assert run is not None
    dispatcher = RequestDispatcher({105: lambda channel, request: lane.taken.append(105)}, lanes=[lane])
    channel = Mock(spec=Channel)
    dispatcher.requests(channel, [run])
    assert lane.taken == [TransactionRun]
    dispatcher.requests(channel, [other])
    assert lane.taken == [TransactionRun, EndRun, 105]
    dispatcher.requests(channel, [run])
    await dispatcher.drain()
    assert lane.taken == [TransactionRun, EndRun, 105, TransactionRun, EndRun]
