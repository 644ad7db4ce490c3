"""A real disk of a few megabytes, filled to its last byte: an error, never a signal, and nothing acknowledged is lost.

The disk is an image with ext4 where this machine lets us mount one; what needs no reader runs on a tmpfs as well.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gantrymq.errors import DiskFullError
from gantrymq.fs.real import RealFileSystem
from gantrymq.store.checkpoint import StoreCheckpoint
from gantrymq.store.config_files import ConfigFile
from gantrymq.store.paths import StorePaths

GANTRYMQ = str(Path(sys.executable).with_name("gantrymq"))
LOG = "mappedFileSizeCommitLog=65536"
SMALL_INDEX = ("maxHashSlotNum=500", "maxIndexNum=2000")
DEFAULT_INDEX = ()  # 420 MB, on a disk of six


def done(*words: str | Path) -> bool:
    """Whether a program of the system could be run to a good end."""
    return subprocess.run(words, capture_output=True, timeout=60, check=False).returncode == 0


@pytest.fixture(params=["image", "tmpfs"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Where a disk of six megabytes is mounted."""
    here = tmp_path / "disk"
    here.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk")
    if request.param == "tmpfs":
        mounted = done("mount", "-t", "tmpfs", "-o", "size=6m", "gantrymq-test", here)
    else:
        if shutil.which("mkfs.ext4") is None:
            pytest.skip("mkfs.ext4 is not installed here")
        image = tmp_path / "image"
        image.touch()
        os.truncate(image, 8 << 20)
        mounted = done("mkfs.ext4", "-q", "-F", "-m", "0", image) and done("mount", "-o", "loop", image, here)
    if not mounted:
        pytest.skip(f"this machine does not let us mount a disk ({request.param})")
    yield here
    done("umount", "-l", here)


def run(*words: str | Path, stdin: str = "", codes: tuple[int, ...]) -> tuple[int, list[dict[str, Any]], list[str]]:
    """(exit code, JSON lines, lines on stderr) of one command."""
    ended = subprocess.run(
        [GANTRYMQ, "store", *map(str, words), "--json"],
        input=stdin, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode in codes, (ended.returncode, ended.stderr[-2000:])
    return ended.returncode, [json.loads(line) for line in ended.stdout.splitlines()], ended.stderr.splitlines()


def settings(*pairs: str) -> list[str]:
    return [word for pair in pairs for word in ("--set", pair)]


def lines_of(first: int, count: int) -> str:
    return "".join(
        json.dumps({"topic": "orders", "queueId": n % 4, "body": f"{n:0200}", "keys": [f"key-{n}"]}) + "\n"
        for n in range(first, first + count)
    )


def places(lines: list[dict[str, Any]]) -> set[tuple[int, int, int]]:
    """(queue, queue offset, physical offset) of what was acknowledged, or of what was dumped."""
    return {
        (line["queueId"], line["queueOffset"], line["phyOffset"])
        for line in lines
        if line.get("status") == "PUT_OK" or line.get("kind") == "message"
    }


def fill_up(disk: Path) -> None:
    """Take what is left, to the last byte."""
    with (disk / "filler").open("wb", buffering=0) as filler:
        for size in (1 << 16, 4096, 1):
            with suppress(OSError):
                while filler.write(bytes(size)):
                    pass


def full_disk_line(said: list[str]) -> None:
    assert len(said) == 1, said
    assert said[0].startswith("gantrymq: ")
    assert "no room on the disk" in said[0]


@pytest.mark.parametrize(
    ("index", "flush"),
    [
        pytest.param(SMALL_INDEX, "ASYNC_FLUSH", id="small-index-ASYNC_FLUSH", marks=pytest.mark.slow),
        pytest.param(DEFAULT_INDEX, "SYNC_FLUSH", id="default-index-SYNC_FLUSH"),
        pytest.param(SMALL_INDEX, "SYNC_FLUSH", id="small-index-SYNC_FLUSH", marks=pytest.mark.slow),
        pytest.param(DEFAULT_INDEX, "ASYNC_FLUSH", id="default-index-ASYNC_FLUSH", marks=pytest.mark.slow),
    ],
)
def test_full_disk_loses_nothing_and_puts_resume_with_space(
    request: pytest.FixtureRequest, disk: Path, index: tuple[str, ...], flush: str
) -> None:
    if request.node.callspec.params["disk"] == "tmpfs":
        pytest.skip("reading a hole through a mapping takes a page of a tmpfs: a full one cannot be read safely")
    store, keys = disk / "store", settings(LOG, f"flushDiskType={flush}", *index)
    _, acknowledged, said = run("ingest", store, *keys, stdin=lines_of(0, 40_000), codes=(3,))
    full_disk_line(said)
    assert len(acknowledged) > 1_000
    fill_up(disk)

    _, dumped, _ = run("dump", store, *keys, codes=(0,))
    assert places(acknowledged) <= places(dumped)
    run("info", store, *keys, codes=(0,))
    code, _, said = run("recover", store, *keys, codes=(0, 3))
    if code:
        full_disk_line(said)
    _, more, said = run("ingest", store, *keys, stdin=lines_of(40_000, 2_000), codes=(3,))
    full_disk_line(said)
    _, again, _ = run("dump", store, *keys, codes=(0,))
    assert places(acknowledged) | places(more) <= places(again)
    assert places(dumped) <= places(again)

    (disk / "filler").unlink()
    shutil.rmtree(store / "index", ignore_errors=True)
    _, after, said = run("ingest", store, *keys, stdin=lines_of(50_000, 20), codes=(0, 3))
    assert len(places(after)) == 20, said
    _, last, _ = run("dump", store, *keys, codes=(0,))
    assert (places(again) | places(after)) - places(last) == set()
    assert places(last) - places(again) - places(after) == set()


def test_open_on_full_disk_raises_clear_error(disk: Path) -> None:
    fill_up(disk)
    full_disk_line(run("ingest", disk / "store", *settings(LOG), stdin=lines_of(0, 1), codes=(3,))[2])


def test_config_and_checkpoint_keep_their_content_on_full_disk(disk: Path) -> None:
    fs, paths = RealFileSystem(), StorePaths(disk)
    file, checkpoint = ConfigFile(fs, paths.config / "topics.json"), StoreCheckpoint(fs, paths.checkpoint)
    file.save({"old": 1})
    checkpoint.page.physic_msg_timestamp_ms = 7
    checkpoint.flush()
    fill_up(disk)
    with pytest.raises(DiskFullError):
        file.save({"new": "x" * 100_000})
    assert file.load() == {"old": 1}
    assert [path.name for path in paths.config.iterdir()] == ["topics.json"]
    checkpoint.page.physic_msg_timestamp_ms = 8
    checkpoint.flush()
    assert StoreCheckpoint(fs, paths.checkpoint).page.physic_msg_timestamp_ms == 8
