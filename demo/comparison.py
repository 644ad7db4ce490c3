"""An answer of Spark and the same table computed from the input, compared number by number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from demo.questions import Question

Key = tuple[object, ...]
Numbers = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How one comparison went: so many groups, so many numbers, these differences (one line each)."""

    name: str
    title: str
    groups: int
    numbers: int
    differences: tuple[str, ...]


def compare(question: Question, answer: pa.Table, expected: pa.Table) -> Comparison:
    """Compare group by group; neither side may have a group that the other lacks."""
    ours, theirs = _by_key(answer, question.key_count), _by_key(expected, question.key_count)
    differences = tuple(_differences(question.name, answer.column_names[question.key_count :], ours, theirs))
    numbers = sum(len(values) for values in theirs.values())
    return Comparison(question.name, question.title, len(theirs), numbers, differences)


def _by_key(table: pa.Table, key_count: int) -> dict[Key, Numbers]:
    columns = [column.to_pylist() for column in table.columns]
    return {row[:key_count]: row[key_count:] for row in zip(*columns, strict=True)}


def _differences(name: str, labels: list[str], ours: dict[Key, Numbers], theirs: dict[Key, Numbers]) -> Iterator[str]:
    for key in sorted(ours.keys() | theirs.keys(), key=repr):
        where = f"{name} {' '.join(map(str, key))}"
        if key not in theirs:
            yield f"{where}: Spark has {ours[key]}, the input has no such group"
        elif key not in ours:
            yield f"{where}: the input has {theirs[key]}, Spark has no such group"
        else:
            pairs = zip(labels, ours[key], theirs[key], strict=True)
            yield from (f"{where}: {label} is {a} in Spark, {b} in the input" for label, a, b in pairs if a != b)
