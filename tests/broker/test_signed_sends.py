"""Signed sends that are verified on their bytes: what is read so is what the ordinary way reads, and nothing else passes.

Forged, foreign and odd requests are refused alone, and a change of users or policies holds at the next read.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from broker_cases import BrokerCase, StartBroker
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from send_frames import fields_of, frame, header_of

from gantrymq.auth.policies import Policy, PolicyType, parse_entry
from gantrymq.auth.users import User
from gantrymq.broker.acl.user_access import UserAccess
from gantrymq.errors import RemotingCommandError
from gantrymq.remoting.acl import ACCESS_KEY, SIGNATURE, UNIQUE_KEY_QUERY, calculate_signature, signature_matches
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand, encode_command
from gantrymq.remoting.connection import Connection
from gantrymq.remoting.signed_sends import signed_send, signed_send_in

SECRET = "the secret"
NO, OK = int(ResponseCode.NO_PERMISSION), int(ResponseCode.SUCCESS)
NAMES = [*"abcdefghijklmn", "SecurityToken", ACCESS_KEY]
ODD_NAMES = [UNIQUE_KEY_QUERY, "ns", "ProxyAccessKey", "z", "B", "ü", "signature", ""]
texts = st.text(max_size=8) | st.sampled_from(["", "null", "\x01\x02", '"\\', "ü", "\U0001f600", "true", "0"])
odd_values = st.none() | st.integers(-9, 9) | st.booleans() | st.just("\ud800") | st.just([])


@st.composite
def headers(draw: st.DrawFn) -> bytes:
    """A header in JSON with the fields of a send, and sometimes with others, in any order, escaped in any way."""
    pairs: list[tuple[str, Any]] = [(ACCESS_KEY, "alice")] * draw(st.sampled_from([1, 1, 1, 0]))
    pairs += draw(st.lists(st.tuples(st.sampled_from(NAMES), texts), max_size=16))
    if draw(st.sampled_from([False, False, True])):
        pairs += draw(st.lists(st.tuples(st.sampled_from(NAMES + ODD_NAMES), texts | odd_values), max_size=2))
    version = draw(st.sampled_from([0, 399, 400, 513]))
    signed = {name: text for name, text in pairs if isinstance(text, str)}
    if version <= 399 and draw(st.booleans()):
        signed.pop(UNIQUE_KEY_QUERY, None)
    forged = draw(st.sampled_from([False, False, True]))
    pairs.append((SIGNATURE, calculate_signature(signed, b"body", SECRET + "x" * forged)))
    pairs += draw(st.sampled_from([[], [], [], [(SIGNATURE, "ü")]]))
    parts = []
    for name, value in draw(st.permutations(pairs)):
        key = json.dumps(name)
        if len(name) == 1 and draw(st.sampled_from([False, False, False, True])):
            key = f'"\\u{ord(name):04x}"'
        parts.append(f"{key}:{json.dumps(value, ensure_ascii=isinstance(value, str) and draw(st.booleans()))}")
    fields = draw(st.sampled_from([",", " , "])).join(parts)
    return f'{{"code":310,"extFields":{{{fields}}},"opaque":1,"version":{version}}}'.encode("utf-8", "surrogatepass")


@settings(max_examples=400)
@given(headers())
def test_send_read_from_its_bytes_is_the_one_of_the_ordinary_way(header: bytes) -> None:
    [request] = Connection().receive(frame(header, b"body"))
    send, in_run = signed_send(request), signed_send_in(memoryview(header))
    assert send == in_run
    try:
        fields = request.ext_fields
    except RemotingCommandError:
        assert send is None
        return
    is_plain = set(fields) <= {*NAMES, SIGNATURE} and ACCESS_KEY in fields and b"null" not in header
    assume(send is not None or not is_plain or b":[]" in header or not header.isascii())
    if send is None:
        return
    assert (send.access_key, send.topic, send.signature) == (fields[ACCESS_KEY], fields.get("b", ""), fields[SIGNATURE])
    for secret in (SECRET, SECRET + "x"):
        assert send.is_signed(secret, b"body") == signature_matches(request, secret)
    assert not (send.is_signed(SECRET, b"bodz") or send.is_signed("", b"body"))
