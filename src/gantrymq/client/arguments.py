"""Validation of the arguments of public methods. A wrong value raises MQClientError where it is given.

Without this check a wrong value fails later and less clearly: a broker refuses the request with a number, a
subscription matches nothing, or a time limit is over at once.

A rule belongs to the name of a parameter, so that ``topic`` means the same in every method.
"""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from typing import Any, TypeVar, cast

from gantrymq.client.requests.subscription import SQL92, TAG
from gantrymq.config.name_servers import hint, is_address
from gantrymq.errors import MQClientError
from gantrymq.model.java import NOT_UTF8, is_utf8
from gantrymq.model.message_queue import MessageQueue

# Returns the value, as a list if it can be iterated only once. Raises ValueError with what is allowed.
Rule = Callable[[Any], Any]

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")
_NAME_ALLOWED = "a text of 1 to 255 letters, digits and %|_-"


def name(value: Any) -> str:
    """Validate the name of a topic or a group."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError(_NAME_ALLOWED)
    return value


def text(value: Any) -> str:
    """Validate a text that is not blank."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text")
    if not is_utf8(value):
        raise ValueError(f"a text: {NOT_UTF8}")
    return value


def number(minimum: int, maximum: int = (1 << 63) - 1) -> Rule:
    """Validate a whole number in [``minimum``, ``maximum``]. numpy's integers are accepted, True and False are not."""

    def rule(value: Any) -> int:
        allowed = f"a whole number from {minimum}" + (f" to {maximum}" if maximum < (1 << 63) - 1 else "")
        try:
            whole = None if isinstance(value, bool) else operator.index(value)
        except TypeError:
            whole = None
        if whole is None or not minimum <= whole <= maximum:
            raise ValueError(allowed)
        return whole

    return rule


