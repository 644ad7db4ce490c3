"""Spans of time as texts: the units of the command line, of Spark's options and of messageDelayLevel."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gantrymq.model.java import LONG_MAX
from gantrymq.model.spans import MAX_DELAY_MS, parse_delay_ms, parse_span_ms

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("text", "ms"), [("500ms", 500), ("10s", 10_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000)]
)
def test_number_with_unit_is_milliseconds(text: str, ms: int) -> None:
    assert parse_span_ms(text) == parse_span_ms(text, accepts_words=True) == ms


def test_number_without_unit_needs_default_unit() -> None:
    assert (parse_span_ms("500"), parse_span_ms("500", default_unit="ms")) == (None, 500)


@pytest.mark.parametrize("text", ["2 minutes", "2minute", "2 min", "120 sec", "120 seconds", "2 m"])
def test_words_are_units_only_where_they_are_accepted(text: str) -> None:
    assert (parse_span_ms(text), parse_span_ms(text, accepts_words=True)) == (None, 120_000)


@pytest.mark.parametrize("text", ["", "s", "-1s", "1w", "1.5s", "10sm", "١s", "1 fortnight"])
def test_other_text_is_no_span(text: str) -> None:
    assert parse_span_ms(text, default_unit="ms", accepts_words=True) is None


def test_delay_is_read_as_rocketmq_reads_it() -> None:
    delays = ("1s", "+5m", "2h", "1d", "500ms", "x", "", "5", "-1s", "1.5s", "99999999999999999999s")
    assert [parse_delay_ms(one) for one in delays] == [1_000, 300_000, 7_200_000, 86_400_000, *[None] * 7]
    assert (parse_delay_ms(f"{MAX_DELAY_MS // 1000}s"), parse_delay_ms(f"{LONG_MAX // 1000}s")) == (
        MAX_DELAY_MS // 1000 * 1000,
        None,
    )


def test_units_of_time_are_defined_in_one_module() -> None:
    table = re.compile(r"""["'](?:h|hour)["']: ?3_?600""")
    paths = (ROOT / "src").rglob("*.py")
    assert [path.name for path in paths if table.search(path.read_text("utf-8"))] == ["spans.py"]
