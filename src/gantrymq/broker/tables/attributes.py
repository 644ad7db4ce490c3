"""Attributes of topics and groups: ``+name=value`` sets one, ``-name`` removes it.

RocketMQ's rules for names and values come first. A value that is valid there and that this broker would not act on is
refused. docs/compatibility/topic-attributes.md lists them.

Source: AttributeUtil, AttributeParser, TopicAttributes, SubscriptionGroupAttributes.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from gantrymq.model.java import LONG_MAX, parse_number
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.transport.dispatcher import RequestRefused

_MINUTES_A_MONTH = 30 * 24 * 60
# In the order of a HashSet.
_MESSAGE_TYPES = ("UNSPECIFIED", "MIXED", "TRANSACTION", "PRIORITY", "FIFO", "DELAY", "LITE", "NORMAL")


def wrong_attribute(text: str) -> RequestRefused:
    """An attribute is unknown, or its value is invalid. The text is RocketMQ's."""
    return RequestRefused(ResponseCode.SYSTEM_ERROR, text)


def _unsupported(name: str, value: str) -> RequestRefused:
    """RocketMQ accepts the value, and this broker would not do what it says."""
    # The code is that for message.type=MIXED without enableMixedMessageType.
    return RequestRefused(ResponseCode.INVALID_PARAMETER, f"{name}={value} is not supported.")


class Attribute(NamedTuple):
    """``verify`` returns why a value is invalid, or None. An attribute that is not changeable is set at creation.

    Of the valid values this broker supports those of ``supported``; None: all.
    """

    changeable: bool
    verify: Callable[[str], str | None]
    supported: frozenset[str] | None = None

    def supports(self, value: str) -> bool:
        """Whether this broker does what a valid value says."""
        return self.supported is None or value in self.supported


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


TOPIC_ATTRIBUTES: Mapping[str, Attribute] = {
    "queue.type": Attribute(False, _one_of("queue.type", "BatchCQ", "SimpleCQ"), frozenset({"SimpleCQ"})),
    "cleanup.policy": Attribute(False, _one_of("cleanup.policy", "DELETE", "COMPACTION"), frozenset({"DELETE"})),
    "message.type": Attribute(True, _one_of("message.type", *_MESSAGE_TYPES), frozenset(_MESSAGE_TYPES) - {"LITE"}),
    "reserve.time": Attribute(True, _between(-1, LONG_MAX), frozenset({"-1"})),
    "lite.topic.expiration": Attribute(True, _between(-1, _MINUTES_A_MONTH), frozenset({"-1"})),
}
GROUP_ATTRIBUTES: Mapping[str, Attribute] = {
    "priority.factor": Attribute(True, _between(0, 100)),
}


def priority_factor(topic: Mapping[str, str], group: Mapping[str, str]) -> int:
    """The share in percent of a group's pops of a topic that take high priorities first, by their attributes.

    (TopicConfig.getTopicMessageType, SubscriptionGroupConfig.getPriorityFactor)
    """
    if topic.get("message.type") != "PRIORITY":
        return 0
    try:
        return parse_number(group.get("priority.factor", ""), LONG_MAX)
    except ValueError:
        return 100


def parse_attributes(text: str | None) -> dict[str, str]:
    """Parse ``+a=1,-b`` into a table whose keys keep their sign. Raises RequestRefused."""
    table: dict[str, str] = {}
    for entry in (text or "").split(","):
        if not entry:
            continue
        name, separator, value = entry.partition("=")
        if separator:
            if "+" not in name:
                raise wrong_attribute(f"add/alter attribute format is wrong: {name}")
        elif "-" not in name:
            raise wrong_attribute(f"delete attribute format is wrong: {name}")
        if name in table:
            raise wrong_attribute(f"key duplication: {name}")
        table[name] = value
    return table


def alter(
    known: Mapping[str, Attribute], current: Mapping[str, str], changes: Mapping[str, str], *, create: bool
) -> dict[str, str]:
    """A copy of ``current`` with ``changes``, whose keys begin with + or -.

    Raises RequestRefused.
    """
    result = dict(current)
    seen: set[str] = set()
    for key, value in changes.items():
        sign, name = key[:1], key[1:]
        if not name or "+" in name or "-" in name:
            raise wrong_attribute("kv string format wrong.")
        if name in seen:
            raise wrong_attribute(f"alter duplication key. key: {name}")
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
        raise wrong_attribute(f"only add attribute is supported while creating topic. key: {name}")
    if sign not in ("+", "-"):
        raise wrong_attribute(f"wrong format key: {name}")
    if sign == "-" and name not in current:
        raise wrong_attribute(f"attempt to delete a nonexistent key: {name}")


def _check_value(known: Mapping[str, Attribute], name: str, value: str, *, create: bool, delete: bool) -> None:
    attribute = known.get(name)
    if attribute is None:
        raise wrong_attribute(f"unsupported key: {name}")
    if not create and not attribute.changeable:
        raise wrong_attribute(f"attempt to update an unchangeable attribute. key: {name}")
    wrong = None if delete else attribute.verify(value)
    if wrong is not None:
        raise wrong_attribute(wrong)
    if not delete and not attribute.supports(value):
        raise _unsupported(name, value)


def unsupported(known: Mapping[str, Attribute], table: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """What a table of RocketMQ says that this broker does not do: by ``attribute=value`` the topics or groups.

    ``table`` has the attributes of each topic or group.
    """
    owners_of: dict[str, list[str]] = {}
    for owner, attributes in table.items():
        for name, value in attributes.items():
            if name not in known or not known[name].supports(value):
                owners_of.setdefault(f"{name}={value}", []).append(owner)
    return owners_of
