"""JSON as RocketMQ's fastjson writes it: the keys of a map of integers stand without quotes (``{0:32,1:32}``).

Source: RemotingSerializable, ConfigManager.
"""

import json
import re
from collections.abc import Iterator
from json.encoder import encode_basestring
from typing import Any

from gantrymq.model.java import encode_utf8

# Everything up to the next integer key, in one step: what stands in strings is no key, and a string without an end goes
# to the end. Nothing is given back (possessive), so that time grows with the length alone, whatever a stranger sends.
NUMBER_KEY = re.compile(
    r'(?:[^"{,]++|"(?:[^"\\]++|\\.)*+"?|[{,](?!\s*+-?\d++\s*+:))*+[{,]\s*+(-?\d++)(?=\s*+:)', re.DOTALL
)

_GAP = r"(?:\s|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)*+"
_LENIENT = re.compile(
    rf""""(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+'|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/|,(?={_GAP}[\]}}])""", re.DOTALL
)


def loads(text: str) -> Any:
    """Read fastjson's or standard JSON, control characters within strings too; raises ValueError."""
    try:
        return json.loads(quote_keys(NUMBER_KEY, text), strict=False)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def loads_edited(text: str) -> Any:
    """As :func:`loads`, of a file that a person may have edited: what fastjson2 reads beyond JSON is read too.

    That is a byte order mark, comments (``//``, ``/* */``), commas in front of a closing bracket, and texts in single
    quotes. The ValueError of what neither reads names line and column.
    """
    text = text.removeprefix("\ufeff")
    try:
        return loads(text)
    except ValueError:
        return loads(_LENIENT.sub(_as_json, text))


def _as_json(found: re.Match[str]) -> str:
    """A token that JSON does not have as one that it has; lines stay as long as they were, but for quotes."""
    token = found[0]
    if token[0] == '"':
        return token.replace("\\'", "'")
    if token[0] == "'":
        return '"' + token[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
    return re.sub(r"[^\n]", " ", token)


def quote_keys(key: re.Pattern[str], text: str) -> str:
    """The text with quotes around each key, which ``key`` has as its group 1 behind everything in front of it."""
    parts, position = list[str](), 0
    while found := key.match(text, position):
        begin, end = found.span(1)
        parts += (text[position:begin], encode_basestring(text[begin:end]))
        position = end
    return "".join((*parts, text[position:])) if parts else text


def dumps(value: Any) -> bytes:
    """JSON indented by tabs as RocketMQ's configuration files are, of any text (in Java's UTF-8).

    A key that is an int stands without quotes.
    """
    return encode_utf8("".join(_write(value, "\n")))


def _write(value: Any, line: str) -> Iterator[str]:
    if not isinstance(value, dict | list) or not value:
        yield json.dumps(value, ensure_ascii=False)
        return
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    inner = line + "\t"
    for place, one in enumerate(value):
        yield (opening if not place else ",") + inner
        if isinstance(value, dict):
            yield f"{json.dumps(one, ensure_ascii=False)}:"
            one = value[one]
        yield from _write(one, inner)
    yield line + closing
