"""JSON as RocketMQ's fastjson writes it: the keys of a map of integers stand without quotes (``{0:32,1:32}``).

Source: RemotingSerializable, ConfigManager.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from gantrymq.model.java import encode_utf8

# A string, passed over as it is (one without an end, to the end: else every quote in it would begin a search of its
# own); or an integer key behind a brace or a comma.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|([{,]\s*)(-?\d+)(\s*:)', re.DOTALL)


def loads(text: str) -> Any:
    """Read fastjson's or standard JSON, control characters within strings too; raises ValueError."""
    try:
        return json.loads(_TOKEN.sub(_quote_key, text), strict=False)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _quote_key(match: re.Match[str]) -> str:
    before, key, after = match.groups()
    return match.group() if key is None else f'{before}"{key}"{after}'


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
