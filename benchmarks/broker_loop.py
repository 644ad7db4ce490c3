"""The cost of a message in the broker's event loop, for requests as the Java client frames them, without sockets.

    python benchmarks/broker_loop.py [--count 50000] [--profile]

It prints the CPU time per message: of the loop's thread, and of all threads until everything is dispatched. CPU time
changes by about a fifth under other load, wall time by much more. A read of the socket has 1 or 16 single messages, a
batch of 100, or four pulls. A read of transactions has the decisions on the half messages of the read before, each
followed by the next half message, as 16 threads of a producer send them. After a read of pops comes one that
acknowledges each of their messages.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import pstats
import struct
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from gantrymq.broker.server import BrokerServer
from gantrymq.broker.sessions.consumers import build_subscription
from gantrymq.config.broker_settings import BrokerConfig, LiveConfig
from gantrymq.model.receipt_handle import ReceiptHandle, parse_message_offsets, parse_start_offsets
from gantrymq.remoting.acl import SessionCredentials
from gantrymq.remoting.bodies.client import ConsumerData, HeartbeatData
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.connection import Connection
from gantrymq.remoting.headers.pop import PopMessageResponseHeader
from gantrymq.remoting.headers.send import SendMessageResponseHeader
from gantrymq.remoting.message_batch import BatchedMessage, encode_batch
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.server import new_event_loop
from gantrymq.remoting.transport.tls import TlsServer

BODY = bytes(1024)
QUEUES, BATCH, PULLED, ONE_WAY = 4, 100, 32, 2
POPS, POPS_A_READ = 800, 8
COMMIT = 8
END_OF_HEADER = b'"serializeTypeCurrentRPC"'  # once in each response
AWAIT_S = 0.0002
WARM_UP = 20


class Nowhere(asyncio.Transport):
    """A transport whose peer reads everything at once. It keeps the data if :attr:`kept` is a list.

    ``awaited`` is the number of answers that the next read needs.
    """

    is_paused = False
    kept: list[bytes] | None = None
    awaited = 0

    def pause_reading(self) -> None:
        """Note that the channel has more data than it processes in one turn."""
        self.is_paused = True

    def resume_reading(self) -> None:
        """Note that the channel has processed everything."""
        self.is_paused = False

    def write(self, data: Any) -> None:
        """Discard or keep the data."""
        if self.kept is not None:
            copy = bytes(data)
            self.kept.append(copy)
            self.awaited -= copy.count(END_OF_HEADER)

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Discard or keep the data."""
        for data in list_of_data:
            self.write(data)

    def answers(self) -> list[RemotingCommand]:
        """The responses since the last call."""
        data, self.kept = b"".join(self.kept or ()), []
        return Connection().receive(data)

    def get_write_buffer_size(self) -> int:
        """Return 0: nothing is buffered."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: there is no buffer."""

    def is_closing(self) -> bool:
        """Return False."""
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a fixed peer address."""
        return ("127.0.0.1", 45678)


def frame(code: int, fields: dict[str, str], body: bytes = b"", *, opaque: int = 0, flag: int = 0) -> bytes:
    """A request as the Java client encodes it."""
    head = {"code": int(code), "extFields": fields, "flag": flag, "language": "JAVA", "opaque": opaque}
    raw = json.dumps(head | {"serializeTypeCurrentRPC": "JSON", "version": 513}, separators=(",", ":")).encode()
    return struct.pack(">II", 4 + len(raw) + len(body), len(raw)) + raw + body


def send(
    number: int,
    *,
    flag: int = 0,
    batch: bytes | None = None,
    is_half: bool = False,
    signer: SessionCredentials | None = None,
) -> bytes:
    """The frame of one message, of a batch, or of a message of a transaction; signed, if there is a signer."""
    half, sys_flag = ("\x02TRAN_MSG\x01true\x02PGROUP\x01producers", 4) if is_half else ("", 0)
    properties = f"UNIQ_KEY\x017F000001{number:024X}\x02WAIT\x01true{half}\x02"
    fields = {
        **{"a": "producers", "b": "bench", "c": "TBW102", "d": "4", "e": str(number % QUEUES), "f": str(sys_flag)},
        **{"g": str(int(time.time() * 1000)), "h": "0", "i": properties},
        **{"j": "0", "k": "false", "m": "false" if batch is None else "true", "n": "broker-a"},
    }
    code = RequestCode.SEND_MESSAGE_V2 if batch is None else RequestCode.SEND_BATCH_MESSAGE
    body = BODY if batch is None else batch
    if signer is not None:
        request = RemotingCommand(code, ext_fields=fields, body=body)
        signer.sign(request)
    return frame(code, fields, body, opaque=number, flag=flag)


def pull(queue_id: int, offset: int) -> bytes:
    """The frame of a push consumer's pull."""
    fields = {
        **{"consumerGroup": "consumers", "topic": "bench", "queueId": str(queue_id), "queueOffset": str(offset)},
        **{"maxMsgNums": str(PULLED), "sysFlag": "3", "commitOffset": str(offset), "suspendTimeoutMillis": "15000"},
        **{"subVersion": "0", "expressionType": "TAG", "maxMsgBytes": "2147483647", "bname": "broker-a"},
    }
    return frame(RequestCode.PULL_MESSAGE, fields, opaque=offset)


