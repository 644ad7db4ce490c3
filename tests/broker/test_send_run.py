"""Sends that are taken together are what they are one by one: in the log, in their queues and in their answers."""

from __future__ import annotations

import asyncio
import random
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from broker_cases import BrokerCase
from send_frames import ONEWAY, fields_of, frame, header_of, odd_frame, send_frame
from wire_files import file_of, written

from gantrymq.broker.appends.send_properties import broker_properties, plain_properties
from gantrymq.broker.appends.send_runs import FindSendRun, SendRun, WireSends
from gantrymq.broker.appends.wire_messages import WireMessage
from gantrymq.broker.processors.send import send_answers
from gantrymq.broker.processors.send_lane import SendLane, answer_frames
from gantrymq.broker.server import BrokerServer
from gantrymq.clock import ManualClock
from gantrymq.config.settings import FlushDiskType
from gantrymq.kernels import send_columns as rows
from gantrymq.model.host import Host
from gantrymq.model.message import message_id
from gantrymq.model.status import PutMessageStatus
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import CommandRun, RemotingCommand
from gantrymq.remoting.connection import Connection, split_run
from gantrymq.remoting.headers.send import SendMessageRequestHeaderV2
from gantrymq.remoting.transport import channel as channel_module
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import BodyLimits, RequestDispatcher
from gantrymq.remoting.transport.tls import TlsServer
from gantrymq.store.put_result import PutMessageResult
from interop.fixed_ports import fixed_port

HOSTS = ("127.0.0.1:10911", "[::1]:10911")
MARKS = broker_properties("DefaultRegion", "DefaultCluster", True)


def find(data: bytes, begin: int = 0) -> SendRun | None:
    return FindSendRun()(data, begin)


def text_at(run: SendRun, at: int, length: int, i: int) -> str:
    begin = run.columns[at, i]
    return run.text[begin : begin + run.columns[length, i]].tobytes().decode()


def assert_is(run: SendRun, i: int, request: RemotingCommand) -> None:
    """Column i says what the request says when it is read in the ordinary way."""
    header, column = request.read(SendMessageRequestHeaderV2), run.columns[:, i]
    assert (request.code, request.serialize_type, request.flag) == (310, 0, column[rows.COMMAND_FLAG])
    assert (request.opaque, header.queue_id) == (column[rows.OPAQUE], column[rows.QUEUE_ID])
    assert (header.topic, header.batch or False) == (run.topic, False)
    assert (header.sys_flag, header.flag) == (column[rows.SYS_FLAG], column[rows.MESSAGE_FLAG])
    assert (header.born_timestamp, header.reconsume_times or 0) == (
        column[rows.BORN_TIMESTAMP], column[rows.RECONSUME_TIMES],
    )  # fmt: skip
    begin = column[rows.BODY_AT]
    assert request.body == run.data[begin : begin + column[rows.BODY_LENGTH]]
    properties = plain_properties(header.properties, "")
    assert properties is not None
    assert properties.wait_store_msg_ok
    assert properties.encoded.decode() == text_at(run, rows.PROPERTIES_AT, rows.PROPERTIES_LENGTH, i)
    assert properties.unique_key == text_at(run, rows.UNIQUE_AT, rows.UNIQUE_LENGTH, i)


def test_run_has_fields_of_each_request(rng: random.Random) -> None:
    taken = 0
    for number in range(4000):
        data = send_frame(number) + odd_frame(rng, number)
        run = find(data)
        if run is None:
            continue
        taken += 1
        assert (len(run), run.end) == (2, len(data))
        for i, request in enumerate(split_run(run)):
            assert_is(run, i, request)
    assert taken > 400


