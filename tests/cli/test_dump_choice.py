"""The options of dump that look at records: each one lets --tail count selected messages only."""

from __future__ import annotations

import dataclasses

import pytest

from gantrymq.cli.dump import RecordChoice


@pytest.mark.parametrize("field", dataclasses.fields(RecordChoice), ids=lambda field: field.name)
def test_choice_with_any_option_restricts_records(field: dataclasses.Field[object]) -> None:
    """So --tail reads the records of a queue before it counts, whichever option is added."""
    assert not RecordChoice()
    assert RecordChoice(**{field.name: 0})  # type: ignore[arg-type]


def test_options_are_given_by_name() -> None:
    with pytest.raises(TypeError, match="positional"):
        RecordChoice(0, 1, "paid")  # type: ignore[misc]
