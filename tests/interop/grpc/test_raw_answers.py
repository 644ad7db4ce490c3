"""The same calls without an SDK at the real proxy in LOCAL mode and at ours: the answers differ as documented only."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from .conftest import SERVERS, server_of
from .raw_calls import played
from .servers import await_broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Answers = dict[str, dict[str, str]]
DOCUMENT = Path(__file__).parents[3] / "docs" / "grpc.md"


@dataclass(frozen=True)
class Difference:
    """Calls that are answered differently, and why: how the row of docs/grpc.md begins that documents it.

    ``calls`` is a pattern of "group: name"; ``theirs`` and ``ours`` are patterns of how the answers begin.
    """

    row: str
    calls: str
    theirs: str
    ours: str


NOT_CHECKED = "a request that RocketMQ does not check"
MALFORMED = "a malformed receipt handle"
OTHERS_HANDLE = "in LOCAL mode a receipt handle of another broker is OK"
LITE = "lite topics"
RETRY_TOPIC = "in LOCAL mode a group without deliveries to repeat"
DIFFERENT = (
    Difference(
        "in LOCAL mode a consumer of a group that is not in the table",
        "settings: consumer of absent",
        "gRPC INVALID_ARGUMENT group not found",
        r'\{"settings"',
    ),
    Difference(
        NOT_CHECKED, "settings: consumer (as a producer|without a type)", "gRPC INTERNAL", "gRPC INVALID_ARGUMENT"
    ),
    Difference(RETRY_TOPIC, "routes: route of %RETRY%g", "TOPIC_NOT_FOUND", "OK"),
    Difference(RETRY_TOPIC, "sends: to %RETRY%g", "INTERNAL_SERVER_ERROR Cannot invoke", "OK"),
    Difference(NOT_CHECKED, "sends: to %DLQ%g", "INTERNAL_SERVER_ERROR Cannot invoke", "TOPIC_NOT_FOUND"),
    Difference(
        NOT_CHECKED, "sends: negative priority", "INTERNAL_SERVER_ERROR The priority", "BAD_REQUEST The priority"
    ),
    Difference(LITE, "sends: a lite topic", "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", "ILLEGAL_LITE_TOPIC"),
    Difference(LITE, "clients: SyncLiteSubscription", "ILLEGAL_TOPIC", "gRPC UNIMPLEMENTED"),
    Difference(NOT_CHECKED, "batches: of delayed messages", "INTERNAL_SERVER_ERROR Delayed", "BAD_REQUEST Delayed"),
    Difference(NOT_CHECKED, "receives: an absent topic", "INTERNAL_SERVER_ERROR Cannot invoke", "TOPIC_NOT_FOUND"),
    Difference(
        NOT_CHECKED,
        "receives: fewer than no messages wanted",
        "INTERNAL_SERVER_ERROR Illegal Capacity",
        "INTERNAL_SERVER_ERROR the broker",
    ),
    Difference("NO_PERMISSION of a broker", "receives: a group that is off", "INTERNAL_SERVER_ERROR", "FORBIDDEN"),
    Difference(MALFORMED, r"handles: \w+: (empty|text|too short)", "INTERNAL_SERVER_ERROR", "INVALID_RECEIPT_HANDLE"),
    Difference(OTHERS_HANDLE, r"handles: \w+: of an absent broker", "OK", "BAD_REQUEST"),
    Difference(
        "a receipt handle with a revive queue that is not there",
        r"handles: (acknowledge|ChangeInvisibleDuration): of an absent revive queue",
        "OK",
        "INTERNAL_SERVER_ERROR",
    ),
)


@pytest.fixture(scope="module")
def answers(java: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answers]:
    """What each server answered."""

    def play(kind: str) -> Answers:
        with server_of(kind, tmp_path_factory) as server, await_broker(server.namesrv) as admin:
            return played(server.endpoints, admin)

    tmp_path_factory.getbasetemp()  # made here, because its first call empties the directory
    with ThreadPoolExecutor(len(SERVERS)) as threads:
        return dict(zip(SERVERS, threads.map(play, SERVERS), strict=True))


def test_answers_differ_as_documented(answers: dict[str, Answers]) -> None:
    """Each difference is a documented one, and each documented difference is there."""
    theirs, ours = (flat(answers[kind]) for kind in SERVERS)
    assert theirs.keys() == ours.keys()
    different = {call: (theirs[call], ours[call]) for call in theirs if theirs[call] != ours[call]}
    explained = {call: explanation(call, *pair) for call, pair in different.items()}
    assert {call: different[call] for call, why in explained.items() if why is None} == {}
    assert set(explained.values()) == set(DIFFERENT)


def test_each_answer_difference_has_documented_row() -> None:
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")]
    assert [one.row for one in DIFFERENT if not any(row.startswith(f"| {one.row}") for row in rows)] == []


def flat(answers: Answers) -> dict[str, str]:
    return {f"{group}: {name}": answer for group, calls in answers.items() for name, answer in calls.items()}


def explanation(call: str, theirs: str, ours: str) -> Difference | None:
    for one in DIFFERENT:
        if re.fullmatch(one.calls, call) and re.match(one.theirs, theirs) and re.match(one.ours, ours):
            return one
    return None
