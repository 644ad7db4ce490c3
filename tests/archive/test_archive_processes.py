"""The archiver as a process: beside a broker that takes messages, killed at any moment, and on an object store."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from archive_cases import copy_of, damage, findings, wrong_files
from gantrymq import EmbeddedBroker, Message, Producer
from gantrymq.store.reader import StoreReader
from golden_stores import unpack
from s3_server import s3_server

pytestmark = pytest.mark.slow

SMALL = {"mappedFileSizeCommitLog": "65536", "maxHashSlotNum": "100", "maxIndexNum": "400"}


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "gantrymq", "archive", *map(str, words), "--json"]


def run(*words: object) -> list[dict[str, Any]]:
    done = subprocess.run(command(*words), capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@contextmanager
def sends(broker: EmbeddedBroker, pause_s: float) -> Iterator[list[bytes]]:
    """Send numbered messages in a thread meanwhile. Yields those that were acknowledged."""
    sent: list[bytes] = []
    stopped = threading.Event()

    def send() -> None:
        with Producer(broker.namesrv) as producer:
            while not stopped.wait(pause_s):
                body = b"%08d" % len(sent) + b"x" * 2000
                producer.send(Message("T", body, keys=[f"key-{len(sent)}"]))
                sent.append(body)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        stopped.set()
        thread.join()


def bodies(store: Path) -> set[bytes]:
    with StoreReader.open(store) as reader:
        return {message.body for message in reader.messages("T")}


def end_of_log(store: Path) -> int:
    with StoreReader.open(store) as reader:
        return reader.max_phy_offset


def test_archiver_killed_beside_a_broker_leaves_a_store_and_loses_no_whole_file(
    tmp_path: Path, rng: random.Random
) -> None:
    store, archive = tmp_path / "store", tmp_path / "archive"
    with EmbeddedBroker(store, settings=SMALL) as broker, sends(broker, 0.001):
        before: set[bytes] = set()
        for _ in range(12):
            process = subprocess.Popen(
                command(store, archive, "--every", "50ms"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            time.sleep(rng.uniform(0.6, 2.0))
            process.send_signal(signal.SIGKILL)
            process.wait()
            if (archive / "commitlog").exists():
                copy = copy_of(archive, tmp_path / "copy")
                assert damage(copy) == []
                assert before <= bodies(copy)
                before = bodies(copy)
        whole = end_of_log(store) // 65536 * 65536
        summary = run(store, archive)[-1]
        assert summary["maxOffset"] >= whole
        assert (findings(copy_of(archive, tmp_path / "copy")), wrong_files(archive)) == ([], [])
        run("restore", archive, tmp_path / "restored")
        assert findings(tmp_path / "restored") == []
    with StoreReader.open(store) as reader:
        expected = {message.body for message in reader.messages("T") if message.phy_offset < summary["maxOffset"]}
    assert bodies(archive) == expected


def test_archiver_that_follows_a_broker_ends_with_its_summary_at_sigterm(tmp_path: Path) -> None:
    store, archive = tmp_path / "store", tmp_path / "archive"
    with EmbeddedBroker(store, settings=SMALL) as broker, sends(broker, 0.001):
        process = subprocess.Popen(command(store, archive, "--every", "100ms"), stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        files = 0
        for line in process.stdout:
            told = json.loads(line)
            files = told["files"]
            if files > 8 and told["kind"] == "progress":
                process.terminate()
                break
        rest = [json.loads(line) for line in process.stdout]
        assert (process.wait(), rest[-1]["kind"]) == (0, "summary")
        assert rest[-1]["files"] >= files
        process.stdout.close()
    assert findings(archive) == []


def test_archive_on_s3_after_sigkills_is_restored_whole(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, key = unpack("direct-mixed", tmp_path) / "store", tmp_path / "key"
    key.write_text("k" * 32)
    uri, signed = "s3://backup/broker-a", ("--sign-key", key)
    (tmp_path / "s3").mkdir()
    with s3_server(tmp_path / "s3", "backup") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        for _ in range(5):
            process = subprocess.Popen(
                command(store, uri, *signed), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ}
            )
            time.sleep(rng.uniform(0.8, 2.5))
            process.kill()
            process.wait()
        summary = run(store, uri, *signed)[-1]
        assert (summary["files"], summary["minOffset"]) == (17, 0)
        assert run("check", uri, *signed)[-1]["findings"] == 0
        run("restore", uri, tmp_path / "restored", *signed)
        assert findings(tmp_path / "restored") == []
        refused = subprocess.run(command(store, "s3://missing/x"), capture_output=True, text=True, check=False)
        assert (refused.returncode, refused.stderr.count("\n")) == (3, 1), refused.stderr
    refused = subprocess.run(command(store, uri, *signed), capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stderr.count("\n")) == (3, 1), refused.stderr


def test_one_of_two_archivers_on_s3_ends_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, uri = unpack("direct-mixed", tmp_path) / "store", "s3://backup/two"
    (tmp_path / "s3").mkdir()
    with s3_server(tmp_path / "s3", "backup") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        both = [subprocess.Popen(command(store, uri), **pipes) for _ in range(2)]
        for process, errors in [(process, process.communicate()[1]) for process in both]:
            assert process.returncode == 0 or (process.returncode == 3 and errors.count("\n") == 1), errors
        run(store, uri)
        assert run("check", uri)[-1]["findings"] == 0
        run("restore", uri, tmp_path / "restored")
        assert findings(tmp_path / "restored") == []
