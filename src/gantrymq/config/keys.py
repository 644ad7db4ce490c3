"""Settings classes whose fields have RocketMQ's keys: declaring, validating, reading from text and writing.

A class declares its fields with :func:`key` and calls :func:`check_values` in its ``__post_init__``.
"""

import operator
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import Field, field, fields
from enum import Enum
from typing import Any

from gantrymq.errors import ConfigError
from gantrymq.model.java import INT_MAX

_TRUTH = {"true": True, "false": False}
_ALLOWED = {bool: "true or false", int: "a whole number", str: "a text"}
# int() also accepts 1_0, which is a typing error, and raises another ValueError for thousands of digits.
_NUMBER = re.compile(r"([+-]?\d{1,99})[lL]*")
# Characters that end a line or a message property, or that UTF-8 cannot encode.
_NOT_IN_A_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
MAX_TEXT_LENGTH = 8_192
MASK = "******"  # shown instead of a secret


def key(
    name: str,
    default: Any,
    *,
    min_value: int | None = None,
    max_value: int = INT_MAX,
    allowed: str = "",
    at_start: bool = False,
    is_secret: bool = False,
) -> Any:
    """A dataclass field with RocketMQ's key and the bounds of its number.

    Without ``max_value`` the bound is Java's largest int: a longer wait would end a thread with an OverflowError.
    ``allowed`` is a regular expression that a text must match as a whole. A field that is read only ``at_start`` cannot
    be changed later. The value of one that ``is_secret`` is in no error and no answer.
    """
    rules = {"key": name, "min_value": min_value, "max_value": max_value, "allowed": allowed, "at_start": at_start}
    return field(default=default, metadata=rules | {"is_secret": is_secret}, repr=not is_secret)


def fields_by_key(kind: Any) -> "dict[str, Field[Any]]":
    """The fields of a settings class or instance by their key, in their order."""
    return {spec.metadata["key"]: spec for spec in fields(kind) if "key" in spec.metadata}


def check_values(config: Any) -> None:
    """Validate every value of a settings object: the type of its default, the bounds of a number. Raises ConfigError.

    Converted are: the text of an enum's item, integers of other libraries, a path for a file name, and None for an
    empty text.
    """
    for name, spec in fields_by_key(config).items():
        value, default = getattr(config, spec.name), spec.default
        if not isinstance(value, type(default)) or isinstance(value, bool) != isinstance(default, bool):
            value = _meant(name, default, value)
            object.__setattr__(config, spec.name, value)  # the class is frozen
        if isinstance(value, str):
            check_text(name, value, is_secret=spec.metadata["is_secret"])
            if spec.metadata["allowed"] and not re.fullmatch(spec.metadata["allowed"], value):
                raise ConfigError(name, value[:64], f"a text that matches {spec.metadata['allowed']}")
        elif isinstance(value, int) and not isinstance(value, bool):
            _check_bounds(name, spec, value)


def check_text(name: str, text: str, *, is_secret: bool = False) -> None:
    """Raise ConfigError if ``text`` is too long for a setting, or has a forbidden character."""
    if len(text) > MAX_TEXT_LENGTH and is_secret:
        raise ConfigError(name, MASK, f"at most {MAX_TEXT_LENGTH} characters, not {len(text)}")
    check_length(name, text)
    wrong = _NOT_IN_A_TEXT.search(text)
    if wrong is not None:
        shown = MASK if is_secret else text[:64]
        raise ConfigError(name, shown, f"a text without the character U+{ord(wrong[0]):04X}")


def check_length(name: str, text: str) -> None:
    """Raise ConfigError if ``text`` is too long for a setting."""
    if len(text) > MAX_TEXT_LENGTH:
        raise ConfigError(name, f"{text[:64]}…", f"at most {MAX_TEXT_LENGTH} characters, not {len(text)}")


def require_same_at_start(running: Any, wanted: Any) -> None:
    """Raise ConfigError if ``wanted`` changes a key of the running settings that is read only at the start."""
    has, will_have = write_fields(running), write_fields(wanted)
    for name, spec in fields_by_key(running).items():
        if spec.metadata["at_start"] and has[name] != will_have[name]:
            if spec.metadata["is_secret"]:
                raise ConfigError(name, MASK, "only a start reads it")
            raise ConfigError(name, will_have[name], f"it is {has[name]!r}, and only a start reads it")


def read_fields(kind: Any, entries: Mapping[str, str]) -> dict[str, Any]:
    """The values of ``entries`` for the fields of a settings class, by attribute. Raises ConfigError.

    Keys without a field are ignored.
    """
    known = fields_by_key(kind)
    return {known[name].name: _parse(name, known[name], text) for name, text in entries.items() if name in known}


def write_fields(config: Any) -> dict[str, str]:
    """A settings object as text entries under RocketMQ's keys, in the order of its fields."""
    return {name: _show(getattr(config, spec.name)) for name, spec in fields_by_key(config).items()}


def shown_fields(config: Any) -> dict[str, str]:
    """As :func:`write_fields`, with a mask for each secret that is set."""
    secrets = {name for name, spec in fields_by_key(config).items() if spec.metadata["is_secret"]}
    return {name: MASK if text and name in secrets else text for name, text in write_fields(config).items()}


def _check_bounds(name: str, spec: "Field[Any]", number: int) -> None:
    min_value, max_value = spec.metadata["min_value"], spec.metadata["max_value"]
    if min_value is not None and number < min_value:
        raise ConfigError(name, number, f"at least {min_value}")
    if number > max_value:
        raise ConfigError(name, number, f"at most {max_value}")


def _parse(name: str, spec: "Field[Any]", text: str) -> Any:
    default = spec.default
    if isinstance(default, bool):
        if text.lower() not in _TRUTH:
            raise ConfigError(name, text, _ALLOWED[bool])
        return _TRUTH[text.lower()]
    if isinstance(default, Enum):
        return _item(name, default, text)
    if isinstance(default, int):
        number = _NUMBER.fullmatch(text.strip())
        if number is None:
            raise ConfigError(name, text, _ALLOWED[int])
        return int(number[1])
    return text


def _meant(name: str, default: Any, given: Any) -> Any:
    if isinstance(default, Enum):
        return _item(name, default, given)
    if default == "" and given is None:
        return ""
    if isinstance(default, str) and hasattr(given, "__fspath__"):
        given = given.__fspath__()
        if isinstance(given, str):  # a path may be of bytes
            return given
    if type(default) is int and not isinstance(given, bool):
        with suppress(TypeError):
            return operator.index(given)
    raise ConfigError(name, given, _ALLOWED[type(default)])


def _item(name: str, default: Enum, given: object) -> Enum:
    """The item of an enum for a text: by the items' values, or by their names if the values are not texts."""
    items = {item.value if isinstance(item.value, str) else item.name: item for item in type(default)}
    if not isinstance(given, str) or given not in items:
        raise ConfigError(name, given, "one of " + ", ".join(items))
    return items[given]


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value.value) if isinstance(value, Enum) else str(value)
