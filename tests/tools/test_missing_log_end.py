"""The newest files of a log are not where the settings say: what writes refuses the store, what reads says so."""

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from loss_cases import KnownStore, Slot, assert_told, read_back

from gantrymq import EmbeddedBroker
from gantrymq.cli.main import exit_code
from gantrymq.clock import ManualClock
from gantrymq.errors import MissingLogEndError
from gantrymq.format.checkpoint import Checkpoint, encode_checkpoint
from gantrymq.fs.real import RealFileSystem
from gantrymq.store.paths import StorePaths
from gantrymq.store.recovery.missing_log import log_state
from gantrymq.tools.findings import FindingKind, Severity
from gantrymq.tools.rebuild import rebuild_store
from gantrymq.tools.salvage import salvage_store
from gantrymq.tools.verify import verify_store
from memory_file_system import MemoryFileSystem
from store_cases import GEOMETRY_KEYS, NOON_MS, ROOT, SMALL, SMALL_KEYS, await_dispatch, numbered, open_reader
from store_cases import open_store as open_any

SIZES = [f"--set={key}={value}" for key, value in SMALL_KEYS.items()]
SIZE = SMALL.mapped_file_size_commit_log


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> KnownStore:
    return KnownStore.make(tmp_path_factory.mktemp("end") / "store")


@pytest.fixture
def store(healthy: KnownStore, tmp_path: Path) -> KnownStore:
    """A copy that may be damaged."""
    shutil.copytree(healthy.path, tmp_path / "store")
    return KnownStore(tmp_path / "store", dict(healthy.puts))


def tree(path: Path) -> dict[str, bytes]:
    return {str(one): one.read_bytes() for one in sorted(path.rglob("*")) if one.is_file() and one.name != "lock"}


def problems(path: Path) -> list[type]:
    return [type(one) for one in log_state(RealFileSystem(), StorePaths(path), SMALL).problems]


def kill(store: KnownStore) -> None:
    (store.path / "abort").touch()


def lose_two(store: KnownStore) -> None:
    for path in store.log_files[-2:]:
        path.unlink()


def lose_the_last(store: KnownStore) -> None:
    store.log_files[-1].unlink()


def lose_queues(store: KnownStore) -> None:
    lose_the_last(store)
    shutil.rmtree(store.path / "consumequeue")


def lose_checkpoint(store: KnownStore) -> None:
    lose_two(store)
    (store.path / "checkpoint").unlink()


def empty_the_last(store: KnownStore) -> None:
    os.truncate(store.log_files[-1], 0)


