"""An exporter for a program without an event loop: the loop runs on a thread of its own.

Thread rule: :class:`BackgroundExporter` belongs to one thread. The function that collects is called on another one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from gantrymq.config.exporter_settings import ExporterConfig
from gantrymq.logs import get_logger
from gantrymq.metrics.exporter import MetricsExporter
from gantrymq.metrics.instruments import Family

log = get_logger("gantrymq.metrics")

_CLOSE_S = 10


class BackgroundExporter:
    """Exports what ``families`` returns, under the labels ``node``, from its construction until :meth:`close`.

    Raises RemotingError if the port is taken, ConfigError if a package or the target is missing.
    """

    def __init__(
        self, config: ExporterConfig, families: Callable[[], Sequence[Family]], node: Mapping[str, str]
    ) -> None:
        async def collect() -> Sequence[Family]:
            return families()

        self._exporter = MetricsExporter(lambda: config, collect, node)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="metrics", daemon=True)
        self._thread.start()
        try:
            self._run(self._start("127.0.0.1"))
        except BaseException:
            self._end()
            raise
        self.address = self._exporter.address

    async def _start(self, host: str) -> None:
        self._exporter.bind(host)
        self._exporter.start()

    def close(self) -> None:
        """Export a last time, and release the port. A collector that does not answer is waited for 10 s."""
        try:
            self._run(self._exporter.close())
        except TimeoutError:
            log.warning("the last metrics were not exported in time", timeout_s=_CLOSE_S)
        finally:
            self._end()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_CLOSE_S)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_S)
        if not self._thread.is_alive():
            self._loop.close()
