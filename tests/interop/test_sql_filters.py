"""SQL92 filters against the real RocketMQ: the same results for the same expressions, and both clients at both brokers."""

from __future__ import annotations

import json
import random
from pathlib import Path

from gantrymq.errors import FilterSyntaxError
from gantrymq.filter.sql_filter import SqlFilterCache
from gantrymq.filter.values import EvaluationError
from tests.interop.java import run_java
from tests.interop.sql_expressions import expression, properties

EXPRESSIONS, MESSAGES = 6_000, 12
TEXTS = ["", " ", "a = 1 -- c", "a = 1 --\n", "a = 1 /* open", "/* c */a is null", "a='x", "a = 'x''", "/**/TRUE", "a=''''"]
TEXTS += ["(" * 100 + "a = '1'" + ")" * 100, "a AND 5", "5 = TRUE", "TRUE = 5", "(a = '1') = (b = '1')", "a = b = '5'"]
TEXTS += ["a - b > 5", "a BETWEEN 5 AND 5.0", "a between 5.5 and 5", "TRUE = a", "a = TRUE", "-(a = '1') is null"]
TEXTS += ["a IN ('x',)", "a IN ()", "(a) IN ('x')", "+a IN ('5')", "'x' in ('x')", "a IN (5)", "a contains b", "K = 1"]


def test_expressions_have_the_results_of_rocketmq(java: None, tmp_path: Path) -> None:
    seeded = random.Random(29)
    texts = TEXTS + [expression(seeded) for _ in range(EXPRESSIONS)]
    cases = [(text, [properties(seeded) for _ in range(MESSAGES)]) for text in texts]
    file = tmp_path / "cases"
    file.write_text("".join(json.dumps({"expression": text, "messages": all_}) + "\n" for text, all_ in cases))
    answers = run_java("evaluate-sql", None, str(file))
    filters, kinds, different = SqlFilterCache(), set(), []
    for (text, messages), answer in zip(cases, answers, strict=True):
        expected = answer.get("results", ["syntax"] * MESSAGES)
        ours = [result(filters, text, message) for message in messages]
        different += [case for case in zip([text] * MESSAGES, messages, ours, expected, strict=True) if case[2] != case[3]]
        kinds.update(ours)
    assert different == []
    assert kinds == {"syntax", "true", "false", "null", "error"}


def result(filters: SqlFilterCache, text: str, message: dict[str, str]) -> str:
    """Our result of an expression for a message."""
    try:
        found = filters.compile(text)
        value = found.evaluate(message)
    except FilterSyntaxError:
        return "syntax"
    except EvaluationError:
        assert not found.matches(message)
        return "error"
    assert found.matches(message) is (value is True)
    return str(value).lower().replace("none", "null")
