"""Signed sends that are verified on their bytes: what is read so is what the ordinary way reads.

Forged, foreign and odd requests are refused alone, and a change of users or policies holds at the next read.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
import pytest_asyncio
from broker_cases import BrokerCase, StartBroker
from hypothesis import given, settings
from hypothesis import strategies as st
from send_frames import fields_of, frame, header_of

from gantrymq.auth.policies import Policy, PolicyType, parse_entry
from gantrymq.auth.users import User
from gantrymq.broker.acl.user_access import UserAccess
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
def headers(draw: st.DrawFn) -> tuple[bytes, bool]:
    """A header in JSON with the fields of a send, and sometimes with others, in any order, escaped in any way.

    And whether all its fields are texts of a signed send.
    """
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
    is_plain = any(name == ACCESS_KEY for name, _ in pairs) and all(
        name in {*NAMES, SIGNATURE} and isinstance(value, str) and value != "\ud800" for name, value in pairs
    )
    header = f'{{"code":310,"extFields":{{{fields}}},"opaque":1,"version":{version}}}'
    return header.encode("utf-8", "surrogatepass"), is_plain


@settings(max_examples=400)
@given(headers())
def test_send_read_from_its_bytes_is_the_one_of_the_ordinary_way(made: tuple[bytes, bool]) -> None:
    header, is_plain = made
    [request] = Connection().receive(frame(header, b"body"))
    send, in_run = signed_send(request), signed_send_in(memoryview(header))
    assert in_run is None or in_run == send  # a header that only fastjson reads is read for a single send
    assert in_run is not None or not is_plain
    if send is None:
        return
    fields = request.ext_fields
    assert (send.access_key, send.topic, send.signature) == (fields[ACCESS_KEY], fields.get("b", ""), fields[SIGNATURE])
    for secret in (SECRET, SECRET + "x"):
        assert send.is_signed(secret, b"body") == signature_matches(request, secret)
    assert not send.is_signed(SECRET, b"bodz")


ALICE, ROOT = ("alice", "alicepw"), ("root", "rootpw")
AUTH = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
}


def signed(number: int, user: tuple[str, str] = ALICE, *, topic: str = "T") -> bytes:
    fields = fields_of(number, topic) | {ACCESS_KEY: user[0]}
    fields[SIGNATURE] = calculate_signature(fields, b"body", user[1])
    return frame(header_of(fields, number), b"body")


def forged(number: int) -> bytes:
    return signed(number).replace(b'"e":"%d"' % (number % 4), b'"e":"%d"' % ((number + 1) % 4))


class Sender:
    """A connection to a broker with the user alice, that has Pub on T."""

    def __init__(self, case: BrokerCase, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.case, self._reader, self._writer = case, reader, writer
        self._connection = Connection()

    @property
    def access(self) -> UserAccess:
        access = self.case.server.access
        assert isinstance(access, UserAccess)
        return access

    async def answers(self, frames: Sequence[bytes]) -> list[tuple[int, int, str | None]]:
        """The number, code and remark of each answer, sorted by number, to frames that are written together."""
        self._writer.write(b"".join(frames))
        answers: list[RemotingCommand] = []
        while len(answers) < len(frames):
            data = await self._reader.read(1 << 16)
            assert data
            answers += self._connection.receive(data)
        return sorted((one.opaque, one.code, one.remark if one.code else "") for one in answers)

    async def edit(self, decision: str | None) -> None:
        """Give alice another policy for T; None deletes her."""
        if decision is None:
            await self.access.change(lambda users: users.delete_user(ALICE[0], by_super=True))
            return
        policy = Policy(PolicyType.CUSTOM, (parse_entry("Topic:T", ["Pub"], [], decision),))
        await self.access.change(lambda users: users.merge_acl(ALICE[0], [policy]))

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


StartSender = Callable[..., Awaitable[Sender]]


@pytest_asyncio.fixture
async def start_sender(start_broker: StartBroker) -> AsyncIterator[StartSender]:
    senders = []

    async def start(**settings: Any) -> Sender:
        case = await start_broker(**{**AUTH, "broker_fast_failure_enable": False, **settings})
        host, port = case.server.address.rsplit(":", 1)
        sender = Sender(case, *await asyncio.open_connection(host, int(port)))
        senders.append(sender)
        await sender.access.change(lambda users: users.create_user(User(*ALICE), by_super=True))
        await sender.edit("Allow")
        assert await sender.answers([signed(0)]) == [(0, OK, "")]
        return sender

    yield start
    await asyncio.gather(*(sender.close() for sender in senders))


@pytest.fixture
def ordinary(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the requests that are checked in the ordinary way."""
    numbers: list[int] = []
    check = UserAccess._refusal

    def counted(self: UserAccess, channel: Any, request: RemotingCommand) -> RemotingCommand | None:
        numbers.append(request.opaque)
        return check(self, channel, request)

    monkeypatch.setattr(UserAccess, "_refusal", counted)
    return numbers


