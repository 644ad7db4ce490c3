"""The delay ladder stands in one table, and everything that retries a message follows it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import gantrymq
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.grpc.clients.settings import retry_delay_ms
from gantrymq.model import delays
from gantrymq.remoting.bodies.group import CustomizedRetryPolicy, GroupRetryPolicy

SOURCE = Path(gantrymq.__file__).parent
# What asks the table: the broker's send-back and revive, the consumers' send-back and pop, the 5.x clients.
USERS = {
    "broker/pop/revive.py",
    "broker/processors/send_back.py",
    "client/consumer/push/concurrent.py",
    "client/consumer/push/pop_push.py",
    "client/consumer/push/send_back.py",
    "config/grpc_settings.py",
    "config/settings.py",
    "grpc/clients/settings.py",
    "remoting/bodies/group.py",
}


def test_default_levels_are_those_of_settings_and_of_retry_policies() -> None:
    levels_ms = MessageStoreConfig().delay_levels_ms
    assert list(levels_ms) == CustomizedRetryPolicy().next == [seconds * 1000 for seconds in delays.DELAYS_S]
    assert len(levels_ms) == 18


def test_first_retry_waits_ten_seconds_and_last_two_hours() -> None:
    assert [delays.retry_delay(failures) for failures in (-1, 0, 1, 15, 99)] == [10, 10, 30, 7200, 7200]
    assert [delays.retry_level(failures) for failures in (0, 1)] == [3, 4]
    assert delays.pop_rewrite_delays_s()[:4] == (10, 20, 30, 60)
    assert retry_delay_ms(GroupRetryPolicy(), 0) == 10_000


def test_short_retry_list_of_group_repeats_its_last_delay() -> None:
    policy = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(next=[7, 8]))
    assert [retry_delay_ms(policy, failures) for failures in (0, 5)] == [8, 8]


def test_changed_first_level_moves_every_first_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "FIRST_RETRY_LEVEL", 2)
    assert delays.retry_level(0) == 2
    assert delays.retry_delay(0) == 5
    assert delays.pop_rewrite_delays_s()[0] == 5
    assert retry_delay_ms(GroupRetryPolicy(), 0) == 5_000


def ladders(tree: ast.AST) -> Iterator[int]:
    """The lines that spell the end of the ladder out, as a text or as numbers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "30m 1h 2h" in node.value:
            yield node.lineno
        if isinstance(node, ast.Tuple | ast.List):
            numbers = [one.value for one in node.elts if isinstance(one, ast.Constant)]
            if numbers[-3:] in ([1800, 3600, 7200], [1_800_000, 3_600_000, 7_200_000]):
                yield node.lineno


def test_retry_delays_are_defined_in_one_table() -> None:
    spelled, users = [], set()
    for path in SOURCE.rglob("*.py"):
        name, text = path.relative_to(SOURCE).as_posix(), path.read_text()
        spelled += [f"{name}:{line}" for line in ladders(ast.parse(text)) if name != "model/delays.py"]
        if "gantrymq.model.delays import" in text:
            users.add(name)
    assert not spelled, "take the delays from model/delays.py"
    assert users >= USERS, "a retry has a delay of its own: ask retry_level or retry_delay of model/delays.py"