def test_pipelined_equal_sends_form_one_run(rng: random.Random) -> None:
    frames = [send_frame(i, rng.randbytes(rng.randrange(1, 99)), flag=rng.choice([0, ONEWAY])) for i in range(40)]
    data = b"x" * 7 + b"".join(frames)
    run = find(data, 7)
    assert run is not None
    assert (len(run), run.topic, run.end) == (40, "T", len(data))
    assert run.body_bytes == run.columns[rows.BODY_LENGTH].sum()
    assert run.longest_body_bytes == run.columns[rows.BODY_LENGTH].max()
    assert run.longest_properties_bytes == run.columns[rows.PROPERTIES_LENGTH].max()
    assert run.unique_key_bytes == 40 * 32
    assert run.largest_queue_id == 3


def test_longest_run_is_not_changed_by_the_next_one() -> None:
    """A slice of all columns of the finder's own array is contiguous, so ``ascontiguousarray`` returned it itself."""
    frames = [send_frame(i, b"%d" % i) for i in range(1000)]
    data, finder = b"".join(frames), FindSendRun()
    longest = finder(data, 0)
    assert longest is not None
    after = finder(data, longest.end)
    assert after is not None
    assert len(longest) + len(after) == 1000
    for run, begin in ((longest, 0), (after, len(longest))):
        for i in (0, len(run) - 1):
            at, length = run.columns[rows.BODY_AT, i], run.columns[rows.BODY_LENGTH, i]
            assert data[at : at + length] == b"%d" % (begin + i)


@pytest.mark.parametrize(
    "third",
    [
        send_frame(3, topic="U"),
        send_frame(3, m="true"),
        send_frame(3, e="-1"),
        send_frame(3, f="4"),
        send_frame(3, f="128"),
        send_frame(3, b""),
        send_frame(3, i="UNIQ_KEY\x01u\x02INNER_NUM\x013\x02"),
        send_frame(3, i="UNIQ_KEY\x01u\x02DELAY\x013\x02"),
        send_frame(3, i="UNIQ_KEY\x01u\x02WAIT\x01false\x02"),
        send_frame(3, i="UNIQ_KEY\x01u-v\x02"),
        send_frame(3, i="TAGS\x01a\x02"),
        send_frame(3, i="UNIQ_KEY\x01ü\x02"),
        frame(header_of(fields_of(3), 3, code=10), b""),
        frame(header_of(fields_of(3), 3, flag=1), b""),
        frame(b"{}", b""),
        struct.pack(">II", 4, 9),
        struct.pack(">II", 0xFFFFFFFF, 0xFFFFFFFF) + bytes(99),
        struct.pack(">II", 4 + 5, 1 << 24 | 5) + bytes(5),
    ],
)
def test_run_ends_before_different_request(third: bytes) -> None:
    two = send_frame(1) + send_frame(2)
    run = find(two + third + send_frame(4))
    assert run is not None
    assert (len(run), run.end) == (2, len(two))
    assert find(third + two) is None


@pytest.mark.parametrize("kept", [1, 7, 8, 50, -1])
def test_incomplete_frame_stays_in_buffer(kept: int) -> None:
    two = send_frame(1) + send_frame(2)
    run = find(two + send_frame(3)[:kept])
    assert run is not None
    assert (len(run), run.end) == (2, len(two))


def test_run_with_any_changed_byte_is_parsed_as_by_decoder(rng: random.Random) -> None:
    whole = send_frame(1) + send_frame(2)
    for _ in range(5000):
        data = bytearray(whole[: rng.choice([len(whole), rng.randrange(len(whole))])])
        for _ in range(rng.randrange(4)):
            if data:
                data[rng.randrange(len(data))] = rng.choice([0, 0x22, 0x5C, 0x7B, 0x7D, 0xFF, rng.randrange(256)])
        run = find(bytes(data))
        if run is not None:
            for i, request in enumerate(split_run(run)):
                assert_is(run, i, request)


