"""The real name server and broker as a process: started, asked by the real client, killed, started again.

with JavaCluster(tmp_path / "store") as cluster:
    cluster.send([{"topic": "T", "body": "hello"}])
    cluster.pull("T")
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from gantrymq import PullClient
from gantrymq.client.requests.send_result import SendResult
from gantrymq.errors import MQClientError
from gantrymq.model.message_queue import MessageQueue

from .fixed_ports import fixed_port
from .java import JavaError, Line, Setting, java_words, run_java, setting_text, slow_down_idle_loop

READY_SECONDS = 90
FOR_TESTS: dict[str, Setting] = {
    "mappedFileSizeCommitLog": 64 << 20,
    "mappedFileSizeConsumeQueue": 60_000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 40_000,
    # Unless these are set, a machine with other work to do answers SYSTEM_BUSY.
    "waitTimeMillsInSendQueue": 60_000,
    "osPageCacheBusyTimeOutMills": 60_000,
}
# Unless it is told otherwise, a broker spends its first ten seconds in a loop that takes all of a processor:
# TransactionMetricsFlushService waits for its interval that way.
# And nobody waits five seconds for the file of offsets.
SPARING: dict[str, Setting] = {"transactionMetricFlushInterval": 500, "flushConsumerOffsetInterval": 500}


def await_dispatch(namesrv: str, results: Iterable[SendResult]) -> None:
    """Return when what was sent can be read: the real broker acknowledges before it dispatches."""
    await_ends(namesrv, [(one.queue, one.queue_offset + len(one.msg_id.split(","))) for one in results])


def await_ends(namesrv: str, ends: Iterable[tuple[MessageQueue, int]]) -> None:
    """Return when each queue ends there or behind, as its broker says; fails after ``READY_SECONDS``."""
    wanted: dict[MessageQueue, int] = {}
    for queue, end in ends:
        wanted[queue] = max(end, wanted.get(queue, 0))
    deadline = time.monotonic() + READY_SECONDS
    with PullClient(namesrv) as client:
        for queue, end in wanted.items():
            while (there := max_offset(client, queue)) < end:
                assert time.monotonic() < deadline, f"{queue} ends at {there}, not at {end}"
                time.sleep(0.01)


def max_offset(client: PullClient, queue: MessageQueue) -> int:
    """Where a queue ends; -1 while its topic has no route yet."""
    try:
        return client.max_offset(queue)
    except MQClientError:
        return -1


class JavaCluster:
    """A name server and a broker named broker-a, on free ports of 127.0.0.1.

    ``settings`` are keys of the broker and its store, ``auth`` those of RocketMQ's AuthConfig. ``namesrv``, an address,
    registers the broker there and starts no name server; ``broker=False`` starts no broker. ``namesrv_port`` is for who
    must know it before. ``of`` is a release of RocketMQ; None is this run's.
    """

    def __init__(
        self,
        store: Path | None,
        settings: Mapping[str, Setting] | None = None,
        *,
        auth: Mapping[str, str] | None = None,
        namesrv: str | None = None,
        broker: bool = True,
        namesrv_port: int = 0,
        of: str | None = None,
    ) -> None:
        self._settings, self._auth = FOR_TESTS | SPARING | dict(settings or {}), dict(auth or {})
        self.store, self._external, self._has_broker, self._release = store, namesrv, broker, of
        self._process: subprocess.Popen[str] | None = None
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115  (it lives as long as this)
        self._home = tempfile.TemporaryDirectory(prefix="gantrymq-cluster-", ignore_cleanup_errors=True)
        self.namesrv = self.broker = ""
        self._namesrv_port, self._listen_port = namesrv_port or fixed_port(), fixed_port()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *unused: object) -> None:
        self._leave()

    def start(self) -> None:
        """Start, on the ports of the last time if there was one, and wait until the broker's route answers."""
        memory = ("-Xmx512m", "-XX:MaxDirectMemorySize=512m")
        words = java_words("cluster", *memory, f"-Djava.io.tmpdir={self._home.name}", of=self._release)
        words += self._words()
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.kill()
            self._log.seek(0)
            raise JavaError("the real broker did not start\n" + "".join(self._log.readlines()[-40:]))
        ready = json.loads(line)
        slow_down_idle_loop(self._process)
        self.namesrv, self.broker = ready["namesrv"], ready.get("broker", "")

    def stop(self) -> None:
        """Shut down cleanly."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._reap()

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def send(self, messages: Iterable[Line | list[Line]], *, binary: bool = False, **options: Any) -> list[Line]:
        """What the real producer says to each message, or to a list of them: one batch; they can be read then.

        Options: compression (ZLIB, LZ4, ZSTD), compress_over.
        """
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.writelines(json.dumps(message) + "\n" for message in messages)
            file.flush()
            sent = run_java("send", None, file.name, namesrv=self.namesrv, binary=binary, **options)
        brokers = [one.pop("brokerName", "") for one in sent]
        if "access_key" not in options:
            await_ends(
                self.namesrv,
                [
                    (
                        MessageQueue(one["topic"], broker, one["queueId"]),
                        one["queueOffset"] + len(one["msgId"].split(",")),
                    )
                    for one, broker in zip(sent, brokers, strict=True)
                ],
            )
        return sent

    def pull(self, topic: str, count: int | None = None, *, binary: bool = False) -> list[Line]:
        """What the real consumer gets of a topic, queue by queue; it waits until ``count`` came, or for silence."""
        return run_java("pull", None, namesrv=self.namesrv, topic=topic, count=count, binary=binary)

    def _leave(self) -> None:
        """End it the quick way (a clean shutdown takes seconds): what it leaves behind is taken away here."""
        self.kill()
        self._log.close()
        self._home.cleanup()

    def _words(self) -> list[str]:
        words = []
        if self._has_broker:
            words += ["--store", str(self.store)]
            for key, value in self._settings.items():
                words += ["--set", f"{key}={setting_text(value)}"]
            for name, text in self._auth.items():
                words += ["--auth", f"{name}={text}"]
        else:
            words.append("--no-broker")
        if self._external is not None:
            words += ["--namesrv", self._external]
        else:
            words += ["--namesrv-port", str(self._namesrv_port)]
        return [*words, "--listen-port", str(self._listen_port)]

    def _reap(self) -> None:
        assert self._process is not None
        try:
            self._process.wait(READY_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None
