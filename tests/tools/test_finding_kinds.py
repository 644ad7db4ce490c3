"""The table of the kinds of findings: every row has its columns, and the next step repeats the remedy of the text."""

from __future__ import annotations

from pathlib import Path

import pytest

from gantrymq.format import names
from gantrymq.tools.findings import FindingKind, StorePart
from gantrymq.tools.verify import VerifySummary
from gantrymq.tools.verify_report import next_steps

PARTS_WITHOUT_STEP = {StorePart.CONFIG, StorePart.TIMERS, StorePart.FOREIGN}
COMMANDS = {
    StorePart.LOG: "salvage",
    StorePart.QUEUES: "rebuild",
    StorePart.INDEX: "rebuild",
    StorePart.CHECKPOINT: "recover",
    StorePart.GROUPS: "recover",
}
DIRECTORIES = {
    names.COMMIT_LOG: ["salvage"],
    names.CONSUME_QUEUE: ["rebuild"],
    names.CONSUME_QUEUE_EXT: ["rebuild"],
    names.INDEX: ["rebuild"],
    names.CONFIG: [],
    names.TIMER_LOG: [],
}


def commands(kind: FindingKind, file: Path) -> list[str]:
    """The commands that the next steps name, after one finding of damage."""
    steps = next_steps(Path("store"), VerifySummary(findings=1), {(kind, file)}, None)
    return [step.split()[2] for step in steps if step.startswith("gantrymq store ")]


@pytest.mark.parametrize("columns", [(), (StorePart.LOG,)], ids=["value", "value and part"])
def test_row_without_column_is_refused(columns: tuple[StorePart, ...]) -> None:
    with pytest.raises(TypeError, match="missing"):
        FindingKind._new_member_(FindingKind, "new-kind", *columns)  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", FindingKind, ids=lambda kind: kind.value)
def test_next_step_of_finding_kind_is_that_of_its_part(kind: FindingKind) -> None:
    assert isinstance(kind.part, StorePart)
    if kind.part is StorePart.OF_PATH:
        by_directory = {name: commands(kind, Path(name, "00000000000000000000")) for name in DIRECTORIES}
        assert by_directory == DIRECTORIES
        return
    step = commands(kind, Path("file"))
    assert step == ([] if kind.part in PARTS_WITHOUT_STEP else [COMMANDS[kind.part]])
    assert kind.remedy is None or f"gantrymq store {step[0]}" in kind.remedy
