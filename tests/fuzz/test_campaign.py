"""A campaign tries every mutant once, and goes on where it was interrupted."""

from collections import Counter
from pathlib import Path

import campaign
import pytest
from campaign import A_CHUNK, A_SEED, Campaign, Chunk


def told(first: int, directory: Path) -> Chunk:
    return Chunk(first, Counter(done=A_CHUNK))


def test_every_chunk_is_tried_once_also_in_two_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "STATE", tmp_path)
    monkeypatch.setattr(campaign, "try_chunk", told)
    first_run = [chunk.first for chunk in Campaign(7, 3 * A_CHUNK, tmp_path).run(2)]
    second_run = [chunk.first for chunk in Campaign(7, 5 * A_CHUNK, tmp_path).run(1)]
    assert sorted(first_run) + second_run == [7 * A_SEED + n * A_CHUNK for n in range(5)]
    assert Campaign(7, 5 * A_CHUNK, tmp_path).outcomes == {"done": 5 * A_CHUNK}
