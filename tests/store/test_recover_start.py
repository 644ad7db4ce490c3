"""Which commit log file recovery begins with, by the rules of both releases."""

from dataclasses import dataclass
from typing import cast

import pytest

from gantrymq.config.settings import MessageStoreConfig, RecoverRule
from gantrymq.format.checkpoint import Checkpoint
from gantrymq.store.log.mapped_file import MappedFile
from gantrymq.store.recovery.recover_start import FirstRecord, StartRule

FILES = 20
SECOND_MS = 1000


@dataclass
class File:
    """File i begins at offset 100 × i, with a record stored at second i + 1."""

    number: int


def chosen(
    checkpoint: Checkpoint | None = None, *, queues_end: int = 10_000, clean: bool = False, empty: int = 0, **settings
) -> int:
    """The file that recovery begins with; the last ``empty`` files have no record yet."""
    rule = StartRule(MessageStoreConfig(**settings), checkpoint or Checkpoint(), queues_end, clean)
    files = [File(number) for number in range(FILES)]

    def first_record(file: MappedFile) -> FirstRecord | None:
        number = cast(File, file).number
        return None if number >= FILES - empty else FirstRecord(100 * number, SECOND_MS * (number + 1))

    return rule.choose(cast("list[MappedFile]", files), first_record)


def test_clean_recovery_starts_at_newest_file_covered_by_queues() -> None:
    assert chosen(clean=True, queues_end=1250) == 12
    assert chosen(clean=True, queues_end=1250, empty=10) == 9
    assert chosen(clean=True, queues_end=-1) == 0


def test_crash_recovery_starts_at_newest_file_covered_by_checkpoint() -> None:
    assert chosen(Checkpoint(logics_physical_offset=730)) == 7
    assert chosen(Checkpoint(logics_msg_timestamp_ms=5 * SECOND_MS)) == 4
    assert chosen() == 0


def test_checkpoint_ahead_of_queues_is_ignored() -> None:
    assert chosen(Checkpoint(logics_physical_offset=730), queues_end=350) == 3
    assert chosen(Checkpoint(logics_physical_offset=730), queues_end=-1) == 0


@pytest.mark.parametrize(("limit", "expected"), [(10, 10), (3, 17), (100, 0), (0, 0)])
def test_limit_of_files_applies_only_if_set(limit: int, expected: int) -> None:
    assert chosen(commit_log_recover_max_num=limit) == expected


def test_safe_index_moves_recovery_start_back() -> None:
    checkpoint = Checkpoint(logics_physical_offset=730, index_msg_timestamp_ms=4 * SECOND_MS)
    assert chosen(checkpoint, message_index_safe=True) == 3
    assert chosen(checkpoint, message_index_safe=True, message_index_enable=False) == 7


def test_older_release_reads_last_files_after_clean_stop() -> None:
    assert chosen(clean=True, recover_rule=RecoverRule.V4) == 17
    assert chosen(clean=True, recover_rule=RecoverRule.V4, recover_last_files=5) == 15
    assert chosen(clean=True, recover_rule=RecoverRule.V4, recover_last_files=50) == 0


def test_older_release_starts_crash_recovery_three_seconds_before_older_time() -> None:
    checkpoint = Checkpoint(physic_msg_timestamp_ms=12 * SECOND_MS, logics_msg_timestamp_ms=9 * SECOND_MS)
    assert chosen(checkpoint, recover_rule=RecoverRule.V4) == 5