def group_of(run: SendRun, born: Host, sys_flag: int = 0) -> WireSends:
    return WireSends(
        topic=run.topic, body=run.data, queue_id=0, sys_flag=sys_flag, born_timestamp_ms=0, born_host=born,
        reconsume_times=0, wait_store_msg_ok=True, run=run, own_properties=MARKS.encode(), text=run.text,
        columns=run.columns, largest_queue_id=run.largest_queue_id,
    )  # fmt: skip


@pytest.mark.parametrize("born", HOSTS)
@pytest.mark.parametrize("store", HOSTS)
def test_run_stores_records_and_answers_of_separate_sends(rng: random.Random, store: str, born: str) -> None:
    host, born_host, now_ms = Host.parse(store), Host.parse(born), 1_800_000_000_000
    for _ in range(20):
        frames = [
            send_frame(
                n, rng.randbytes(rng.randrange(1, 300)), flag=rng.choice([0, 0, ONEWAY]), g=str(rng.choice([0, 17])),
                h=str(rng.randint(-9, 9)), j=str(rng.randrange(3)), f=rng.choice(["0", "1", "16"]),
            )
            for n in range(rng.randint(2, 20))
        ]  # fmt: skip
        run = find(b"".join(frames))
        assert run is not None
        before = {("T", queue_id): rng.choice([1, 7, 1 << 40]) for queue_id in rng.sample(range(9), 3)}
        one, other, offsets, file_offset = file_of(rng), file_of(rng), dict(before), 0
        other.file_from_offset = one.file_from_offset
        other.set_positions(one.wrote_position)
        begin, group = one.wrote_position, group_of(run, born_host, sys_flag=rng.choice([0, 2]))
        result = group.append(one, offsets, now_ms, host)
        wanted_offsets, answers = dict(before), b""
        for request, each in zip(split_run(run), group.each(result), strict=True):
            header = request.read(SendMessageRequestHeaderV2)
            properties = plain_properties(header.properties, MARKS)
            assert properties is not None
            alone = WireMessage(
                "T", request.body, header.queue_id, header.sys_flag | group.sys_flag, header.born_timestamp, born_host,
                header.reconsume_times or 0, True, header.flag, properties.encoded,
            ).append(other, wanted_offsets, now_ms, host)  # fmt: skip
            assert each == alone
            file_offset = alone.phy_offset
            answer = send_answers("DefaultRegion", True).encode(
                request, message_id(host, file_offset), each.queue_id, each.queue_offset, properties.unique_key
            )
            answers += b"" if request.is_oneway else answer or b"?"
        assert written(one, begin) == written(other, begin)
        assert offsets == wanted_offsets
        assert result.size_bytes == group.measure(host) == one.wrote_position - begin
        assert answer_frames(run, "DefaultRegion", True, host) == answers


@pytest.fixture(autouse=True)
def whole_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """All requests of a read are taken in one turn, however slow the machine is."""
    monkeypatch.setattr(channel_module, "SLICE_S", 60.0)


