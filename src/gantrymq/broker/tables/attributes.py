"""Attributes of topics and groups: ``+name=value`` sets one, ``-name`` removes it.

Source: AttributeUtil, AttributeParser, TopicAttributes, SubscriptionGroupAttributes.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from gantrymq.errors import GantrymqError
from gantrymq.model.java import LONG_MAX, parse_number

_MINUTES_A_MONTH = 30 * 24 * 60


class WrongAttributeError(GantrymqError):
    """An attribute is unknown, or its value is invalid. The text is RocketMQ's."""


class Attribute(NamedTuple):
    """``verify`` returns why a value is invalid, or None. An attribute that is not changeable is set at creation."""

    changeable: bool
    verify: Callable[[str], str | None]


def _one_of(name: str, *values: str) -> Callable[[str], str | None]:
    def verify(value: str) -> str | None:
        return None if value in values else f"value is not in set: [{', '.join(values)}]"

    return verify


def _between(low: int, high: int) -> Callable[[str], str | None]:
    def verify(value: str) -> str | None:
        try:
            number = parse_number(value, LONG_MAX)
        except ValueError as error:
            return str(error)
        return None if low <= number <= high else f"value is not in range({low}, {high})"

    return verify


# In the order of a HashSet.
_MESSAGE_TYPES = ("UNSPECIFIED", "MIXED", "TRANSACTION", "PRIORITY", "FIFO", "DELAY", "LITE", "NORMAL")

TOPIC_ATTRIBUTES: Mapping[str, Attribute] = {
    "queue.type": Attribute(changeable=False, verify=_one_of("queue.type", "BatchCQ", "SimpleCQ")),
    "cleanup.policy": Attribute(changeable=False, verify=_one_of("cleanup.policy", "DELETE", "COMPACTION")),
    "message.type": Attribute(changeable=True, verify=_one_of("message.type", *_MESSAGE_TYPES)),
    "reserve.time": Attribute(changeable=True, verify=_between(-1, LONG_MAX)),
    "lite.topic.expiration": Attribute(changeable=True, verify=_between(-1, _MINUTES_A_MONTH)),
}
GROUP_ATTRIBUTES: Mapping[str, Attribute] = {
    "priority.factor": Attribute(changeable=True, verify=_between(0, 100)),
}


def parse_attributes(text: str | None) -> dict[str, str]:
    """Parse ``+a=1,-b`` into a table whose keys keep their sign. Raises WrongAttributeError."""
    table: dict[str, str] = {}
    for entry in (text or "").split(","):
        if not entry:
            continue
        name, separator, value = entry.partition("=")
        if separator:
            if "+" not in name:
                raise WrongAttributeError(f"add/alter attribute format is wrong: {name}")
        elif "-" not in name:
            raise WrongAttributeError(f"delete attribute format is wrong: {name}")
        if name in table:
            raise WrongAttributeError(f"key duplication: {name}")
        table[name] = value
    return table


def alter(
    known: Mapping[str, Attribute], current: Mapping[str, str], changes: Mapping[str, str], *, create: bool
) -> dict[str, str]:
    """A copy of ``current`` with ``changes``, whose keys begin with + or -. Raises WrongAttributeError."""
    result = dict(current)
    seen: set[str] = set()
    for key, value in changes.items():
        sign, name = key[:1], key[1:]
        if not name or "+" in name or "-" in name:
            raise WrongAttributeError("kv string format wrong.")
        if name in seen:
            raise WrongAttributeError(f"alter duplication key. key: {name}")
        seen.add(name)
        _check_sign(sign, name, current, create=create)
        _check_value(known, name, value, create=create, delete=sign == "-")
        if sign == "+":
            result[name] = value
        else:
            result.pop(name, None)
    return result


def _check_sign(sign: str, name: str, current: Mapping[str, str], *, create: bool) -> None:
    if create and sign != "+":
        raise WrongAttributeError(f"only add attribute is supported while creating topic. key: {name}")
    if sign not in ("+", "-"):
        raise WrongAttributeError(f"wrong format key: {name}")
    if sign == "-" and name not in current:
        raise WrongAttributeError(f"attempt to delete a nonexistent key: {name}")


def _check_value(known: Mapping[str, Attribute], name: str, value: str, *, create: bool, delete: bool) -> None:
    attribute = known.get(name)
    if attribute is None:
        raise WrongAttributeError(f"unsupported key: {name}")
    if not create and not attribute.changeable:
        raise WrongAttributeError(f"attempt to update an unchangeable attribute. key: {name}")
    wrong = None if delete else attribute.verify(value)
    if wrong is not None:
        raise WrongAttributeError(wrong)
