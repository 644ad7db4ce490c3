"""Methods of an object that are methods of a part which it owns.

A method that only calls the same method of a part costs a call for each put, and its docstring stands twice. A
forwarded method is looked up once for each object: from then on ``store.put`` is ``store._puts.put``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


def forward(part: str, method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Return a method that is ``method`` of the attribute ``part``, for the body of a class."""
    return cast(Callable[Concatenate[Any, P], R], _Forwarded(part, method))


class _Forwarded:
    def __init__(self, part: str, method: Callable[..., Any]) -> None:
        self._part, self.__func__, self.__doc__ = part, method, method.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, owner: object, kind: type | None = None) -> Callable[..., Any]:
        if owner is None:  # ``Store.put(store, message)``
            return self._of_class()
        bound: Callable[..., Any] = getattr(getattr(owner, self._part), self.__func__.__name__)
        vars(owner)[self._name] = bound
        return bound

    def _of_class(self) -> Callable[..., Any]:
        @wraps(self.__func__)
        def call(owner: object, *values: Any, **named: Any) -> Any:
            return getattr(getattr(owner, self._part), self.__func__.__name__)(*values, **named)

        return call