class Wire(asyncio.Transport):
    """The broker's end of a connection whose other end reads everything."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 45678)})
        self.out = b""
        self.is_paused = False

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def write(self, data: Any) -> None:
        self.out += data

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.out += b"".join(list_of_data)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False


class Fed:
    """What a broker made of some reads: the bytes of its log, its answers, its queues and its sums."""

    def __init__(self, case: BrokerCase, wire: Wire) -> None:
        server = case.server
        end = server.store._log.max_offset
        held = server.store._log.get_message(0, end)
        assert held is not None
        with held:
            self.log = held.array.tobytes()
        answers = [
            (one.opaque, one.code, re.sub(r"\d\.\d\d", "…", one.remark or ""), one.fields())  # how full the disk is
            for one in Connection().receive(wire.out)
        ]
        # Those to a new topic wait until it is on the disk, on a slow one behind later ones of the same number.
        self.answers = sorted(answers, key=lambda one: (one[0], sorted(one[3].items())))
        self.offsets = dict(server.store._puts._appender._next_offsets)
        self.sums = (server.measures.stats.put_total, server.measures.store.put_times, server.measures.store.put_failed)
        self.by_topic = {key: (item.value, item.times) for key, item in server.measures.stats._items.items()}


Break = Callable[[BrokerServer], None]


async def feed(
    path: Path, reads: Sequence[bytes], *, together: bool, port: int, broken: Break | None = None, **settings: Any
) -> Fed:
    """Let a broker at a fixed moment have the reads, one a turn; ``broken`` changes it after the first."""
    settings = {"broker_fast_failure_enable": False, **settings}  # a slow machine is no overload
    async with BrokerCase(path, clock=ManualClock(1_800_000_000_000), listen_port=port, **settings) as case:
        wire = Wire()
        channel = Channel(
            case.server.dispatcher, server=TlsServer(), find_runs=case.server.dispatcher.find_runs if together else None
        )
        channel.connection_made(cast(asyncio.Transport, wire))
        for read in reads:
            channel.data_received(read)
            await asyncio.sleep(0.01 if broken else 0)
            while wire.is_paused:
                await asyncio.sleep(0)
            if broken is not None:
                broken(case.server)
                broken = None
        while case.server._new_topics._answers or not case.server.puts.is_idle:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        return Fed(case, wire)


async def assert_same(path: Path, reads: Sequence[bytes], **settings: Any) -> Fed:
    """Together and one by one the broker makes the same of them."""
    settings["port"] = fixed_port()  # a part of the message ids
    alone = await feed(path / "alone", reads, together=False, **settings)
    together = await feed(path / "together", reads, together=True, **settings)
    for name, value in vars(alone).items():
        assert vars(together)[name] == value, name
    return together


def reads_of(rng: random.Random, count: int, **settings: Any) -> list[bytes]:
    """Reads of usual sends with odd ones between them, cut anywhere."""
    topics = ["T"] * 12 + ["U", "%RETRY%G", "no such topic!", "TBW102"]
    odd = [
        lambda n: frame(header_of(fields_of(n, e="9"), n), b"queue"),
        lambda n: send_frame(n, bytes(5000)),
        lambda n: send_frame(n, i=f"UNIQ_KEY\x01{n}\x02DELAY\x012\x02"),
        lambda n: send_frame(n, i=f"UNIQ_KEY\x01{n}\x02WAIT\x01false\x02"),
        lambda n: frame(header_of({}, n, code=105), b""),
    ]
    frames = []
    for number in range(count):
        if rng.randrange(10):
            topic, flag = rng.choice(topics), rng.choice([0, 0, 0, ONEWAY])
            frames.append(send_frame(number, rng.randbytes(rng.randrange(200)), flag=flag, topic=topic))
        else:
            frames.append(rng.choice(odd)(number))
    data, reads = b"".join(frames), []
    while data:
        cut = rng.randrange(1, 12_000)
        reads.append(data[:cut])
        data = data[cut:]
    return reads


@pytest.mark.asyncio
@pytest.mark.parametrize("flush", [FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH])
async def test_broker_stores_run_like_separate_sends(tmp_path: Path, rng: random.Random, flush: FlushDiskType) -> None:
    fed = await assert_same(
        tmp_path, reads_of(rng, 400), flush_disk_type=flush, max_message_size_bytes=4000, auto_create_topic_enable=True
    )
    assert fed.sums[0] > 200


@pytest.mark.asyncio
async def test_broker_processes_pipelined_sends_as_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, process = [], SendLane.process

    def counted(self: SendLane, channel: Channel, run: Any) -> Sequence[RemotingCommand]:
        taken.append((len(run), process(self, channel, run)))
        return taken[-1][1]

    monkeypatch.setattr(SendLane, "process", counted)
    read = b"".join(send_frame(n) for n in range(10))
    await feed(tmp_path, [send_frame(99), read, read], together=True, port=fixed_port())
    assert taken == [(10, ()), (10, ())]


@pytest.mark.asyncio
async def test_run_at_broker_refusing_sends_is_refused_request_by_request(tmp_path: Path) -> None:
    read = b"".join(send_frame(n) for n in range(10))
    fed = await assert_same(tmp_path, [send_frame(99), read], send_thread_pool_queue_capacity=4)
    busy = [code for _, code, _, _ in fed.answers if code == ResponseCode.SYSTEM_BUSY]
    assert 0 < len(busy) < 11


def no_disk(server: BrokerServer) -> None:
    def until_safe(end_offset: int) -> asyncio.Future[PutMessageStatus]:
        late = asyncio.get_running_loop().create_future()
        late.set_result(PutMessageStatus.FLUSH_DISK_TIMEOUT)
        return late

    server.store.until_safe = until_safe


def no_store(server: BrokerServer) -> None:
    def append(appendables: Sequence[Any]) -> list[PutMessageResult]:
        return [PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, "T", 0) for _ in appendables]

    server.store.append = append


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("broken", "code"),
    [(no_disk, ResponseCode.FLUSH_DISK_TIMEOUT), (no_store, ResponseCode.SERVICE_NOT_AVAILABLE)],
)
async def test_failed_run_of_sends_answers_each_request_with_error(
    tmp_path: Path, broken: Break, code: ResponseCode
) -> None:
    read = b"".join(send_frame(n, flag=ONEWAY if n == 3 else 0) for n in range(10))
    reads = [send_frame(99), read, read]
    fed = await assert_same(tmp_path, reads, broken=broken, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    assert [one[1] for one in fed.answers] == [code] * 18 + [ResponseCode.SUCCESS]


class EveryRun:
    """A lane that takes every run."""

    find = FindSendRun()

    def process(self, channel: Channel, run: CommandRun, /) -> Sequence[RemotingCommand]:
        return ()


def test_send_hook_sees_each_request_of_run() -> None:
    seen = []

    def hook(channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        seen.append(request.opaque)
        return request.response(ResponseCode.NO_PERMISSION)

    run = find(b"".join(send_frame(n, flag=ONEWAY) for n in range(10)))
    assert run is not None
    dispatcher = RequestDispatcher(hooks=[hook], lanes=[EveryRun()])
    dispatcher.requests(Mock(spec=Channel), [run])
    assert seen == list(range(10))


@pytest.mark.parametrize("is_allowed", [True, False])
def test_run_hook_that_allows_run_stands_for_all_hooks(is_allowed: bool) -> None:
    seen: list[int] = []
    runs: list[int] = []

    def hook(channel: Channel, request: RemotingCommand) -> None:
        seen.append(request.opaque)

    def run_hook(channel: Channel, run: CommandRun) -> bool:
        runs.append(len(run))
        return is_allowed

    run = find(b"".join(send_frame(n, flag=ONEWAY) for n in range(10)))
    assert run is not None
    dispatcher = RequestDispatcher(hooks=[hook], run_hook=run_hook, lanes=(EveryRun(),))
    dispatcher.requests(Mock(spec=Channel), [run])
    assert runs == [10]
    assert seen == ([] if is_allowed else list(range(10)))


def test_allowed_run_without_lane_meets_body_limit() -> None:
    run = find(b"".join(send_frame(n, bytes(n + 1)) for n in range(6)))
    assert run is not None
    channel = Mock(spec=Channel)
    dispatcher = RequestDispatcher(
        {310: lambda channel, request: request.response(ResponseCode.SUCCESS)},
        hooks=[lambda channel, request: request.response(ResponseCode.NO_PERMISSION)],
        run_hook=lambda channel, run: True,
        body_limits=BodyLimits(4, {}),
    )
    dispatcher.requests(channel, [run])
    codes = [response.code for _, response in (call.args for call in channel.respond.call_args_list)]
    assert codes == [ResponseCode.SUCCESS] * 4 + [ResponseCode.INVALID_PARAMETER] * 2
