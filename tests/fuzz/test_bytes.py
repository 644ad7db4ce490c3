"""Random bytes in place of each kind of file. Hypothesis makes them and shrinks what fails."""

import struct
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from mutants import Mutant, paths_of, whole, write
from uses import WAYS, Trial, run_way

from gantrymq.format.checkpoint import Checkpoint
from gantrymq.format.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from gantrymq.store.paths import StorePaths
from gantrymq.store.recovery.swap_journal import WORK_DIRECTORY, FileSwap, ReadySwap
from store_cases import ROOT

KINDS = (*"commitlog consumequeue consumequeue_ext index checkpoint config abort lock".split(), WORK_DIRECTORY)
EXTREME = (0, 1, 4096, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, MAGIC_V1, MAGIC_V2, MAGIC_BLANK)
WORDS = st.builds(struct.pack, st.just(">I"), st.one_of(st.sampled_from(EXTREME), st.integers(0, 0xFFFFFFFF)))
CONTENT = st.lists(st.one_of(WORDS, WORDS, st.binary(max_size=24)), max_size=40).map(b"".join)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(kind=st.sampled_from(KINDS), at=st.integers(0, 1 << 16), content=CONTENT, way=st.sampled_from(WAYS))
@example(kind="consumequeue_ext", at=0, content=b"", way=WAYS[3])
def test_arbitrary_bytes_in_any_file_raise_no_unexpected_error(
    tmp_path: Path, kind: str, at: int, content: bytes, way: Callable[[Trial], None]
) -> None:
    fs = whole("killed and ext").kill_clone()
    if kind == WORK_DIRECTORY:
        ReadySwap(fs, StorePaths(ROOT)).set(FileSwap(fs, ROOT), Checkpoint(), 0)
    path = next(path for path in paths_of(fs) if path.relative_to(ROOT).parts[0] == kind)
    data = bytearray(fs.open(path).read_at(0, 1 << 20))
    at %= len(data) or 1
    data[at : at + len(content)] = content
    write(fs, path, bytes(data))
    told = f"{content!r} at {at} of {path.relative_to(ROOT)}"
    run_way(way, Mutant(0, fs, "killed and ext", [told]), tmp_path / "store")
