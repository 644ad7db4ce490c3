"""Settings classes whose fields carry RocketMQ's keys: how one is declared, checked, read from text and written.

A class declares its fields by :func:`key` and calls :func:`check_values` in its ``__post_init__``.
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
# Not what int() takes besides: 1_0 is a typing error, and of thousands of digits it makes a ValueError.
_NUMBER = re.compile(r"([+-]?\d{1,99})[lL]*")
# No text has a character that ends a line or a property of a message, or that UTF-8 cannot write.
_NOT_IN_A_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
MAX_TEXT_LENGTH = 8_192


def key(
    name: str,
    default: Any,
    *,
    least: int | None = None,
    most: int = INT_MAX,
    multiple: int = 1,
    allowed: str = "",
    at_start: bool = False,
) -> Any:
    """A dataclass field under RocketMQ's key, with the bounds of its number: an int of Java where not told of a long.

    Nothing here waits or counts for longer than that, and a thread that is told to ends with an OverflowError.
    ``allowed`` is a regular expression that a text has to match as a whole. What is read ``at_start`` alone cannot be
    changed later.
    """
    rules = {
        "key": name, "least": least, "most": most, "multiple": multiple, "allowed": allowed, "at_start": at_start,
    }  # fmt: skip
    return field(default=default, metadata=rules)


def fields_by_key(kind: Any) -> "dict[str, Field[Any]]":
    """The fields of a settings class (or of an instance) that have a key of RocketMQ, by it, in their order."""
    return {spec.metadata["key"]: spec for spec in fields(kind) if "key" in spec.metadata}


def check_values(config: Any) -> None:
    """Check every value of a settings object: of its default's type, a number within its bounds; raises ConfigError.

    An item of an enum may be given by its text, a whole number as another library has them, a file's name as a path,
    and no text as None: what is meant takes their place.
    """
    for name, spec in fields_by_key(config).items():
        value, default = getattr(config, spec.name), spec.default
        if not isinstance(value, type(default)) or isinstance(value, bool) != isinstance(default, bool):
            value = _meant(name, default, value)
            object.__setattr__(config, spec.name, value)  # frozen for all others
        if isinstance(value, str):
            check_text(name, value)
            if spec.metadata["allowed"] and not re.fullmatch(spec.metadata["allowed"], value):
                raise ConfigError(name, value[:64], f"a text that matches {spec.metadata['allowed']}")
        elif isinstance(value, int) and not isinstance(value, bool):
            _check_bounds(name, spec, value)


def check_text(name: str, text: str) -> None:
    """Raises ConfigError where ``text`` is too long for a setting, or has a character that no setting may have."""
    check_length(name, text)
    wrong = _NOT_IN_A_TEXT.search(text)
    if wrong is not None:
        raise ConfigError(name, text[:64], f"a text without the character U+{ord(wrong[0]):04X}")


def check_length(name: str, text: str) -> None:
    """Raises ConfigError where ``text`` is too long for a setting."""
    if len(text) > MAX_TEXT_LENGTH:
        raise ConfigError(name, f"{text[:64]}…", f"at most {MAX_TEXT_LENGTH} characters, not {len(text)}")


def require_same_at_start(running: Any, wanted: Any) -> None:
    """Raises ConfigError where settings differ that only a start reads: ``wanted`` is for what runs already."""
    has, will_have = write_fields(running), write_fields(wanted)
    for name, spec in fields_by_key(running).items():
        if spec.metadata["at_start"] and has[name] != will_have[name]:
            raise ConfigError(name, will_have[name], f"it is {has[name]!r}, and only a start reads it")


def read_fields(kind: Any, entries: Mapping[str, str]) -> dict[str, Any]:
    """The values that ``entries`` give for the fields of a settings class, by attribute; raises ConfigError.

    Keys that it does not have are passed over.
    """
    known = fields_by_key(kind)
    return {known[name].name: _parse(name, known[name], text) for name, text in entries.items() if name in known}


def write_fields(config: Any) -> dict[str, str]:
    """A settings object as text entries under RocketMQ's keys, in the order of its fields."""
    return {name: _show(getattr(config, spec.name)) for name, spec in fields_by_key(config).items()}


def _check_bounds(name: str, spec: "Field[Any]", number: int) -> None:
    least, most, multiple = (spec.metadata[bound] for bound in ("least", "most", "multiple"))
    if least is not None and number < least:
        raise ConfigError(name, number, f"at least {least}")
    if number > most:
        raise ConfigError(name, number, f"at most {most}")
    if number % multiple:
        raise ConfigError(name, number, f"a multiple of {multiple}")


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
        if isinstance(given, str):  # a path may be bytes
            return given
    if type(default) is int and not isinstance(given, bool):
        with suppress(TypeError):
            return operator.index(given)
    raise ConfigError(name, given, _ALLOWED[type(default)])


def _item(name: str, default: Enum, given: object) -> Enum:
    """The item of an enum that a text means: by the items' values, or where those are no texts by their names."""
    items = {item.value if isinstance(item.value, str) else item.name: item for item in type(default)}
    if not isinstance(given, str) or given not in items:
        raise ConfigError(name, given, "one of " + ", ".join(items))
    return items[given]


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value.value) if isinstance(value, Enum) else str(value)