def end(number: int, half: SendMessageResponseHeader) -> bytes:
    """The frame that commits the transaction of a half message."""
    fields = {
        **{"topic": "bench", "producerGroup": "producers", "tranStateTableOffset": str(half.queue_offset)},
        **{"commitLogOffset": str(int(half.msg_id[-16:], 16)), "commitOrRollback": str(COMMIT)},
        **{"fromTransactionCheck": "false", "msgId": str(half.transaction_id), "bname": "broker-a"},
        **{"transactionId": str(half.transaction_id)},
    }
    return frame(RequestCode.END_TRANSACTION, fields, opaque=number, flag=ONE_WAY)


def transactions(transport: Nowhere, count: int, together: int) -> Iterator[bytes]:
    """Reads of ``together`` transactions: a decision on each half message that was answered, and the next one."""
    ends = [b""] * together
    for begin in range(0, count, together):
        transport.awaited = together
        yield b"".join(one + send(begin + i, is_half=True) for i, one in enumerate(ends))
        halves = [answer.read(SendMessageResponseHeader) for answer in transport.answers()]
        ends = [end(begin + i, half) for i, half in enumerate(halves)]


def pop(number: int, most: int) -> bytes:
    """The frame of a pop of all queues."""
    fields = {
        **{"consumerGroup": f"poppers-{most}", "topic": "bench", "queueId": "-1", "maxMsgNums": str(most)},
        **{"invisibleTime": "60000", "pollTime": "15000", "bornTime": str(int(time.time() * 1000)), "initMode": "0"},
        **{"order": "false", "bname": "broker-a"},
    }
    return frame(RequestCode.POP_MESSAGE, fields, opaque=number)


def acks(answer: RemotingCommand, most: int) -> Iterator[bytes]:
    """The frames that acknowledge each message of a pop."""
    found = answer.read(PopMessageResponseHeader)
    starts = parse_start_offsets(found.start_offset_info)
    for queue, offsets in parse_message_offsets(found.msg_offset_info).items():
        for offset in offsets:
            handle = ReceiptHandle(
                starts[queue], found.pop_time, found.invisible_time, found.revive_qid, queue.mark, "broker-a",
                queue.queue_id, offset,
            )  # fmt: skip
            fields = {
                **{"consumerGroup": f"poppers-{most}", "topic": "bench", "queueId": str(queue.queue_id)},
                **{"extraInfo": str(handle), "offset": str(offset), "bname": "broker-a"},
            }
            yield frame(RequestCode.ACK_MESSAGE, fields, opaque=offset)


def pops(transport: Nowhere, count: int, most: int) -> Iterator[bytes]:
    """Reads of pops of up to ``most`` messages, each followed by a read of all acknowledgements."""
    for begin in range(0, count, POPS_A_READ):
        transport.awaited = POPS_A_READ
        yield b"".join(pop(begin + i, most) for i in range(POPS_A_READ))
        frames = [ack for answer in transport.answers() for ack in acks(answer, most)]
        transport.awaited = len(frames)
        yield b"".join(frames)
        transport.answers()


@dataclass
class Work:
    """One kind of work: ``reads`` are the data of single socket reads, each with ``messages`` messages on average.

    Reads that depend on the answers to earlier ones are made when they are needed, from the transport.
    """

    name: str
    reads: list[bytes] | Callable[[Nowhere], Iterator[bytes]]
    messages: float


class Reads:
    """The reads of a work. ``spent_s`` is the CPU time that it took to make them, ``count`` their number."""

    def __init__(self, work: Work, transport: Nowhere) -> None:
        transport.kept = None if isinstance(work.reads, list) else []
        self._reads = iter(work.reads) if isinstance(work.reads, list) else work.reads(transport)
        self.spent_s, self.count = 0.0, 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        began = time.thread_time()
        try:
            data = next(self._reads)
        finally:
            self.spent_s += time.thread_time() - began
        self.count += 1
        return data


