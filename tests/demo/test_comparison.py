"""Spark's answers against the input's: every number that differs is named."""

import pyarrow as pa
import pytest

from demo.questions import QUESTIONS, Question, compare

BY_NAME = {question.name: question for question in QUESTIONS}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: one.name)
def test_equal_tables_have_no_difference(question: Question, flights: pa.Table) -> None:
    expected = question.expected(flights)
    shuffled = expected.take(pa.array(list(range(expected.num_rows))[::-1]))
    comparison = compare(question, shuffled, expected)
    assert comparison.differences == ()
    assert comparison.groups == expected.num_rows > 0
    assert comparison.numbers == expected.num_rows * (expected.num_columns - question.key_count)


def test_comparison_counts_input_rows(flights: pa.Table) -> None:
    rows = flights.to_pylist()
    total = BY_NAME["totals"].expected(flights).to_pylist()[0]
    assert total["messages"] == total["uniq_keys"] == len(rows)
    assert total["departed"] == sum(row["dep_time"] is not None for row in rows)
    assert total["dep_delay"] == sum(row["dep_delay"] or 0 for row in rows)
    assert total["planes"] == len({row["tailnum"] for row in rows})
    carriers = {row["carrier"]: row for row in BY_NAME["carriers"].expected(flights).to_pylist()}
    for carrier, found in carriers.items():
        theirs = [row for row in rows if row["carrier"] == carrier]
        assert found["on_time"] == sum(row["arr_delay"] is not None and row["arr_delay"] < 15 for row in theirs)
        assert found["flight_numbers"] == len({row["flight"] for row in theirs})


def test_wrong_missing_and_foreign_groups_are_named(flights: pa.Table) -> None:
    question = BY_NAME["cancellations"]
    expected = question.expected(flights)
    rows = expected.to_pylist()
    first, second = rows[0], rows[1]
    wrong = [first | {"cancelled": first["cancelled"] + 1}, *rows[2:], second | {"origin": "XXX"}]
    differences = compare(question, pa.Table.from_pylist(wrong, expected.schema), expected).differences
    where = f"cancellations {first['month']} {first['origin']}"
    assert f"{where}: cancelled is {first['cancelled'] + 1} in Spark, {first['cancelled']} in the input" in differences
    assert any("Spark has no such group" in line for line in differences)
    assert any("XXX" in line and "the input has no such group" in line for line in differences)
    assert len(differences) == 3
