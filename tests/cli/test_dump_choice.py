"""The options of dump that look at records: each one lets --tail count selected messages only."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from gantrymq.cli.dump import RecordChoice


@pytest.mark.parametrize("field", dataclasses.fields(RecordChoice), ids=lambda field: field.name)
def test_choice_with_any_option_restricts_records(field: dataclasses.Field[object]) -> None:
    """So --tail reads the records of a queue before it counts, whichever option is added."""
    assert not RecordChoice()
    assert RecordChoice(**{field.name: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("field", dataclasses.fields(RecordChoice), ids=lambda field: field.name)
def test_field_of_choice_is_compared_with_record(field: dataclasses.Field[object]) -> None:
    """Otherwise an option that is added selects nothing, and no other test notices."""
    assert f"self.{field.name}" in inspect.getsource(RecordChoice.takes)


def test_options_are_given_by_name() -> None:
    with pytest.raises(TypeError, match="positional"):
        RecordChoice(0, 1, "paid")  # type: ignore[misc]
