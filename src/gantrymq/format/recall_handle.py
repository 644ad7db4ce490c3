"""The handle that recalls a timer message: the URL-safe Base64 text of ``v1 topic broker timestamp uniqueKey``.

Source: RecallMessageHandle.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from gantrymq.model.java import decode_utf8, encode_utf8

_VERSION_1 = "v1"
_ITEMS = 5
_FROM_URL = bytes.maketrans(b"-_+/", b"+/!!")  # only the URL-safe alphabet is allowed


class RecallHandle(NamedTuple):
    """The data with which a producer recalls a message. ``timestamp`` is the text of its TIMER_OUT_MS plus 1."""

    topic: str
    broker_name: str
    timestamp: str
    unique_key: str


def encode_recall_handle(handle: RecallHandle) -> str:
    """The URL-safe Base64 text of a handle (RecallMessageHandle.HandleV1.buildHandle)."""
    return base64.urlsafe_b64encode(encode_utf8(" ".join((_VERSION_1, *handle)))).decode("ascii")


def decode_recall_handle(text: str) -> RecallHandle:
    """Decode the text of a handle. Raises ValueError if it is not one."""
    try:
        raw = text.encode("ascii").translate(_FROM_URL)
        items = decode_utf8(base64.b64decode(raw + b"=" * (-len(raw) % 4), validate=True)).split(" ")
    except (UnicodeEncodeError, binascii.Error) as error:
        raise ValueError("recall handle is invalid") from error
    while items and not items[-1]:  # Java's split drops empty parts at the end
        items.pop()
    if not items or items[0] != _VERSION_1 or len(items) < _ITEMS:
        raise ValueError("recall handle is invalid")
    return RecallHandle(*items[1:_ITEMS])
