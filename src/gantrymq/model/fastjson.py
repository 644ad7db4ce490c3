"""JSON as RocketMQ's fastjson writes it: integer keys of a map have no quotes (``{0:32,1:32}``).

Source: RemotingSerializable, ConfigManager.
"""

import json
import re
from collections.abc import Callable, Iterator
from json.encoder import encode_basestring
from typing import Any

from gantrymq.model.java import encode_utf8


def key_pattern(key: str) -> re.Pattern[str]:
    """Compile a pattern for :func:`quote_keys`: everything up to the next ``key``, which is group 1.

    Text in strings is not a key; a string without an end reaches the end. The time is linear in the length for any
    input. A possessive group, ``(?:a|b)*+``, would say so in fewer characters, but Python before 3.11.5 matches such
    a group wrongly if it has branches. Its equivalent ``(?>(?:a|b)*)`` remembers each repetition until it ends; the
    limit of a thousand bounds that.
    """
    token = rf"""[^"{{,]++|"(?>(?:[^"\\]++|\\.)*)"?|[{{,](?!\s*+{key}\s*+:)"""
    return re.compile(rf"(?>(?:(?>(?:{token}){{1,1000}}))*)[{{,]\s*+({key})(?=\s*+:)", re.DOTALL)


NUMBER_KEY = key_pattern(r"-?\d++")

_COMMENT = r"//[^\n]*+|/\*(?>(?:[^*]|\*(?!/))*)\*/"
_GAP = rf"(?>(?:\s|{_COMMENT})*)"
_LENIENT = re.compile(rf""""(?>(?:[^"\\]++|\\.)*)"|'(?>(?:[^'\\]++|\\.)*)'|{_COMMENT}|,(?={_GAP}[\]}}])""", re.DOTALL)


NoNumber = Callable[[str], float]


def loads(text: str, no_number: NoNumber | None = None) -> Any:
    """Read fastjson's or standard JSON, control characters within strings too; raises ValueError.

    ``no_number`` converts NaN and Infinity, or raises ValueError.
    """
    try:
        return json.loads(quote_keys(NUMBER_KEY, text), strict=False, parse_constant=no_number)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def loads_edited(text: str, no_number: NoNumber | None = None) -> Any:
    """As :func:`loads`, for a file that a person may have edited: accepts what fastjson2 accepts beyond JSON.

    That is a byte order mark, comments (``//``, ``/* */``), commas before a closing bracket, and texts in single
    quotes. Raises ValueError with line and column for other text.
    """
    text = text.removeprefix("\ufeff")
    try:
        return loads(text, no_number)
    except ValueError:
        return loads(_LENIENT.sub(_as_json, text), no_number)


def repeated_keys(text: str) -> list[str]:
    """The keys that occur twice in one object of a JSON text; the last value of such a key counts."""
    repeated: dict[str, None] = {}

    def see(pairs: list[tuple[str, Any]]) -> None:
        if len(keys := {key for key, _ in pairs}) < len(pairs):
            repeated.update({key: None for key in keys if sum(other == key for other, _ in pairs) > 1})

    for readable in (text.removeprefix("\ufeff"), _LENIENT.sub(_as_json, text.removeprefix("\ufeff"))):
        try:
            json.loads(quote_keys(NUMBER_KEY, readable), strict=False, object_pairs_hook=see)
        except (ValueError, RecursionError):
            continue
        break
    return list(repeated)


def _as_json(match: re.Match[str]) -> str:
    """Replace a token that JSON lacks by a JSON token of the same length (except for escaped quotes)."""
    token = match[0]
    if token[0] == '"':
        return token.replace("\\'", "'")
    if token[0] == "'":
        return '"' + token[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
    return re.sub(r"[^\n]", " ", token)


def quote_keys(key: re.Pattern[str], text: str) -> str:
    """Put quotes around each key; group 1 of ``key`` is the key, and the match begins after the previous key."""
    parts, position = list[str](), 0
    while match := key.match(text, position):
        begin, end = match.span(1)
        parts += (text[position:begin], encode_basestring(text[begin:end]))
        position = end
    return "".join((*parts, text[position:])) if parts else text


def dumps(value: Any) -> bytes:
    """JSON with tabs as in RocketMQ's configuration files, in Java's UTF-8. Integer keys have no quotes."""
    return encode_utf8("".join(_write(value, "\n")))


def _write(value: Any, line: str) -> Iterator[str]:
    if not isinstance(value, dict | list) or not value:
        yield json.dumps(value, ensure_ascii=False)
        return
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    inner = line + "\t"
    for i, item in enumerate(value):
        yield (opening if not i else ",") + inner
        if isinstance(value, dict):
            yield f"{json.dumps(item, ensure_ascii=False)}:"
            item = value[item]
        yield from _write(item, inner)
    yield line + closing
