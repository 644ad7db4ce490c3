"""A wheel in an empty environment: what it brings, and what its first start takes. `make test-slow` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
ROOT = Path(__file__).parents[2]
USE = """
import sys
from gantrymq import EmbeddedBroker, Message, Producer
with EmbeddedBroker() as broker, Producer(broker.namesrv) as producer:
    print(producer.send(Message("orders", b"paid")).status)
print(sorted({"numba", "llvmlite", "pyarrow", "pandas"} & set(sys.modules)))
"""
LARGEST_MB = 130


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    options = ["--disable-pip-version-check", "--no-build-isolation", "--no-deps", "--quiet"]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, "-w", str(folder), str(ROOT)], check=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that holds the wheel and what it needs."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    options = ["--disable-pip-version-check", "--no-input", "--quiet"]
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), "install", *options, str(wheel)], check=True)
    return python.parent


def run(command: list[str | Path], home: Path) -> tuple[str, float]:
    """What a command says on a machine where nothing of ours ever ran, and how long it takes (s)."""
    started = time.perf_counter()
    done = subprocess.run(
        command, env={"HOME": str(home), "PATH": os.defpath}, cwd=home, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout, time.perf_counter() - started


def test_it_is_for_a_platform_and_any_python(wheel: Path) -> None:
    assert "-py3-none-" in wheel.name
    assert not wheel.name.endswith("-any.whl")


def test_an_embedded_broker_starts_and_nothing_is_compiled(installed: Path, tmp_path: Path) -> None:
    said, took_s = run([installed / "python", "-c", USE], tmp_path)
    print(f"first embedded broker: {took_s:.2f} s")
    assert said == "SendStatus.SEND_OK\n[]\n"
    assert list(tmp_path.iterdir()) == []


def test_the_command_works_without_extras(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"topic": "t", "body": "b"}\n')
    sizes = ["--set", "mappedFileSizeCommitLog=65536", "--set", "mappedFileSizeConsumeQueue=2000"]
    sizes += ["--set", "maxHashSlotNum=200", "--set", "maxIndexNum=800"]
    _, took_s = run([installed / "gantrymq", "store", "ingest", "h", "in.jsonl", *sizes], tmp_path)
    print(f"first command: {took_s:.2f} s")
    said, _ = run([installed / "gantrymq", "store", "verify", "h", "--json"], tmp_path)
    assert said


def test_an_install_is_small(installed: Path) -> None:
    (packages,) = installed.parent.glob("lib/python*/site-packages")
    size_mb = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file()) / 1e6
    print(f"installed: {size_mb:.1f} MB")
    assert size_mb <= LARGEST_MB
