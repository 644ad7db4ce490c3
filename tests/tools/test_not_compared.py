"""A tool that could not read what it compares with names the file, and does not end as if nothing were wrong."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from loss_cases import KnownStore

from bad_disk import Break, break_reads
from gantrymq.cli.main import exit_code
from gantrymq.format.index import HEADER_SIZE
from store_cases import SMALL_KEYS

SETTINGS = [f"--set={key}={value}" for key, value in SMALL_KEYS.items()]
CHECKPOINT = "checkpoint"
COMMANDS = ["salvage", "rebuild", "export"]
every_command = pytest.mark.parametrize("command", COMMANDS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> KnownStore:
    return KnownStore.make(tmp_path_factory.mktemp("whole") / "store")


@pytest.fixture
def store(whole: KnownStore, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole.path, tmp_path / "store"))


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Break:
    return break_reads(monkeypatch)


def run(command: str, store: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str]:
    """The exit code and what stdout has."""
    out = [] if command == "rebuild" else [str(store.with_name("out"))]
    kind = ["--format", "jsonl"] if command == "export" else []
    code = exit_code(["store", command, str(store), *out, *kind, *SETTINGS, *more])
    return code, capsys.readouterr().out


def compared(command: str, store: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, str]]:
    """The exit code, and path and reason of each file that was not compared."""
    code, text = run(command, store, capsys, "--json")
    return code, {one["path"]: one["reason"] for one in json.loads(text)["notCompared"]}


def first_queue_file(store: Path) -> Path:
    return min(path for path in (store / "consumequeue").rglob("*") if path.is_file())


def index_file(store: Path) -> Path:
    return max((store / "index").iterdir())


@every_command
def test_every_file_of_healthy_store_is_compared(command: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compared(command, store, capsys) == (0, {})


@pytest.mark.parametrize("more", [["--queues"], ["--index", "--set=maxHashSlotNum=70", "--set=maxIndexNum=300"]])
def test_rebuild_compares_old_index_with_geometry_of_its_files(
    more: list[str], store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = exit_code(["store", "rebuild", str(store), "--json", *more])
    assert (code, json.loads(capsys.readouterr().out)["notCompared"]) == (0, [])


@every_command
def test_garbage_checkpoint_is_named(command: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store / CHECKPOINT).write_bytes(b"\xdb" * 4096)
    code, reasons = compared(command, store, capsys)
    assert (code, list(reasons)) == (1, [CHECKPOINT])


@every_command
def test_truncated_checkpoint_is_named(command: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store / CHECKPOINT).write_bytes((store / CHECKPOINT).read_bytes()[:20])
    assert compared(command, store, capsys) == (1, {CHECKPOINT: "is 20 bytes long, not 4096"})


@every_command
@pytest.mark.parametrize("how", ["missing", "zeros"])
def test_zero_checkpoint_is_note(command: str, how: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store / CHECKPOINT).unlink() if how == "missing" else (store / CHECKPOINT).write_bytes(bytes(4096))
    code, reasons = compared(command, store, capsys)
    assert (code, list(reasons)) == (0, [CHECKPOINT])
    assert how in reasons[CHECKPOINT]


@pytest.mark.parametrize("command", ["salvage", "export"])
def test_unreadable_checkpoint_is_named(
    command: str, store: Path, spoil: Break, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(store / CHECKPOINT, 0, 4096)
    code, reasons = compared(command, store, capsys)
    assert (code, reasons) == (1, {CHECKPOINT: "Input/output error"})


@every_command
def test_unreadable_pages_of_queue_file_are_named(
    command: str, store: Path, spoil: Break, capsys: pytest.CaptureFixture[str]
) -> None:
    path = first_queue_file(store)
    spoil(path, 0, 64)
    code, reasons = compared(command, store, capsys)
    assert (code, list(reasons)) == (1, [str(path.relative_to(store))])
    assert "Input/output error" in reasons[str(path.relative_to(store))]


@every_command
def test_index_file_with_unreadable_header_is_named(
    command: str, store: Path, spoil: Break, capsys: pytest.CaptureFixture[str]
) -> None:
    path = index_file(store)
    spoil(path, 0, HEADER_SIZE)
    code, reasons = compared(command, store, capsys)
    assert (code, reasons) == (1, {str(path.relative_to(store)): "Input/output error"})


@every_command
def test_index_file_with_garbage_header_is_named(command: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = index_file(store)
    with path.open("r+b") as file:
        file.write(b"\xdb" * HEADER_SIZE)
    code, reasons = compared(command, store, capsys)
    assert (code, list(reasons)) == (1, [str(path.relative_to(store))])


def test_rebuild_with_unreadable_checkpoint_is_refused(
    store: Path, spoil: Break, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(store / CHECKPOINT, 0, 4096)
    code = exit_code(["store", "rebuild", str(store), *SETTINGS])
    assert code == 3
    assert "checkpoint: cannot be read at byte 0" in capsys.readouterr().err


@every_command
def test_people_read_which_file_was_not_compared(command: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store / CHECKPOINT).write_bytes(b"\xdb" * 4096)
    _, text = run(command, store, capsys)
    assert "not compared" in text
    assert "checkpoint: " in text


# Queue files over a whole log: nothing is lost, and what was not compared is named


def queue_files(store: Path) -> list[Path]:
    return sorted((store / "consumequeue/orders/1").iterdir())


def shifted(path: Path, by: int) -> None:
    raw = path.read_bytes()
    path.write_bytes((bytes(by) + raw)[: len(raw)] if by > 0 else (raw + bytes(-by))[-len(raw) :])


QUEUE_DAMAGE: dict[str, tuple[int, Callable[[Path], None], str]] = {
    "the first file is missing": (0, Path.unlink, "missing: offsets 0 to 19"),
    "a file in the middle is missing": (1, Path.unlink, "missing: offsets 20 to 39"),
    "the last file is missing": (-1, Path.unlink, "missing, or ends early: offsets 60 to 6"),
    "a file is cut": (1, lambda path: os.truncate(path, 130), "is 130 bytes long, not 400"),
    "the last file is cut": (-1, lambda path: os.truncate(path, 30), "is 30 bytes long, not 400"),
    "a file is empty": (1, lambda path: os.truncate(path, 0), "is 0 bytes long, not 400"),
    "a file of zeros": (1, lambda path: path.write_bytes(bytes(400)), "20 of its entries are empty or impossible"),
    "a file has moved by 7 bytes": (1, lambda path: shifted(path, 7), "of its entries are empty or impossible"),
    "a file has moved by -3 bytes": (0, lambda path: shifted(path, -3), "of its entries are empty or impossible"),
}


@every_command
@pytest.mark.parametrize("damage", QUEUE_DAMAGE)
def test_zero_queue_file_is_named(command: str, damage: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    number, harm, text = QUEUE_DAMAGE[damage]
    path = queue_files(store)[number]
    harm(path)
    code, reasons = compared(command, store, capsys)
    assert (code, list(reasons)) == (0, [str(path.relative_to(store))])
    assert text in reasons[str(path.relative_to(store))]


@pytest.mark.parametrize("command", ["salvage", "rebuild"])
def test_queue_file_shifted_by_one_unit_is_named(command: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = queue_files(store)[1]
    shifted(path, 20)
    code, reasons = compared(command, store, capsys)
    assert (code, list(reasons)) == (0, [str(path.relative_to(store))])
    assert "of its entries point to other records" in reasons[str(path.relative_to(store))]


@every_command
def test_missing_queue_is_named(command: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(store / "consumequeue/orders/1")
    code, reasons = compared(command, store, capsys)
    assert (code, list(reasons)) == (0, ["consumequeue/orders/1/00000000000000000000"])


@every_command
def test_queue_ending_early_after_kill_is_not_reported(
    command: str, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (store / "abort").touch()
    queue_files(store)[-1].unlink()
    assert compared(command, store, capsys) == (0, {})


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_recover_names_queue_without_first_file(
    more: list[str], store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It puts again what follows, and does not read the whole log for what stood in front."""
    queue_files(store)[0].unlink()
    code = exit_code(["store", "recover", str(store), *SETTINGS, "--json", *more])
    [one] = json.loads(capsys.readouterr().out)["notCompared"]
    assert (code, one["path"]) == (0, "consumequeue/orders/1")
    assert "begins at offset 20" in one["reason"]
    assert "`gantrymq store rebuild`" in one["reason"]
