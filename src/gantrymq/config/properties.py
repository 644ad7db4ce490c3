"""Reads a ``broker.conf`` (Java properties text) and ``key=value`` arguments into settings, and amends such a text.

A key with an effect has a field in a settings class. A key that acts in RocketMQ and has no effect here, and an unknown
key, are reported; in a file neither stops the work.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from gantrymq.config.broker_settings import BrokerConfig, is_known
from gantrymq.config.grpc_settings import WITHOUT_EFFECT as OF_PROXY
from gantrymq.config.grpc_settings import GrpcConfig
from gantrymq.config.keys import fields_by_key, read_fields
from gantrymq.config.known_keys import WITHOUT_EFFECT
from gantrymq.config.reading import Reading
from gantrymq.config.refused_keys import ServerKind, Work, key_reasons
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import ConfigError

BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_KEY = re.compile(rf"((?:\\.|[^\\=:{BLANKS}])*)[{BLANKS}]*[=:]?[{BLANKS}]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_OF_OTHER_RELEASES = {
    "storePathConsumeQueue": "consume queues are in consumequeue/ of the store",
    "storePathIndex": "index files are in index/ of the store",
    "storePathCheckpoint": "the checkpoint is checkpoint in the store",
    "storeCheckpoint": "the checkpoint is checkpoint in the store",
    "storePathAbort": "the abort file is abort in the store",
    "abortFile": "the abort file is abort in the store",
}
_FIELDS = (fields_by_key(kind) for kind in (MessageStoreConfig, BrokerConfig, GrpcConfig))
_EVERY_KEY = sorted({*WITHOUT_EFFECT, *OF_PROXY}.union(*_FIELDS))
_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|$)")
_SPECIAL = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def parse_properties(text: str) -> dict[str, str]:
    """The entries of Java properties text: ``key=value``, ``key: value``, ``key value``; # and ! comments, last wins.

    Blanks at the end of a value are removed: RocketMQ trims texts, and cannot read a number or a bool with one.
    """
    entries: dict[str, str] = {}
    for line in _logical_lines(text):
        if start := _KEY.match(line):
            entries[_unescaped(start[1])] = _unescaped(line[start.end() :]).rstrip()
    return entries


def parse_json(text: str) -> dict[str, str]:
    """The entries of an ``rmq-proxy.json``: one object of texts, numbers and bools. null leaves a key at its default.

    Raises ConfigError.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError("rmq-proxy.json", text[:32], f"JSON ({error})") from None
    if not isinstance(document, dict):
        raise ConfigError("rmq-proxy.json", text[:32], "one JSON object")
    entries = {}
    for name, value in document.items():
        if isinstance(value, list | dict):
            raise ConfigError(name, str(value)[:32], "a text, a number, true or false")
        if value is not None:
            entries[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return entries


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments; a line that ends with a single backslash continues after the next line's blanks."""
    pending: str | None = None
    for line in _LINE_END.split(text):
        line = line.lstrip(BLANKS)
        if not pending and (not line or line[0] in "#!"):
            pending = None
            continue
        whole = (pending or "") + line
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        pending = whole[:-1] if is_continued else None
        if not is_continued:
            yield whole
    if pending:
        yield pending


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_unescape, text)


def _unescape(match: "re.Match[str]") -> str:
    code = match.group(1)
    return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPED.get(code, code)


def parse_assignments(assignments: Iterable[str], also: Callable[[str], bool] = lambda key: False) -> dict[str, str]:
    """Parse ``key=value`` arguments. Raises ConfigError for one without ``=`` and for an unknown key.

    ``also`` says whether a key that is not a broker's may be set.
    """
    entries: dict[str, str] = {}
    for assignment in assignments:
        key, separator, value = assignment.partition("=")
        if not separator or not key:
            raise ConfigError("--set", assignment, "KEY=VALUE")
        if not (is_known(key) or key in _OF_OTHER_RELEASES or also(key)):
            raise ConfigError(key, value, f"it is not a key of RocketMQ{_nearest(key)}")
        entries[key] = value
    return entries


def read_settings(entries: Mapping[str, str], base: MessageStoreConfig | None = None) -> Reading:
    """Convert text entries to settings. Raises ConfigError for a bad value.

    A key that acts in RocketMQ and not here is a warning, also one that says that the store has another form.
    """
    config = replace(base or MessageStoreConfig(), **read_fields(MessageStoreConfig, entries))
    without = [reason.text for reason in key_reasons(entries, ServerKind.BROKER, Work.WRITE)]
    return Reading(config, frozenset(entries), (*unknown_keys(entries), *without), dict(entries))


def unknown_keys(entries: Iterable[str], also: Callable[[str], bool] = lambda key: False) -> list[str]:
    """A warning for each key that RocketMQ 5.5.0 does not know and that has no effect here.

    ``also`` says whether a key that is not a broker's is known.
    """
    return [_remark(key) for key in entries if not (is_known(key) or also(key))]


def _remark(key: str) -> str:
    if key in _OF_OTHER_RELEASES:
        return f"{key} has no effect: RocketMQ 5.5.0 does not know it; {_OF_OTHER_RELEASES[key]}"
    return f"{key} is not a key of RocketMQ{_nearest(key)}"


def _nearest(key: str) -> str:
    from difflib import get_close_matches

    nearest = get_close_matches(key, _EVERY_KEY, 3)
    return f"; nearest: {', '.join(nearest)}" if nearest else ""


def amended(text: str, entries: Mapping[str, str]) -> str:
    """``text`` with ``entries``: each replaces the line of its key, or is appended.

    Of several lines with one key only one is left. :func:`parse_properties` reads the entries back.
    """
    left, lines = dict(entries), []
    for line in _entry_lines(text):
        key = next(iter(parse_properties(line)), None)
        if key not in entries:
            lines.append(line)
        elif key is not None and key in left:
            lines.append(_line(key, left.pop(key)))
    if lines and not lines[-1].endswith(("\n", "\r")):
        lines[-1] += "\n"
    if lines and _is_continued(lines[-1]):
        lines[-1] = lines[-1].rstrip("\r\n") + "\n\n"
    return "".join([*lines, *(_line(*entry) for entry in left.items())])


def _entry_lines(text: str) -> Iterator[str]:
    """The lines; a line that ends with a backslash is joined with the next."""
    pending = ""
    for line in _LINES.findall(text):
        pending += line
        if pending and (not line or not _is_continued(pending)):
            yield pending
            pending = ""


def _is_continued(lines: str) -> bool:
    """Whether the last line of an entry ends with an unescaped backslash."""
    last = _LINES.findall(lines)[-2].rstrip("\r\n")
    return lines.lstrip(BLANKS)[:1] not in ("#", "!") and (len(last) - len(last.rstrip("\\"))) % 2 == 1


def _line(key: str, value: str) -> str:
    escaped = "".join(_SPECIAL.get(char, char) for char in value)
    if escaped.startswith(" "):
        escaped = "\\" + escaped
    return f"{key}={escaped}\n"
