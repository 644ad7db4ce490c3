"""Our broker as a process of its own: started, killed, started again on the same port.

with OurBroker(tmp_path / "store", {"brokerName": "broker-a"}, namesrv=cluster.namesrv) as broker: ...
"""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Self

from gantrymq.broker.server import BrokerServer
from gantrymq.config.broker_settings import BrokerConfig, LiveConfig
from gantrymq.config.settings import MessageStoreConfig

from .fixed_ports import fixed_port
from .java import Setting, setting_text
from .java_cluster import FOR_TESTS

READY_SECONDS = 60


class OurBroker:
    """A broker on 127.0.0.1 that registers at ``namesrv``; ``settings`` are RocketMQ's keys."""

    def __init__(self, store: Path, settings: Mapping[str, Setting] | None = None, *, namesrv: str) -> None:
        entries = FOR_TESTS | {"namesrvAddr": namesrv, "listenPort": fixed_port()} | dict(settings or {})
        self._entries = {key: setting_text(value) for key, value in entries.items()}
        self._store = store
        self._process: subprocess.Popen[str] | None = None
        self.address = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start, each time on the same port, and wait until it is registered."""
        words = [sys.executable, "-m", "tests.interop.our_broker", str(self._store), json.dumps(self._entries)]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        if not self.address:
            self.kill()
            raise RuntimeError("our broker did not start")

    def stop(self) -> None:
        """Shut down cleanly."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        process.wait(READY_SECONDS)
        assert process.stdout is not None
        process.stdout.close()


async def _serve(store: Path, entries: dict[str, str]) -> None:
    live = LiveConfig(BrokerConfig(), replace(MessageStoreConfig()))
    live.update(entries)
    server = BrokerServer(store, live)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await server.start()
    print(server.address, flush=True)
    await stop.wait()
    await server.shutdown()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), json.loads(sys.argv[2])))