@pytest.mark.asyncio
async def test_known_sender_passes_by_its_signature(start_sender: StartSender, ordinary: list[int]) -> None:
    sender = await start_sender()
    assert ordinary == [0]
    assert await sender.answers([signed(1)]) == [(1, OK, "")]
    assert await sender.answers([signed(n) for n in range(2, 20)]) == [(n, OK, "") for n in range(2, 20)]
    assert ordinary == [0]


@pytest.mark.asyncio
async def test_forged_send_in_run_is_refused_alone(start_sender: StartSender) -> None:
    sender = await start_sender()
    wrong = {
        **{3: forged(3), 5: signed(5, ("alice", "wrong")), 7: signed(7, ("nobody", "alicepw"))},
        9: frame(header_of(fields_of(9) | {ACCESS_KEY: "alice"}, 9), b"body"),
    }
    refused = {
        **dict.fromkeys((3, 5, 9), "check signature failed."),
        7: "User:nobody is not found.",
    }
    answers = await sender.answers([wrong.get(n) or signed(n) for n in range(1, 12)])
    assert answers == [(n, NO, refused[n]) if n in refused else (n, OK, "") for n in range(1, 12)]
    assert sender.case.server.measures.store.put_times == 1 + 11 - len(wrong)


@pytest.mark.asyncio
@pytest.mark.parametrize("together", [1, 8])
async def test_change_of_user_or_policy_holds_at_next_read(start_sender: StartSender, together: int) -> None:
    sender = await start_sender()
    numbers = range(1, together + 1)

    async def results(**more: str) -> set[tuple[int, str | None]]:
        return {(code, remark) for _, code, remark in await sender.answers([signed(n, **more) for n in numbers])}

    assert await results() == {(OK, "")}
    await sender.edit("Deny")
    assert [code for code, _ in await results()] == [NO]
    await sender.edit("Allow")
    assert await results() == {(OK, "")}
    await sender.edit(None)
    assert await results() == {(NO, "User:alice is not found.")}


@pytest.mark.asyncio
@pytest.mark.parametrize("field", ["ns", UNIQUE_KEY_QUERY, "ProxyAccessKey", "a\\u0000"])
async def test_send_with_unsigned_field_does_not_pass(start_sender: StartSender, field: str) -> None:
    sender = await start_sender()
    frames = []
    for number in range(1, 6):
        length, header_length = struct.unpack_from(">II", signed(number))
        header = signed(number)[8 : 8 + header_length].replace(b'"a":', f'"{field}":"x","a":'.encode())
        frames.append(frame(header, b"body"))
        assert length > header_length
    assert {code for _, code, _ in await sender.answers(frames)} == {NO}


@pytest.mark.asyncio
async def test_send_in_binary_header_is_verified_too(start_sender: StartSender) -> None:
    sender = await start_sender()

    def binary(number: int, secret: str) -> bytes:
        fields = {name: text for name, text in fields_of(number).items() if text} | {ACCESS_KEY: "alice"}
        fields[SIGNATURE] = calculate_signature(fields, b"body", secret)
        return encode_command(RemotingCommand(310, ext_fields=fields, body=b"body", opaque=number, serialize_type=1))

    frames = [binary(n, "alicepw" if n % 2 else "wrong") for n in range(1, 7)]
    assert [code for _, code, _ in await sender.answers(frames)] == [OK, NO] * 3


@pytest.mark.asyncio
async def test_code_that_is_open_to_all_is_never_remembered(start_sender: StartSender, ordinary: list[int]) -> None:
    sender = await start_sender(authentication_whitelist="310")
    assert await sender.answers([signed(n) for n in (1, 2)]) == [(n, OK, "") for n in (1, 2)]
    assert ordinary == [0, 1, 2]


@pytest.mark.asyncio
async def test_other_topic_of_known_sender_is_refused(start_sender: StartSender) -> None:
    sender = await start_sender()
    for frames in ([signed(1, topic="U")], [signed(n, topic="U") for n in range(1, 6)]):
        assert {code for _, code, _ in await sender.answers(frames)} == {NO}