def old_copy(store: KnownStore) -> None:
    """What is in the default place was copied before the newest files were written elsewhere."""
    lose_two(store)
    last = store.log_files[-1]
    last.write_bytes(last.read_bytes()[: SIZE // 2].ljust(SIZE, b"\0"))


def old_copy_of_rocketmq(store: KnownStore) -> None:
    """RocketMQ leaves in the checkpoint of a store that it closed where the log was long before."""
    old_copy(store)
    (store.path / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(NOON_MS, NOON_MS, 0, 0, 0, SIZE)))


LOSSES: dict[str, Callable[[KnownStore], None]] = {
    "the last file": lose_the_last,
    "two files": lose_two,
    "and the queues": lose_queues,
    "and the checkpoint": lose_checkpoint,
    "an old copy": old_copy,
    "an old copy of RocketMQ's": old_copy_of_rocketmq,
    "emptied": empty_the_last,
}


A_POWER_CUT_MAY_LEAVE = ("an old copy", "an old copy of RocketMQ's", "emptied")


@pytest.mark.parametrize(
    ("loss", "ended"),
    [(loss, "closed") for loss in LOSSES] + [(loss, "killed") for loss in LOSSES if loss not in A_POWER_CUT_MAY_LEAVE],
)
def test_store_without_newest_log_files_is_not_opened_for_writing(store: KnownStore, loss: str, ended: str) -> None:
    LOSSES[loss](store)
    if ended == "killed":
        kill(store)
    lost_from = (
        min(int(path.name) for path in store.log_files if path.stat().st_size == 0)
        if loss == "emptied"
        else (int(store.log_files[-1].name) + SIZE)
    )
    before = tree(store.path)
    text = f"^{store.path}/commitlog/{lost_from:020d}: .*storePathCommitLog.*store recover.*acceptMissingCommitLog=true"
    with pytest.raises(MissingLogEndError, match=text) as refused:
        open_any(RealFileSystem(), store.path)
    assert "\n" not in str(refused.value)
    assert tree(store.path) == before
    with open_reader(store.path) as reader:
        assert [type(one) for one in reader.problems] == [MissingLogEndError]
    assert FindingKind.LOG_MISSING in {one.kind for one in verify_store(store.path, SMALL, given=GEOMETRY_KEYS)}


def json_of(capsysbinary: pytest.CaptureFixture[bytes], *arguments: object) -> tuple[int, Any, str]:
    code = exit_code(["store", *map(str, arguments), "--json"])
    said = capsysbinary.readouterr()
    lines = said.out.decode().splitlines()
    return code, json.loads(lines[-1]) if lines else None, said.err.decode()


def test_recover_of_store_without_newest_log_files_names_loss_and_opens_it(
    store: KnownStore, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    lose_two(store)
    code, plan, said = json_of(capsysbinary, "recover", store.path, "--dry-run", *SIZES)
    assert (code, said.count("\n")) == (1, 1)
    assert "is missing: the files of the commit log end at" in said
    code, report, said = json_of(capsysbinary, "recover", store.path, *SIZES)
    assert (code, report["lostMessages"]) == (1, plan["lostMessages"])
    left = read_back(store.path)
    lost = {slot for slot, put in store.puts.items() if left.get(slot) != put.body}
    told = {
        Slot(one["topic"], one["queueId"], offset)
        for one in report["lostMessages"]
        for offset in range(one["from"], one["to"] + 1)
    }
    assert lost == told != set()
    assert problems(store.path) == []
    found = list(verify_store(store.path, SMALL, given=GEOMETRY_KEYS))
    assert {(one.kind, one.level) for one in found} == {(FindingKind.INDEX_ENTRY_NOWHERE, Severity.NOTE)}
    code, _, said = json_of(capsysbinary, "recover", store.path, *SIZES)
    assert (code, said) == (0, "")


@pytest.mark.parametrize("command", ["info", "dump", "log", "verify"])
def test_reading_commands_name_missing_end_of_log(
    command: str, store: KnownStore, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    lose_two(store)
    code, last, said = json_of(capsysbinary, command, store.path, *SIZES)
    assert code == 1
    missing = f"commitlog/{int(store.log_files[-1].name) + SIZE:020d}"
    assert command == "verify" or missing in said
    if command == "info":
        assert [Path(one["path"]).name for one in last["problems"]] == [Path(missing).name]


def test_verify_ends_with_what_helps(store: KnownStore, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    lose_two(store)
    assert exit_code(["store", "verify", str(store.path), *SIZES]) == 1
    _, steps = capsysbinary.readouterr().out.decode().split("  next ")
    assert [line.split()[0] for line in steps.splitlines()] == ["mount", "gantrymq", "gantrymq"]
    assert "recover" in steps.splitlines()[2]
    assert "would cut" in steps.splitlines()[2]


def test_ingest_refuses_missing_end_of_log_unless_accepted(
    store: KnownStore, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    lose_two(store)
    lines = tmp_path / "in.jsonl"
    lines.write_text('{"topic":"orders","body":"x"}\n')
    code, last, said = json_of(capsysbinary, "ingest", store.path, lines, *SIZES)
    assert (code, last, said.count("\n")) == (3, None, 1)
    code, last, _ = json_of(capsysbinary, "ingest", store.path, lines, *SIZES, "--set=acceptMissingCommitLog=true")
    assert (code, last["status"]) == (0, "PUT_OK")


def test_omitted_log_directory_is_reported_missing(tmp_path: Path) -> None:
    """The newest file lies in the second one."""
    both = SMALL.__class__(**{**_fields(), "store_path_commit_log": f"{tmp_path}/a,{tmp_path}/b"})
    one = SMALL.__class__(**{**_fields(), "store_path_commit_log": f"{tmp_path}/a"})
    with open_any(RealFileSystem(), tmp_path / "store", both) as store:
        while store.max_phy_offset < SIZE * 3 // 2:
            store.put_batch(numbered(20))
        await_dispatch(store)
    with pytest.raises(MissingLogEndError, match=f"^{tmp_path}/a/{SIZE:020d}: is missing.* point after it"):
        open_any(RealFileSystem(), tmp_path / "store", one)
    with open_any(RealFileSystem(), tmp_path / "store", both) as again:
        assert again.recovery.queue_units_cut == 0


def _fields() -> dict[str, Any]:
    import dataclasses

    return {field.name: getattr(SMALL, field.name) for field in dataclasses.fields(SMALL)}


def test_rebuild_and_salvage_without_end_of_log_continue_and_name_loss(store: KnownStore, tmp_path: Path) -> None:
    lose_two(store)
    account = salvage_store(store.path, tmp_path / "out", SMALL, given=GEOMETRY_KEYS).account
    assert assert_told(store, read_back(tmp_path / "out"), account) != set()
    account = rebuild_store(store.path, SMALL, given=GEOMETRY_KEYS).account
    assert assert_told(store, read_back(store.path), account) != set()
    assert problems(store.path) == []
    assert list(verify_store(store.path, SMALL, given=GEOMETRY_KEYS)) == []


# What is healthy, or damaged in another way, is opened


def flip_units(store: KnownStore) -> None:
    """One unit of each queue leads far behind the log."""
    for path in sorted(store.path.glob("consumequeue/*/*/*"))[::3]:
        raw = bytearray(path.read_bytes())
        if raw[8:12] != bytes(4):
            raw[0:8] = struct.pack(">q", struct.unpack(">q", raw[0:8])[0] | 1 << 33)
            path.write_bytes(raw)


def far_checkpoint(store: KnownStore) -> None:
    (store.path / "checkpoint").write_bytes(
        encode_checkpoint(Checkpoint(NOON_MS, NOON_MS, 0, 0, 1 << 40, (1 << 40) - 100))
    )


def broken_tail(store: KnownStore) -> None:
    store.flip(store.at(0.97)[1].phy_offset + 92, 0x10)


@pytest.mark.parametrize("ended", ["closed", "killed"])
@pytest.mark.parametrize("damage", [flip_units, far_checkpoint, broken_tail, lambda store: None])
def test_store_with_newest_log_file_is_opened(
    store: KnownStore, damage: Callable[[KnownStore], None], ended: str
) -> None:
    damage(store)
    if ended == "killed":
        kill(store)
    assert problems(store.path) == []
    open_any(RealFileSystem(), store.path).close()


def test_empty_last_file_of_killed_store_is_removed_if_no_unit_points_into_it(store: KnownStore) -> None:
    """Else a second crash between the two would look as if files were missing."""
    fs = MemoryFileSystem(clock=ManualClock(NOON_MS))
    for path in sorted(store.path.rglob("*")):
        if path.is_file() and path.name != "lock":
            place = ROOT / path.relative_to(store.path)
            fs.make_directory(place.parent)
            file = fs.open(place, writable=True, create=True)
            file.write_at(0, path.read_bytes())
            file.sync()
    fs.open(ROOT / "abort", writable=True, create=True)
    fs.open(ROOT / "commitlog" / store.log_files[-1].name, writable=True).resize(0)
    fs.sync_directory(ROOT, ROOT / "commitlog")
    removed = []

    class Watched(MemoryFileSystem):
        pass

    remove = fs.remove

    def watch(path: Path) -> None:
        if path.parent.name == "commitlog":
            removed.append(fs.crash_clone(1.0, 1))
            remove(path)
            fs.sync_directory(path.parent)
            removed.append(fs.crash_clone(0.0, 1))
        else:
            remove(path)

    fs.remove = watch  # type: ignore[method-assign]
    open_any(fs).close()
    assert removed
    for left in removed:
        assert log_state(left, StorePaths(ROOT), SMALL).problems == []
        open_any(left).close()


def test_ingest_names_messages_truncated_by_its_recovery(
    store: KnownStore, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    broken_tail(store)
    (tmp_path / "in.jsonl").write_text("")
    code, _, said = json_of(capsysbinary, "ingest", store.path, tmp_path / "in.jsonl", *SIZES)
    assert (code, said.count("\n")) == (0, 1)
    assert "recovery ended the log at" in said


def test_embedded_broker_refuses_missing_end_of_log(store: KnownStore) -> None:
    lose_two(store)
    before = tree(store.path / "consumequeue")
    with pytest.raises(MissingLogEndError), EmbeddedBroker(store=store.path):
        pass
    assert tree(store.path / "consumequeue") == before
