"""``gantrymq broker`` as a slave: announced without a master, and the same log as its master after SIGKILL of each."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_cases import Run
from test_cli_servers import serving

from gantrymq import AdminClient, Message, Producer
from gantrymq.errors import GantrymqError

FILE = ("--set", f"mappedFileSizeCommitLog={1 << 20}", "--set", "maxHashSlotNum=1000", "--set", "maxIndexNum=4000")
SLAVE = ("--set", "brokerRole=SLAVE", "--set", "brokerId=1")
SYNC = ("--set", "brokerRole=SYNC_MASTER", "--set", "inSyncReplicas=2", "--set", "slaveTimeout=1000")
WAIT_S = 60


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, "this takes too long"
        time.sleep(0.05)


def test_slave_is_ready_without_master_and_shows_it(gantrymq: Run, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerRole=SLAVE\nbrokerId=1\nmappedFileSizeCommitLog=1048576\nlistenPort=0\n")
    with (
        serving("namesrv", "--listen-port", 0, env={**os.environ, "HOME": str(tmp_path)}) as (names, _),
        serving("broker", "-c", conf, "-n", names["namesrv"], "--store", tmp_path / "slave") as (ready, _),
    ):
        assert ready["ready"] is True

        def line() -> dict[str, object]:
            shown = gantrymq("admin", "ha", "-n", names["namesrv"], "-b", ready["broker"], "--json")
            return dict(json.loads(shown.out.splitlines()[0]))

        until(lambda: line()["state"] != "connecting")  # it asks the name server first
        assert (line()["master"], line()["state"]) == (False, "no master")


def log_of(store: Path) -> dict[str, bytes]:
    files = {file.name: file.read_bytes() for file in sorted((store / "commitlog").iterdir())}
    return {name: raw for name, raw in files.items() if raw[:8] != bytes(8)}


@contextmanager
def sending(namesrv: str) -> Iterator[list[str]]:
    """Send until the end; a send that fails is tried again. Yields the ids of what was acknowledged by both."""
    acknowledged: list[str] = []
    is_over = threading.Event()

    def send() -> None:
        with Producer(namesrv) as producer:
            while not is_over.is_set():
                try:
                    result = producer.send(Message("T", os.urandom(5_000)))
                except GantrymqError:
                    time.sleep(0.2)
                    continue
                if result.status.value == "SEND_OK":
                    acknowledged.append(result.msg_id)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield acknowledged
    finally:
        is_over.set()
        thread.join(WAIT_S)


@pytest.mark.slow
def test_slave_of_ours_has_its_masters_log_after_sigkill_of_each_side(tmp_path: Path) -> None:
    with serving("namesrv", "--listen-port", 0, env={**os.environ, "HOME": str(tmp_path)}) as (names, _):
        address = names["namesrv"]

        @contextmanager
        def side(name: str, *options: str) -> Iterator[None]:
            words = ("broker", "-n", address, "--store", tmp_path / name, "--listen-port", 0, *FILE, *options)
            with serving(*words):
                yield

        with sending(address) as sent:

            def grows() -> None:
                before = len(sent)
                until(lambda: len(sent) > before + 100)

            with side("master", *SYNC):
                with AdminClient(address) as admin:
                    admin.create_topic("T")
                with side("slave", *SLAVE):
                    grows()
                with side("slave", *SLAVE):
                    grows()
            with side("slave", *SLAVE):
                with side("master", *SYNC):
                    grows()
                with side("master", *SYNC):
                    grows()
            time.sleep(0.5)
        with side("master", *SYNC), side("slave", *SLAVE):
            until(lambda: log_of(tmp_path / "master") == log_of(tmp_path / "slave"))
    assert len(sent) > 400
    assert len(log_of(tmp_path / "slave")) > 2
