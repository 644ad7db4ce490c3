"""The basic paths of RocketMQ's C++ client, under its Python face, against ours: programs of interop/cpp say what came.

librocketmq.so is in no Debian package that a registry has; two packages of PyPI carry one (interop/cpp/clients.lock).
"""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gantrymq import EmbeddedBroker

from .java import INTEROP, Setting

PROGRAMS = INTEROP / "cpp"
LOCK = PROGRAMS / "clients.lock"
CACHE = INTEROP.parent / ".cache" / "cpp-client"
MACHINE = sys.platform, platform.machine()
MINUTE_S = 60
EACH = 10
SETTINGS: dict[str, Setting] = {"messageDelayLevel": "1s 2s " + " ".join(["1s"] * 16)}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="librocketmq.so is for others"
    ),
]


@pytest.fixture(scope="module")
def client_2() -> Path:
    """rocketmq-client-python 2.0.0 with a librocketmq.so 2.x beside it."""
    client, library = installed("rocketmq-client-python"), installed("rocketmq-python-cvs")
    beside = client / "rocketmq" / "librocketmq.so"
    if not beside.exists():
        beside.symlink_to(library / "rocketmq" / "librocketmq.so")
    return client


@pytest.fixture(scope="module")
def client_1() -> Path:
    """Its forerunner, over librocketmq 1.x."""
    return installed("rocketmq")


def installed(package: str) -> Path:
    """A folder with this package of the lock alone; pip has checked its hash."""
    folder = CACHE / package
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        lines = LOCK.read_text().splitlines()
        first = next(number for number, line in enumerate(lines) if line.startswith(f"{package}=="))
        wanted = CACHE / f"{package}.txt"
        wanted.write_text("\n".join(lines[first : first + 2]))
        words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
        words += ["--require-hashes", "--requirement", str(wanted), "--target", str(folder)]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return folder


def play(program: str, client: Path, *words: str, home: Path) -> Any:
    """The facts a program found; its logs go where the test's files go."""
    environment = os.environ | {"PYTHONPATH": str(client), "HOME": str(home)}
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / program), *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=5 * MINUTE_S,
        env=environment,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout.splitlines()[-1])


def facts_2() -> dict[str, Any]:
    big = ["big-" + "x" * 16, 20_004, "big", "key-big-" + "x" * 16, "cpp", 0]
    small = [[body, len(body), way, f"key-{body}", "cpp", 0] for way in ("oneway", "sync") for body in bodies(way)]
    return {
        "answered": 10 + 1 + 40 + 1,
        "consumed": [big, *small],
        "tagged": bodies("sync"),
        "retried": [["sync-03", 0], ["sync-03", 1]],
        "order": {str(shard): [f"{shard}-{number:02}" for number in range(shard, 40, 4)] for shard in range(4)},
        "late": ["late"],
    }


def test_cpp_client_2_receives_sent_messages(client_2: Path, tmp_path: Path) -> None:
    with EmbeddedBroker(settings=SETTINGS) as broker:
        assert play("client_2.py", client_2, broker.namesrv, home=tmp_path) == facts_2()


def test_cpp_client_2_signature_is_accepted(client_2: Path, tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(
        "accounts:\n"
        "- accessKey: cppClient\n  secretKey: 12345678\n  admin: false\n"
        "  defaultTopicPerm: PUB|SUB\n  defaultGroupPerm: PUB|SUB\n"
    )
    settings = SETTINGS | {"aclEnable": True, "aclPlainFile": str(file)}
    with EmbeddedBroker(settings=settings) as broker:
        assert play("client_2.py", client_2, broker.namesrv, "cppClient", "12345678", home=tmp_path) == facts_2()


def test_cpp_client_1_receives_sent_messages(client_1: Path, tmp_path: Path) -> None:
    """Its batches too: it writes ``batch`` as 1, which the real broker reads as false and stores as one message."""
    with EmbeddedBroker(settings=SETTINGS) as broker:
        facts = play("client_1.py", client_1, broker.namesrv, home=tmp_path)
        stored = [[one.body.decode(), one.tags, one.queue_id, one.queue_offset] for one in broker.messages("cpp-older")]
    ways = ["async", "batch", "oneway", "orderly", "sync"]
    everything = sorted(body for way in ways for body in bodies(way))
    assert facts["called"] == [True] * EACH
    assert facts["pulled"] == stored
    assert sorted(body for body, *_ in facts["pulled"]) == everything
    in_order = [body for body, *_ in facts["pushed"]["True"] if body.startswith("orderly")]
    assert [body for body in in_order if int(body[-2:]) % 2 == 0] == bodies("orderly")[::2]
    assert [body for body in in_order if int(body[-2:]) % 2 == 1] == bodies("orderly")[1::2]
    for pushed in facts["pushed"].values():
        assert sorted(pushed) == [[body, f"key-{body}"] for body in everything]


def bodies(way: str) -> list[str]:
    return [f"{way}-{number:02}" for number in range(EACH)]
