"""A wheel and a source archive in an empty environment: what they bring, and what a first start takes. `make test-slow` runs it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import time
import venv
import zipfile
from email import message_from_bytes
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
SIZES = ["mappedFileSizeCommitLog=65536", "mappedFileSizeConsumeQueue=2000", "maxHashSlotNum=200", "maxIndexNum=800"]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet"]
LARGEST_MB = 130


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([*PIP, "wheel", "--no-build-isolation", "--no-deps", "-w", str(folder), str(ROOT)], check=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that holds the wheel and what it needs."""
    return install(wheel, tmp_path_factory.mktemp("environment"))


def install(package: Path, folder: Path) -> Path:
    """Make an environment, install the package and what it needs, and return the bin folder."""
    venv.create(folder, with_pip=False)
    subprocess.run([*PIP, "--python", str(folder / "bin" / "python"), "install", str(package)], check=True)
    return folder / "bin"


def make_store(bin_folder: Path, home: Path) -> float:
    """Put one message into the new store ``h`` and return how long that takes (s)."""
    (home / "in.jsonl").write_text('{"topic": "t", "body": "b"}\n')
    settings = [word for size in SIZES for word in ("--set", size)]
    return run([bin_folder / "gantrymq", "store", "ingest", "h", "in.jsonl", *settings], home)[1]


def run(command: list[str | Path], home: Path) -> tuple[str, float]:
    """What a command says on a machine where nothing of ours ever ran, and how long it takes (s)."""
    started = time.perf_counter()
    done = subprocess.run(
        command, env={"HOME": str(home), "PATH": os.defpath}, cwd=home, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout, time.perf_counter() - started


def test_wheel_is_for_one_platform_and_any_python(wheel: Path) -> None:
    assert "-py3-none-" in wheel.name
    assert not wheel.name.endswith("-any.whl")


def test_embedded_broker_starts_and_nothing_is_compiled(installed: Path, tmp_path: Path) -> None:
    said, took_s = run([installed / "python", "-c", USE], tmp_path)
    print(f"first embedded broker: {took_s:.2f} s")
    assert said == "SendStatus.SEND_OK\n[]\n"
    assert list(tmp_path.iterdir()) == []


def test_command_without_extras_works(installed: Path, tmp_path: Path) -> None:
    print(f"first command: {make_store(installed, tmp_path):.2f} s")
    said, _ = run([installed / "gantrymq", "store", "verify", "h", "--json"], tmp_path)
    assert said


def test_installed_package_is_below_size_limit(installed: Path) -> None:
    (packages,) = installed.parent.glob("lib/python*/site-packages")
    size_mb = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file()) / 1e6
    print(f"installed: {size_mb:.1f} MB")
    assert size_mb <= LARGEST_MB


def test_package_description_has_only_absolute_links(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    assert metadata["Description-Content-Type"] == "text/markdown"
    description = str(metadata.get_payload())
    assert "`docs/runbook.md`" in description
    assert re.findall(r"\]\((?!https?://)[^)]*\)", description) == []


@pytest.fixture(scope="module")
def source_archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (found,) = folder.iterdir()
    return found


def test_source_archive_holds_package_and_its_documents(source_archive: Path) -> None:
    with tarfile.open(source_archive) as archive:
        names = [name.split("/")[1] for name in archive.getnames()]
    assert set(names) == {
        *("src", "docs", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"),
        *("pyproject.toml", "hatch_build.py", ".gitignore", "PKG-INFO"),
    }


def test_source_archive_installs_and_runs_without_numba(source_archive: Path, tmp_path: Path) -> None:
    """pip builds it in an environment of its own, with the build requirements alone."""
    bin_folder = install(source_archive, tmp_path / "environment")
    home = tmp_path / "home"
    home.mkdir()
    make_store(bin_folder, home)
    said, _ = run([bin_folder / "gantrymq", "store", "info", "h", "--json"], home)
    assert json.loads(said)["topics"] == 1
    assert list((tmp_path / "environment").glob("lib/python*/site-packages/numba")) == []
    assert sorted(path.name for path in home.iterdir()) == ["h", "in.jsonl"], "something was compiled into the home"
