"""The state of a running program as paths and values: ``store._appender._append_crc`` is ``False``.

A path is the chain of attributes, cells of closures and items of containers that leads from a root to a value. The walk
meets each object once, on its shortest path, so two programs that were built alike have the same paths.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import BuiltinMethodType, CellType, FunctionType, MethodType, ModuleType
from typing import Any

_VALUES = (bool, int, float, str, bytes, Enum, Path, type(None))
_NOT_FOLLOWED = (type, ModuleType, logging.Logger, asyncio.AbstractEventLoop, threading.Thread, BuiltinMethodType)
_MAX_ITEMS = 256


def state_of(root: object, leave_out: Collection[type]) -> tuple[dict[str, object], dict[str, object]]:
    """Return the values by path, and the objects of the types in ``leave_out``, which are not followed, by path."""
    values: dict[str, object] = {}
    left: dict[str, object] = {}
    seen = {id(root)}
    alive = [root]  # a temporary object whose id is used again would hide another object
    waiting = deque([("", root)])
    while waiting:
        path, owner = waiting.popleft()
        for name, value in _parts(owner):
            at = f"{path}{name}".removeprefix(".")
            if isinstance(value, _VALUES):
                values.setdefault(at, value)
            elif isinstance(value, tuple(leave_out)):
                left.setdefault(at, value)
            elif id(value) not in seen and not isinstance(value, _NOT_FOLLOWED):
                seen.add(id(value))
                alive.append(value)
                waiting.append((at, value))
    return values, left


def _parts(owner: object) -> Iterator[tuple[str, Any]]:
    if isinstance(owner, Mapping):
        yield from ((f"[{key!r}]", value) for key, value in list(owner.items())[:_MAX_ITEMS])
    elif isinstance(owner, list | tuple | set | frozenset | deque):
        yield from ((f"[{at}]", value) for at, value in enumerate(list(owner)[:_MAX_ITEMS]))
    elif isinstance(owner, FunctionType):
        names = owner.__code__.co_freevars
        yield from ((f".{name}", cell) for name, cell in zip(names, owner.__closure__ or (), strict=True))
        yield from ((f"[{at}]", value) for at, value in enumerate(owner.__defaults__ or ()))
        yield from ((f".{name}", value) for name, value in (owner.__kwdefaults__ or {}).items())
    elif isinstance(owner, CellType):
        yield ".", owner.cell_contents
    elif isinstance(owner, MethodType):
        yield ".self", owner.__self__
        yield ".function", owner.__func__
    elif isinstance(owner, functools.partial):
        yield ".function", owner.func
        yield from ((f"[{at}]", value) for at, value in enumerate(owner.args))
        yield from ((f".{name}", value) for name, value in owner.keywords.items())
    if not isinstance(owner, FunctionType):
        yield from ((f".{name}", value) for name, value in getattr(owner, "__dict__", {}).items())
        for kind in type(owner).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if hasattr(owner, name):
                    yield f".{name}", getattr(owner, name)
