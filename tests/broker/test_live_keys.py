"""Every key that a running broker lets change reaches the parts that act on it.

Three checks, over all such keys without a list of them:

- A broker whose keys were changed with UPDATE_BROKER_CONFIG has the state of a broker that was started with the new
  values. A part that copied a value is found by its old value.
- No part holds the settings from before the change.
- Code that runs while the broker is up reads the key. A key that only the start reads is found by its lack of readers.

The messages say which part, which key, and what to do.
"""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import Field, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from broker_cases import BrokerCase
from state_graph import state_of

import gantrymq
from gantrymq.config.broker_settings import BrokerConfig, is_live
from gantrymq.config.grpc_settings import GrpcConfig
from gantrymq.config.keys import fields_by_key
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.remoting.codes import RequestCode, ResponseCode

KINDS = (BrokerConfig, MessageStoreConfig, GrpcConfig)
ABSENT = "absent"
OTHER_TEXTS = {
    "defaultMessageRequestMode": "POP",
    "deleteWhen": "05",
    "haAllowedSlaves": "10.0.0.0/8",
    "messageDelayLevel": "1s 2s",
    "namesrvAddr": "127.0.0.1:1",
    "recoverRule": "4.x",
    "regionId": "elsewhere",
}
# Parts whose state follows from when or how often something happened, not from a setting.
HISTORY = (
    "_server.",  # connections
    "measures.store.",
    "tables.topics._table['TBW102']",  # autoCreateTopicEnable creates it at a start alone, as in RocketMQ
    "tables.topics.edits",
    "tables.topics._version",
    "routes[<RequestCode.UPDATE_BROKER_CONFIG: 25>][0].self._version",
    "outer.",  # what the name servers of namesrvAddr were told
    "_client.",
)
REMEDY = (
    "Let the part read `config` again at each use. Add a part of the store to the list of store/live.py (Live.add); a "
    "part of the broker reads LiveConfig. If the part cannot be changed while it runs, declare the key with "
    "at_start=True, so that updateBrokerConfig refuses it."
)


def live_keys() -> dict[str, Field[Any]]:
    """The keys that UPDATE_BROKER_CONFIG changes."""
    return {name: spec for kind in KINDS for name, spec in fields_by_key(kind).items() if is_live(name)}


def other_value(name: str, spec: Field[Any], now: object) -> object:
    """Another valid value of a key."""
    if isinstance(now, bool):
        return not now
    if isinstance(now, int):
        return now + 1 if now < spec.metadata["max_value"] else now - 1
    assert name in OTHER_TEXTS, f"{name} is a new live key with a text: add another valid value of it to OTHER_TEXTS"
    return OTHER_TEXTS[name]


def shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


async def kept_by_parts(names: list[str]) -> set[str]:
    """Return a line for each part that acts as before after an update of these keys."""
    async with AsyncExitStack() as running:
        root = Path(running.enter_context(tempfile.TemporaryDirectory()))
        changed, twin = BrokerCase(root / "changed"), BrokerCase(root / "twin")
        keys = {name: spec for name, spec in live_keys().items() if name in names}
        settings = changed.server.config
        owners = {
            name: settings.store if hasattr(settings.store, keys[name].name) else settings.broker for name in keys
        }
        values = {name: other_value(name, spec, getattr(owners[name], spec.name)) for name, spec in keys.items()}
        started = BrokerCase(root / "started", **{spec.name: values[name] for name, spec in keys.items()})
        for case in (changed, twin, started):
            await running.enter_async_context(case)
        before, same, meant = [state_of(case.server, KINDS)[0] for case in (changed, twin, started)]
        body = "".join(f"{name}={shown(value)}\n" for name, value in values.items())
        answer = await changed.ask(RequestCode.UPDATE_BROKER_CONFIG, body.encode())
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        after, holders = state_of(changed.server, KINDS)
        config = changed.server.config
        lines = {
            f"{path} is a copy of the settings from before the update. {REMEDY}"
            for path, held in holders.items()
            if not any(held is one for one in (config.broker, config.store, config.grpc))
        }
        for name, spec in keys.items():
            holding = [held for held in (config.broker, config.store, config.grpc) if hasattr(held, spec.name)]
            assert {shown(getattr(held, spec.name)) for held in holding} == {shown(values[name])}, name
        for path in sorted(before.keys() | after.keys() | meant.keys()):
            was, now, then = (state.get(path, ABSENT) for state in (before, after, meant))
            if was == same.get(path, ABSENT) == now != then and not path.startswith(HISTORY):
                lines.add(f"{path} is {now!r} after the update, and {then!r} in a broker that was started so. {REMEDY}")
        return lines


