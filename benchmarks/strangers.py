"""What ten thousand strangers cost a broker, and what a producer notices of them.

    python benchmarks/strangers.py [--connections 10000]

Half of them say nothing, half begin a frame and never end it. Sends go one after the other, before, during and after.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gantrymq import Message, Producer

SENDS = 300
HALF_A_FRAME = b"\0\0\1\0{"


def send_times_ms(namesrv: str) -> tuple[float, float]:
    """The median and the 99th percentile of a send."""
    took = []
    with Producer(namesrv) as producer:
        for _ in range(SENDS):
            began = time.perf_counter()
            producer.send(Message("bench", bytes(100)))
            took.append((time.perf_counter() - began) * 1e3)
    took.sort()
    return took[SENDS // 2], took[SENDS * 99 // 100]


def rss_mb(pid: int) -> float:
    """Resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


async def look(what: str, namesrv: str, pid: int) -> None:
    """Print a line."""
    median, slow = await asyncio.to_thread(send_times_ms, namesrv)
    print(f"{what:10} {rss_mb(pid):6.0f} MB   send p50 {median:6.2f} ms, p99 {slow:6.2f} ms", flush=True)


async def run(broker: str, namesrv: str, pid: int, connections: int) -> None:
    """Before, with all of them connected, and after."""
    host, _, port = broker.rpartition(":")
    await look("before", namesrv, pid)
    writers = []
    for number in range(connections):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(HALF_A_FRAME if number % 2 else b"")
        writers.append(writer)
    await asyncio.sleep(1)
    await look("with them", namesrv, pid)
    print(f"{sum(not writer.transport.is_closing() for writer in writers):,} of {connections:,} are connected")
    for writer in writers:
        writer.close()
    await asyncio.sleep(2)
    await look("after", namesrv, pid)


def main() -> None:
    """Start a broker, and look."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        words = ["serve", "--store", folder, "--namesrv-port", "0", "--listen-port", "0", "--json"]
        command = [str(Path(sys.executable).with_name("gantrymq")), *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
            assert serving.stdout is not None
            ready = json.loads(serving.stdout.readline())
            try:
                asyncio.run(run(ready["broker"], ready["namesrv"], serving.pid, options.connections))
            finally:
                serving.terminate()


if __name__ == "__main__":
    main()
