"""The basic paths of RocketMQ's Go client against ours: a program of it (interop/go) says what came of each."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from gantrymq import EmbeddedBroker

from .java import INTEROP, Line

GO = shutil.which("go")
MINUTE_S = 60
NUMBERS = range(10)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, built; Go's own proxy settings say where the client comes from."""
    assert GO is not None
    built = tmp_path_factory.mktemp("go") / "interop-go"
    words = [GO, "build", "-o", str(built), "."]
    done = subprocess.run(words, check=False, cwd=INTEROP / "go", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return built


@pytest.mark.slow
@pytest.mark.skipif(GO is None, reason="no go on this machine")
def test_go_client_receives_sent_messages(program: Path) -> None:
    with EmbeddedBroker() as broker:
        words = [str(program), broker.namesrv, broker.address]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=5 * MINUTE_S)
    assert done.returncode == 0, done.stderr
    facts: Line = json.loads(done.stdout)
    assert facts == {
        "topics": [True, True, False],  # the third was deleted
        "queues": 4,
        "answered": 10,
        "batch": True,
        "consumed": bodies("async", "batch", "oneway", "sync"),
        "tagged": bodies("async", "batch"),
        "retried": sorted(2 * bodies("sync")),
        "order": {str(shard): [f"n-{number:02}" for number in range(shard, 40, 4)] for shard in range(4)},
    }


def bodies(*tags: str) -> list[str]:
    return [f"{tag}-{number:02}" for tag in tags for number in NUMBERS]
