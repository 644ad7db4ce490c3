"""What a message costs the broker's event loop: requests as the Java client frames them, without sockets and clients.

    python benchmarks/broker_loop.py [--count 50000] [--profile]

CPU time of the loop's thread, and of all threads until what was sent is dispatched, a message: other work on the
machine moves it by a fifth, not by its load. Reads bring 1 or 16 single messages, a batch of 100, or four pulls.
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
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gantrymq.broker.appends.wire_messages import FindSendRun
from gantrymq.broker.server import BrokerServer
from gantrymq.broker.sessions.consumers import build_subscription
from gantrymq.config.broker_settings import BrokerConfig, LiveConfig
from gantrymq.remoting.bodies.client import ConsumerData, HeartbeatData
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.message_batch import BatchedMessage, encode_batch
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.event_loop import new_event_loop
from gantrymq.remoting.transport.tls import TlsServer

BODY = bytes(1024)
QUEUES, BATCH, PULLED, ONE_WAY = 4, 100, 32, 2
WARM_UP = 20


class Nowhere(asyncio.Transport):
    """A transport whose other end reads everything at once."""

    is_paused = False

    def pause_reading(self) -> None:
        """The channel has more than it takes in one turn."""
        self.is_paused = True

    def resume_reading(self) -> None:
        """It has taken all."""
        self.is_paused = False

    def write(self, data: Any) -> None:
        """Gone."""

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Gone."""

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There are none."""

    def is_closing(self) -> bool:
        """Never."""
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """An address."""
        return ("127.0.0.1", 45678)


def frame(code: int, fields: dict[str, str], body: bytes = b"", *, opaque: int = 0, flag: int = 0) -> bytes:
    """A request in the Java client's words."""
    head = {"code": int(code), "extFields": fields, "flag": flag, "language": "JAVA", "opaque": opaque}
    raw = json.dumps(head | {"serializeTypeCurrentRPC": "JSON", "version": 513}, separators=(",", ":")).encode()
    return struct.pack(">II", 4 + len(raw) + len(body), len(raw)) + raw + body


def send(number: int, *, flag: int = 0, batch: bytes | None = None) -> bytes:
    """One message, or a batch."""
    fields = {
        **{"a": "producers", "b": "bench", "c": "TBW102", "d": "4", "e": str(number % QUEUES), "f": "0"},
        **{"g": str(int(time.time() * 1000)), "h": "0", "i": f"UNIQ_KEY\x017F000001{number:024X}\x02WAIT\x01true\x02"},
        **{"j": "0", "k": "false", "m": "false" if batch is None else "true", "n": "broker-a"},
    }
    code = RequestCode.SEND_MESSAGE_V2 if batch is None else RequestCode.SEND_BATCH_MESSAGE
    return frame(code, fields, BODY if batch is None else batch, opaque=number, flag=flag)


def pull(queue_id: int, offset: int) -> bytes:
    """A pull of a push consumer."""
    fields = {
        **{"consumerGroup": "consumers", "topic": "bench", "queueId": str(queue_id), "queueOffset": str(offset)},
        **{"maxMsgNums": str(PULLED), "sysFlag": "3", "commitOffset": str(offset), "suspendTimeoutMillis": "15000"},
        **{"subVersion": "0", "expressionType": "TAG", "maxMsgBytes": "2147483647", "bname": "broker-a"},
    }
    return frame(RequestCode.PULL_MESSAGE, fields, opaque=offset)


@dataclass
class Work:
    """``reads`` are what the socket brings, ``messages`` how many there are in each."""

    name: str
    reads: list[bytes]
    messages: int


def works(count: int) -> Iterable[Work]:
    """All of them, in an order in which pulls find something."""
    for flag, name in ((0, "send"), (ONE_WAY, "one-way send")):
        for together in (1, 16):
            numbers = range(count // together)
            reads = [b"".join(send(n * together + i, flag=flag) for i in range(together)) for n in numbers]
            yield Work(f"{name}, {together} in a read", reads, together)
    batch = encode_batch(BatchedMessage(0, BODY, f"UNIQ_KEY\x017F000001{n:024X}\x02".encode()) for n in range(BATCH))
    yield Work("batch of 100", [send(n, batch=batch) for n in range(count // BATCH)], BATCH)
    singles = 4 * count // QUEUES  # of each queue: what the first four sent
    for name, begin in (("one by one", 0), ("in batches", singles)):
        places = range(begin, begin + count // QUEUES // BATCH * BATCH - PULLED, PULLED)
        pulls = [b"".join(pull(queue, at) for queue in range(QUEUES)) for at in places]
        yield Work(f"pull of 32 that came {name}", pulls, QUEUES * PULLED)


async def feed(channel: Channel, transport: Nowhere, reads: Iterable[bytes]) -> None:
    """One read a turn; two turns later the answers have left."""
    for data in reads:
        channel.data_received(data)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        while transport.is_paused:
            await asyncio.sleep(0)


async def measure(
    server: BrokerServer, channel: Channel, transport: Nowhere, work: Work, profile: cProfile.Profile | None
) -> None:
    """Print a line."""
    await feed(channel, transport, work.reads[:WARM_UP])
    loop_s, all_s = time.thread_time(), time.process_time()
    if profile is not None:
        profile.enable()
    await feed(channel, transport, work.reads[WARM_UP:])
    loop_s = time.thread_time() - loop_s
    if profile is not None:
        profile.disable()
    while server.store.dispatch_behind_bytes:
        await asyncio.sleep(0.001)
    all_s = time.process_time() - all_s
    messages = (len(work.reads) - WARM_UP) * work.messages
    print(f"{work.name:30} loop {loop_s / messages * 1e6:6.2f} µs   all {all_s / messages * 1e6:6.2f} µs", flush=True)


async def run(count: int, path: str, profile: cProfile.Profile | None) -> None:
    """All works at one broker."""
    server = BrokerServer(path, LiveConfig(BrokerConfig(listen_port=0)))
    await server.start()
    channel = Channel(server.dispatcher, server=TlsServer(), find_run=FindSendRun())
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
        await measure(server, channel, transport, work, profile)
    await server.shutdown()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50_000, help="messages of each work")
    parser.add_argument("--profile", action="store_true", help="what the loop did, by function (and slower)")
    options = parser.parse_args()
    profile = cProfile.Profile() if options.profile else None
    with tempfile.TemporaryDirectory() as path, asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run(options.count, path, profile))
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)


if __name__ == "__main__":
    main()