def seconds(value: Any) -> float:
    """Validate a span of time in seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ValueError("a number of seconds from 0")
    return value


def address(value: Any) -> str:
    """Validate the address of a broker."""
    if not isinstance(value, str) or not is_address(value):
        raise ValueError(f"the address of a broker, host:port{hint(str(value))}")
    return value


def is_queue(value: object) -> bool:
    """Whether ``value`` is a MessageQueue with texts as topic and broker name, and a number from 0."""
    return (
        isinstance(value, MessageQueue)
        and isinstance(cast(object, value.topic), str)
        and isinstance(cast(object, value.broker_name), str)
        and isinstance(cast(object, value.queue_id), int)
        and value.queue_id >= 0
    )


def queue(value: Any) -> MessageQueue:
    """Validate one queue."""
    if not is_queue(value):
        raise ValueError("a MessageQueue with a number from 0")
    return cast(MessageQueue, value)


def queues(value: Any) -> list[MessageQueue]:
    """Validate several queues."""
    several = list(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes) else None
    if several is None or not all(map(is_queue, several)):
        raise ValueError("several MessageQueues, as a list")
    return several


def offsets(value: Any) -> dict[MessageQueue, int]:
    """Validate a mapping from queue to offset."""
    allowed = "offsets from 0 by MessageQueue"
    if not isinstance(value, Mapping) or not all(map(is_queue, value)):
        raise ValueError(allowed)
    try:
        return {queue: number(0)(offset) for queue, offset in value.items()}
    except ValueError as error:
        raise ValueError(allowed) from error


def texts(value: Any) -> Mapping[str, str]:
    """Validate a mapping from name to text."""
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for pair in value.items() for text in pair):
        raise ValueError("texts by name, as a dict")
    return value


def expression(value: Any) -> str:
    """Validate the filter expression of a subscription. None means all messages, as in RocketMQ."""
    if value is not None and not isinstance(value, str):
        raise ValueError('a text such as "TagA || TagB", or "*" for all')
    if value is not None and not is_utf8(value):
        raise ValueError(f'a text such as "TagA || TagB": {NOT_UTF8}')
    return value or "*"


def expression_type(value: Any) -> str:
    """Validate the language of an expression: TAG or SQL92."""
    if value not in (TAG, SQL92):
        raise ValueError(f"{TAG!r} or {SQL92!r}")
    return cast(str, value)


def callback(*parameters: str) -> Rule:
    """Validate a callable with ``parameters``: a function, a coroutine function or an object with ``__call__``."""
    shown = ", ".join(parameters)

    def rule(value: Any) -> Any:
        inner = value
        while isinstance(inner, partial):
            inner = inner.func
        if not callable(value) or isinstance(value, type):
            raise ValueError(f"a function of ({shown})")
        if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
            raise ValueError(f"a function of ({shown}) without yield: a generator's body would not run")
        try:
            inspect.signature(value).bind(*parameters)
        except TypeError as error:
            raise ValueError(f"a function of ({shown})") from error
        except ValueError:  # a function written in C may have no signature
            pass
        return value

    return rule


def flag(value: Any) -> bool:
    """Validate True or False."""
    if not isinstance(value, bool):
        raise ValueError("True or False")
    return value


_RULES: dict[str, Rule] = {
    "topic": name,
    "group": name,
    "broker": address,
    "broker_name": text,
    "cluster": text,
    "client_id": text,
    "msg_id": text,
    "unique_key": text,
    "recall_handle": text,
    "key": text,
    "namespace": text,
    "value": text,
    "expression": expression,
    "expression_type": expression_type,
    "queue": queue,
    "queues": queues,
    "offsets": offsets,
    "offset": number(0),
    "begin": number(0),
    "end": number(0),
    "max_num": number(1),
    "max_messages": number(1),
    "under_way": number(1),
    "timeout_ms": number(0),
    "timestamp_ms": number(-2),
    "begin_ms": number(0),
    "end_ms": number(0),
    "read_queue_nums": number(1, 65_535),
    "write_queue_nums": number(1, 65_535),
    "perm": number(0, 7),
    "settings": texts,
    "attributes": texts,
    "force": flag,
    "persist": flag,
    "order_topic": flag,
    "remove_offset": flag,
    "jstack": flag,
}


def checked(method: F, rules: Mapping[str, Rule] | None = None) -> F:
    """A method that checks its arguments by :data:`_RULES` and ``rules``; ``rules`` has precedence.

    None is allowed for a parameter whose default is None. The method raises MQClientError for a wrong argument.
    """
    signature = inspect.signature(method)
    all_rules = {**_RULES, **(rules or {})}
    mine = {
        parameter.name: (all_rules[parameter.name], parameter.default)
        for parameter in signature.parameters.values()
        if parameter.name in all_rules
    }

    def check(given: tuple[Any, ...], by_name: dict[str, Any]) -> inspect.BoundArguments:
        bound = signature.bind(*given, **by_name)
        for parameter, value in bound.arguments.items():
            if parameter in mine and not (value is None and mine[parameter][1] is None):
                try:
                    bound.arguments[parameter] = mine[parameter][0](value)
                except ValueError as error:
                    shown = f"{method.__name__}: {parameter}={value!r:.200}"
                    raise MQClientError(f"{shown} is not allowed: {error}") from None
        return bound

    if inspect.iscoroutinefunction(method):

        @wraps(method)
        async def awaited(*given: Any, **by_name: Any) -> Any:
            bound = check(given, by_name)
            return await method(*bound.args, **bound.kwargs)

        return cast(F, awaited)

    @wraps(method)
    def called(*given: Any, **by_name: Any) -> Any:
        bound = check(given, by_name)
        return method(*bound.args, **bound.kwargs)

    return cast(F, called)


def checked_by(**rules: Rule) -> Callable[[F], F]:
    """:func:`checked` with rules for one method only."""
    return lambda method: checked(method, rules)


def checks_arguments(**rules: Rule) -> Callable[[C], C]:
    """A class decorator: public methods are :func:`checked`. ``rules`` replaces rules for parameters of this class."""

    def decorate(kind: C) -> C:
        for attribute, member in list(vars(kind).items()):
            if not attribute.startswith("_") and inspect.isfunction(member) and not hasattr(member, "__wrapped__"):
                names = set(inspect.signature(member).parameters)
                if names & (_RULES.keys() | rules.keys()):
                    setattr(kind, attribute, checked(member, rules))
        return kind

    return decorate