async def guilty_keys(names: list[str]) -> list[str]:
    """Return the keys whose update leaves a part as it was. Raises nothing for the others."""
    if not await kept_by_parts(names):
        return []
    if len(names) == 1:
        return names
    half = len(names) // 2
    return [*await guilty_keys(names[:half]), *await guilty_keys(names[half:])]


@pytest.mark.asyncio
async def test_broker_with_changed_keys_has_state_of_one_started_with_them() -> None:
    names = list(live_keys())
    lines = await kept_by_parts(names)
    if lines:
        lines &= await kept_by_parts(names)  # a time that was equal by chance is not equal again
    assert not lines, "\n".join([*sorted(lines), f"The keys: {', '.join(await guilty_keys(names))}"])


# Code that runs once, before the first request. A key that only this code reads is not live.
RUNS_ONCE = frozenset(
    """
    __init__ __post_init__ open of of_broker start bind load _load _start _make_tables _make_context _make_parts
    _open_store _schedule_all _housekeepers _timer_runners
    """.split()
)
FILES_OF_START = ("store/recovery/", "store/opening.py", "store/geometry.py", "store/contents.py", "cli/", "config/")


def reads(tree: ast.AST, function: str = "") -> Iterator[tuple[str, str]]:
    """Yield the name of each attribute that is read, and the function that reads it. A lambda is a function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr, function
        inner = function
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = node.name
        elif isinstance(node, ast.Lambda):
            inner = "a lambda"
        yield from reads(node, inner)


@cache
def attributes_read_at_use() -> frozenset[str]:
    """The attributes that code of a running broker reads, by whatever object."""
    root = Path(gantrymq.__file__).parent
    found: set[str] = set()
    for package in ("store", "ha", "broker", "grpc", "metrics", "remoting", "embedded"):
        for path in (root / package).rglob("*.py"):
            if not path.relative_to(root).as_posix().startswith(FILES_OF_START):
                found.update(name for name, function in reads(ast.parse(path.read_text())) if function not in RUNS_ONCE)
    return frozenset(found)


def properties_of_settings() -> dict[str, set[str]]:
    """The properties of settings classes: what each one reads."""
    root = Path(gantrymq.__file__).parent / "config"
    found: dict[str, set[str]] = {}
    for path in root.glob("*settings.py"):
        for name, function in reads(ast.parse(path.read_text())):
            found.setdefault(function, set()).add(name)
    return {name: read for name, read in found.items() if any(hasattr(kind, name) for kind in KINDS)}


def test_each_live_key_is_read_while_broker_runs() -> None:
    through = properties_of_settings()
    for name, spec in live_keys().items():
        names = {spec.name} | {prop for prop, read in through.items() if spec.name in read and prop not in RUNS_ONCE}
        assert names & attributes_read_at_use(), (
            f"{name} can be changed while the broker runs, but only code of the start reads .{spec.name}, so a change "
            f"has no effect. {REMEDY}"
        )


def forget_at_start(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Declare a key as live, as an author may do who forgets its part."""
    for kind in KINDS:
        for spec in fields(kind):
            if spec.metadata.get("key") == name:
                monkeypatch.setattr(spec, "metadata", MappingProxyType({**spec.metadata, "at_start": False}))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("key", "part"),
    [
        ("messageDelayLevel", "store._schedule._delay_levels_ms"),
        ("enabledAppendPropCRC", "store._puts._appender._append_crc"),
        ("transientStorePoolEnable", "flush_policy.lends"),
    ],
)
async def test_live_key_without_reading_part_is_named(monkeypatch: pytest.MonkeyPatch, key: str, part: str) -> None:
    forget_at_start(monkeypatch, key)
    assert any(part in line and "at_start=True" in line for line in await kept_by_parts([key]))


def test_live_key_read_only_by_recovery_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_at_start(monkeypatch, "recoverRule")
    with pytest.raises(AssertionError, match=r"recoverRule can be changed .* only code of the start reads"):
        test_each_live_key_is_read_while_broker_runs()