def works(count: int) -> Iterable[Work]:
    """All kinds of work, in an order in which pulls find messages."""
    for flag, name in ((0, "send"), (ONE_WAY, "one-way send")):
        for together in (1, 16):
            numbers = range(count // together)
            reads = [b"".join(send(n * together + i, flag=flag) for i in range(together)) for n in numbers]
            yield Work(f"{name}, {together} in a read", reads, together)
    halves = [b"".join(send(n * 16 + i, is_half=True) for i in range(16)) for n in range(count // 16)]
    yield Work("half message, 16 in a read", halves, 16)
    for together in (1, 16):
        reads = partial(transactions, count=count // 4 * together // 4, together=together)
        yield Work(f"transaction, {together} in a read", reads, together)
    batch = encode_batch(BatchedMessage(0, BODY, f"UNIQ_KEY\x017F000001{n:024X}\x02".encode()) for n in range(BATCH))
    yield Work("batch of 100", [send(n, batch=batch) for n in range(count // BATCH)], BATCH)
    singles = 4 * count // QUEUES  # messages in each queue from the first four works
    for name, begin in (("one by one", 0), ("in batches", singles)):
        places = range(begin, begin + count // QUEUES // BATCH * BATCH - PULLED, PULLED)
        pulls = [b"".join(pull(queue, at) for queue in range(QUEUES)) for at in places]
        yield Work(f"pull of 32 that came {name}", pulls, QUEUES * PULLED)
    for most in (1, 32):
        yield Work(
            f"pop of {most} and acks",
            partial(pops, count=min(POPS, count // PULLED), most=most),
            POPS_A_READ * most / 2,
        )


async def feed(channel: Channel, transport: Nowhere, reads: Iterable[bytes]) -> None:
    """Pass one read to the channel in each turn of the event loop. Its answers are written two turns later."""
    for data in reads:
        channel.data_received(data)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        while transport.is_paused:
            await asyncio.sleep(0)
        while transport.awaited > 0:  # an answer waits for another thread
            await asyncio.sleep(AWAIT_S)


async def measure(
    server: BrokerServer, channel: Channel, transport: Nowhere, work: Work, profile: cProfile.Profile | None
) -> None:
    """Measure one work and print a line."""
    reads = Reads(work, transport)
    await feed(channel, transport, islice(reads, WARM_UP))
    reads.spent_s, reads.count = 0.0, 0
    loop_s, all_s = time.thread_time(), time.process_time()
    if profile is not None:
        profile.enable()
    await feed(channel, transport, reads)
    loop_s = time.thread_time() - loop_s - reads.spent_s
    if profile is not None:
        profile.disable()
    while server.store.dispatch_behind_bytes:
        await asyncio.sleep(0.001)
    all_s = time.process_time() - all_s - reads.spent_s
    messages = reads.count * work.messages
    print(f"{work.name:30} loop {loop_s / messages * 1e6:6.2f} µs   all {all_s / messages * 1e6:6.2f} µs", flush=True)


async def run(count: int, path: str, only: str, profile: cProfile.Profile | None) -> None:
    """Measure all works at one broker."""
    # The times are for a busy machine.
    config = BrokerConfig(listen_port=0, wait_time_in_send_queue_ms=10_000, os_page_cache_busy_timeout_ms=10_000)
    server = BrokerServer(path, LiveConfig(config))
    await server.start()
    channel = Channel(server.dispatcher, server=TlsServer(), find_runs=server.dispatcher.find_runs)
    transport = Nowhere()
    channel.connection_made(transport)
    subscription = build_subscription("bench", "*", "TAG", 0)
    consumers = ConsumerData(
        group_name="consumers", consume_type="CONSUME_PASSIVELY", message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_FIRST_OFFSET", subscription_data_set=[subscription], unit_mode=False,
    )  # fmt: skip
    heart_beat = HeartbeatData(client_id="c", consumer_data_set=[consumers], producer_data_set=[]).encode()
    await feed(channel, transport, [frame(RequestCode.HEART_BEAT, {}, heart_beat)])
    for work in works(count):
        if only and not work.name.startswith((only, "send, 1")):
            continue  # the sends fill the topic
        await measure(server, channel, transport, work, profile)
    await server.shutdown()


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50_000, help="messages of each work")
    parser.add_argument("--profile", action="store_true", help="what the loop did, by function (and slower)")
    parser.add_argument("--only", default="", help="the works whose name begins so")
    options = parser.parse_args()
    profile = cProfile.Profile() if options.profile else None
    with tempfile.TemporaryDirectory() as path, asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run(options.count, path, options.only, profile))
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)


if __name__ == "__main__":
    main()
