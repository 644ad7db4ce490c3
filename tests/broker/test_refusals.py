"""Refusals: each text stands once in the source, and a raised refusal is the answer."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantrymq.broker import refusals
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.dispatcher import RequestRefused, failure

BROKER = Path(refusals.__file__).parent
# Where remarks of answers are written.
ANSWERING = [
    *sorted(BROKER.glob("processors/*.py")),
    *(BROKER / name for name in ("refusals.py", "names.py", "pop/checks.py", "tables/attributes.py", "answers.py")),
]
SHORTEST = 12


def texts_in(source: str) -> Iterator[str]:
    """The literals with a space and ``SHORTEST`` characters that are no docstrings, fields of f-strings as ``{}``."""
    tree = ast.parse(source)
    docs, parts = set[ast.AST](), set[ast.AST]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            docs.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            parts |= {part for part in ast.walk(node) if part is not node}
    for node in ast.walk(tree):
        if node in docs or node in parts:
            continue
        text = ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        if " " in text and len(text) >= SHORTEST:
            yield text


def test_text_of_answer_is_in_one_place_of_source() -> None:
    counts = Counter(text for path in ANSWERING for text in texts_in(path.read_text("utf-8")))
    assert len(counts) > 50
    assert [text for text, count in counts.items() if count > 1] == []


def test_texts_in_finds_repeated_remark() -> None:
    source = (
        'def f(a):\n    "the doc of f"\n    raise R(f"topic[{a}] not exist")\n    raise R(f"topic[{b}] not exist")\n'
    )
    assert list(texts_in(source)) == ["topic[{}] not exist"] * 2


@pytest.mark.parametrize(
    ("error", "code", "remark"),
    [
        (refusals.topic_missing("T"), ResponseCode.TOPIC_NOT_EXIST, "topic[T] not exist"),
        (refusals.overload(), ResponseCode.SYSTEM_BUSY, refusals.OVERLOAD),
        (RequestRefused(ResponseCode.NO_MESSAGE), ResponseCode.NO_MESSAGE, None),
    ],
)
def test_raised_refusal_is_answer(error: RequestRefused, code: int, remark: str | None) -> None:
    request = RemotingCommand(RequestCode.POP_MESSAGE, opaque=7)
    answer = failure(request, error)
    assert (answer.code, answer.remark, answer.opaque) == (code, remark, 7)
