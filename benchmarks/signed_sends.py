"""What users and policies add to the CPU time of a send, in one run, without sockets.

    python -m benchmarks.signed_sends [--count 40000] [--rounds 20] [--profile]

Three brokers in this process get the same signed sends of 1 KiB in turns: one without users, one with
authenticationEnabled, one with authorizationEnabled, too. The user is no super user and has Pub on the topic. For reads
of 1, 16 and 64 sends it prints the CPU time per message of all threads, and the median over the rounds of what it is
more than without users.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

from benchmarks.broker_loop import Nowhere, feed, send
from gantrymq.auth.directory import NO_USERS
from gantrymq.auth.files import AccessFiles
from gantrymq.auth.policies import Policy, PolicyType, parse_entry
from gantrymq.auth.users import User
from gantrymq.broker.server import BrokerServer
from gantrymq.config.broker_settings import BrokerConfig, LiveConfig
from gantrymq.fs.real import RealFileSystem
from gantrymq.remoting.acl import SessionCredentials
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.server import new_event_loop
from gantrymq.remoting.transport.tls import TlsServer

SIGNER = SessionCredentials("producer", "the password of a producer")
KINDS = {
    "off": {},
    "authentication": {"authentication_enabled": True},
    "and authorization": {"authentication_enabled": True, "authorization_enabled": True},
}
SIZES = (1, 16, 64)


class Side:
    """A broker and a connection to it."""

    def __init__(self, server: BrokerServer) -> None:
        self._server, self._transport = server, Nowhere()
        self._channel = Channel(server.dispatcher, server=TlsServer(), find_runs=server.dispatcher.find_runs)
        self._channel.connection_made(self._transport)

    async def cpu_s(self, reads: Sequence[bytes], profile: cProfile.Profile | None) -> float:
        """The CPU time of all threads until every message is stored and dispatched."""
        before_s = time.process_time()
        if profile is not None:
            profile.enable()
        copies = (bytes(memoryview(data)) for data in reads)  # in the processor's cache, as a socket leaves them
        await feed(self._channel, self._transport, copies)
        if profile is not None:
            profile.disable()
        while self._server.store.dispatch_behind_bytes:
            await asyncio.sleep(0.001)
        return time.process_time() - before_s


async def start(stack: AsyncExitStack, path: Path, **settings: bool) -> Side:
    """A broker that knows the signer of the sends."""
    (path / "config").mkdir(parents=True)
    entry = parse_entry("Topic:bench", ["Pub"], [], "Allow")
    users = NO_USERS.create_user(User(SIGNER.access_key, SIGNER.secret_key), by_super=True)
    users = users.merge_acl(SIGNER.access_key, [Policy(PolicyType.CUSTOM, (entry,))])
    AccessFiles(RealFileSystem(), path / "config").save(users)
    config = BrokerConfig(
        listen_port=0, wait_time_in_send_queue_ms=10_000, os_page_cache_busy_timeout_ms=10_000, **settings
    )
    server = BrokerServer(str(path), LiveConfig(config))
    await server.start()
    stack.push_async_callback(server.shutdown)
    side = Side(server)
    await side.cpu_s([send(number, signer=SIGNER) for number in range(200)], None)
    return side


async def run(path: Path, count: int, rounds: int, profile: cProfile.Profile | None) -> None:
    """Measure all sizes of reads and print a line for each."""
    async with AsyncExitStack() as stack:
        sides = {name: await start(stack, path / str(i), **KINDS[name]) for i, name in enumerate(KINDS)}
        for size in SIZES:
            frames = [send(number, signer=SIGNER) for number in range(count // rounds // size * size)]
            reads = [b"".join(frames[i : i + size]) for i in range(0, len(frames), size)]
            times: dict[str, list[float]] = {name: [] for name in KINDS}
            names = [*KINDS]
            for number in range(rounds):
                for name in names[number % len(names) :] + names[: number % len(names)]:
                    measured = profile if name == names[-1] else None
                    times[name].append(await sides[name].cpu_s(reads, measured) / len(frames) * 1e6)
            parts = [f"off {median(times['off']):6.2f} µs"]
            for name in names[1:]:
                more = median(mine - off for mine, off in zip(times[name], times["off"], strict=True))
                parts.append(f"{name} {more:+6.2f} µs ({more / median(times['off']):+.1%})")
            print(f"{size:2} sends in a read: " + "   ".join(parts), flush=True)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=40_000, help="messages for each broker and size of read")
    parser.add_argument("--rounds", type=int, default=20, help="turns of each broker")
    parser.add_argument("--profile", action="store_true", help="what the third broker did, by function (and slower)")
    options = parser.parse_args()
    profile = cProfile.Profile() if options.profile else None
    with tempfile.TemporaryDirectory() as path, asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run(Path(path), options.count, options.rounds, profile))
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(40)


if __name__ == "__main__":
    main()
