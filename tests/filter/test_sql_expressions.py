"""SQL92 expressions: results by RocketMQ's rules, and limits. tests/interop/test_sql_filters.py has thousands more."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, is_dataclass
from typing import cast, get_args

import pytest

from gantrymq.errors import FilterSyntaxError
from gantrymq.filter import tree
from gantrymq.filter.evaluate import compile_node
from gantrymq.filter.grammar import MAX_LENGTH, MAX_TOKENS
from gantrymq.filter.murmur3 import murmur3_128_low
from gantrymq.filter.sql_filter import SqlFilterCache
from gantrymq.filter.tree import MAX_DEPTH
from gantrymq.filter.values import EvaluationError

FILTERS = SqlFilterCache()
MESSAGE = {"a": "5", "b": "x", "c": "1.5", "d": "it's", "t": "TRUE", "big": "2147483648", "far": "5" * 2000}
ERROR = "error"

RESULTS = {
    # numbers: the type of the literal decides how the property is read
    "a = 5": True,
    "a = 5.0": True,
    "a <> 5": False,
    "a > 4 AND a < 5.5": True,
    "c > 1": ERROR,  # no integer
    "c > 1.": True,
    "big = 2147483647": ERROR,  # no int
    "big = 2147483648": True,
    "a > -5": True,
    "a > - 5 and a > --4": True,
    "a > far": ERROR,
    "a BETWEEN 5 AND 6": True,
    "a NOT BETWEEN 6 AND 5": True,
    "a > b": ERROR,
    "a >= c": True,
    # texts
    "b = 'x'": True,
    "b = 'X'": False,
    "d = 'it''s'": True,
    "b IN ('y', 'x')": True,
    "b NOT IN ('y')": True,
    "d CONTAINS 't'": True,
    "d NOT contains ''": False,
    "d STARTSWITH 'it'": True,
    "d NOT ENDSWITH '''s'": False,
    # null and three values
    "no = 5": None,
    "no <> 5": None,
    "no IN ('x')": None,
    "no CONTAINS 'x'": False,
    "no IS NULL": True,
    "a IS NOT NULL": True,
    "no > 1 OR a = 5": True,
    "no > 1 AND a = 5": None,
    "no > 1 AND a = 6": False,
    "NOT (no > 1)": None,
    "NULL": None,
    # booleans
    "TRUE": True,
    "t = TRUE": True,
    "t": False,  # a property is a string, and no boolean
    "NOT t": True,
    "TRUE = t": ERROR,
    "a = 6 AND b > 5": False,  # the error behind is not reached
    "(a = 5) = (b = 'x')": True,
    # precedence, and what ends an expression
    "a = 6 OR a = 5 AND b = 'x'": True,
    "NOT (a = 5)": False,
    "a = 5 b = 2": True,
    "b LIKE 'x'": False,  # means: b
    "NOT a = 5": False,  # means: (NOT a) = 5
    "a = 5 -- until the line ends\n and b = 'y'": False,
    "a /* in between */ = 5": True,
}


@pytest.mark.parametrize("text", RESULTS)
def test_expression_evaluates_as_in_rocketmq(text: str) -> None:
    found = FILTERS.compile(text)
    if RESULTS[text] == ERROR:
        with pytest.raises(EvaluationError):
            found.evaluate(MESSAGE)
    else:
        assert found.evaluate(MESSAGE) is RESULTS[text]
    assert found.matches(MESSAGE) is (RESULTS[text] is True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a =",
        "5",
        "'x'",
        "-a",
        "a > 'x'",
        "a > TRUE",
        "a = NULL",
        "a IN ()",
        "a IN (5)",
        "5 IN ('x')",
        "a > 0.0",
        "a = 1 #",
        "a = 'x",
        "a BETWEEN 5 AND 4",
        "a = 9223372036854775808",
        "TRUE = 5",
        "NOT a > 1",
        "a NOT b",
        "(a = 1",
        "a > (b = 1)",
        "a AND 5",
        "a IS b",
        "a CONTAINS b",
        "a = 1 OR",
        "a = 1e999",
    ],
)
def test_expressions_refused_by_rocketmq_are_refused(text: str) -> None:
    for _ in range(2):  # the second time from the cache
        with pytest.raises(FilterSyntaxError):
            FILTERS.compile(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000 + "a = 1" + ")" * 10_000,
        "(" * 2_000 + "a = 1" + ")" * 2_000,
        "NOT " * 2_000 + "a",
        "-" * 10_000 + "a",
        "a = 5" + " = 5" * 2_000,
        "a" * (1 << 20),
        "a = 5" + " OR a = 5" * 2_000,
        "a IN ('x'" + ",'x'" * 3_000 + ")",
    ],
    ids=range(8),
)
def test_expression_above_limit_raises_one_error(text: str) -> None:
    with pytest.raises(FilterSyntaxError, match=r"more than|longer than|deeper than"):
        FILTERS.compile(text)


def test_expression_at_limits_is_evaluated() -> None:
    ways = ("(" * MAX_DEPTH + "a = 5" + ")" * MAX_DEPTH, "NOT " * (MAX_DEPTH - 2) + "(a = 5)")
    assert [FILTERS.compile(text).evaluate(MESSAGE) for text in ways] == [True, True]
    assert FILTERS.compile("a = 5" + " OR a = 5" * (MAX_TOKENS // 4 - 1)).evaluate(MESSAGE) is True
    assert FILTERS.compile(f"b <> '{'x' * (MAX_LENGTH - 7)}'").evaluate(MESSAGE) is True


def test_filter_cache_drops_least_recently_used() -> None:
    filters = SqlFilterCache()
    first = filters.compile("a = 5")
    for number in range(200):
        filters.compile(f"b = '{number}{'x' * 16_000}'")
        assert filters.compile("a = 5") is first
    assert filters._characters <= 1 << 20
    assert len(filters._cache) < 70


def test_bloom_filter_hash_equals_that_of_guava() -> None:
    """Published values of MurmurHash3_x64_128 with seed 0."""
    assert murmur3_128_low(b"") == 0
    assert murmur3_128_low(b"The quick brown fox jumps over the lazy dog") == 0xE34BBC7BBC071B6C
    assert murmur3_128_low(b"hello") == 0xCBD8A7B341BD9B02


def test_broker_loads_lark_with_first_expression() -> None:
    program = """
import sys
import gantrymq.broker.server, gantrymq.client.consumer.push.push
from gantrymq.filter.sql_filter import SqlFilterCache
assert "lark" not in sys.modules
SqlFilterCache().compile("a = 5")
assert "lark" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_node_classes_are_operands_or_conditions_and_have_closures() -> None:
    classes = {one for one in vars(tree).values() if isinstance(one, type) and is_dataclass(one)}
    operands, conditions = set(get_args(tree.Operand)), set(get_args(tree.Condition))
    assert classes == operands | conditions
    assert operands.isdisjoint(conditions)
    assert classes <= set(compile_node.registry)


def test_node_in_neither_union_is_no_condition() -> None:
    @dataclass(frozen=True)
    class Unlisted:
        depth: int = 1

    with pytest.raises(AssertionError):
        tree.invert(cast(tree.Node, Unlisted()))
