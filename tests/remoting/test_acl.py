"""The ACL signature, and that nothing but the right secret gives it."""

import base64
import hmac

from hypothesis import example, given
from hypothesis import strategies as st

from gantrymq.model.java import encode_utf8
from gantrymq.remoting.acl import SessionCredentials, calculate_signature, signature_matches
from gantrymq.remoting.command import RemotingCommand, encode_command
from gantrymq.remoting.connection import Connection
from gantrymq.remoting.headers.offset import GetMaxOffsetRequestHeader


def signed(credentials: SessionCredentials) -> RemotingCommand:
    command = RemotingCommand.request(GetMaxOffsetRequestHeader(topic="TopicTest", queue_id=3), b"body")
    credentials.sign(command)
    [received] = Connection().receive(encode_command(command))
    return received


def test_signature_with_other_secret_does_not_match() -> None:
    received = signed(SessionCredentials("RocketMQ", "12345678"))
    assert signature_matches(received, "12345678")
    assert not signature_matches(received, "12345679")
    received.body += b"x"
    assert not signature_matches(received, "12345678")


def test_changed_field_breaks_signature() -> None:
    received = signed(SessionCredentials("RocketMQ", "12345678", "token"))
    assert received.ext_fields["SecurityToken"] == "token"
    assert signature_matches(received, "12345678")
    received.ext_fields["queueId"] = "4"
    assert not signature_matches(received, "12345678")


def test_signature_is_deterministic() -> None:
    command = RemotingCommand.request(GetMaxOffsetRequestHeader(topic="T", queue_id=0))
    credentials = SessionCredentials("k", "s")
    credentials.sign(command)
    first = dict(command.ext_fields)
    credentials.sign(command)
    assert command.ext_fields == first


def test_request_without_signature_matches_nothing() -> None:
    assert not signature_matches(RemotingCommand(30), "12345678")


def test_secrets_are_not_shown() -> None:
    assert "12345678" not in repr(SessionCredentials("RocketMQ", "12345678", "token"))


@given(st.binary(max_size=200), st.text(max_size=80), st.text(max_size=40))
@example(bytes(2047), "k" * 64, "x")
@example(bytes(2048), "k" * 65, "x" * 5000)
@example(bytes(32 << 10), "", "")
@example(bytes((32 << 10) + 1), "\ud800", "")
def test_signature_of_any_body_is_hmac_sha1(body: bytes, secret: str, text: str) -> None:
    wanted = hmac.new(encode_utf8(secret), encode_utf8("a" + text) + body, "sha1").digest()
    assert (
        calculate_signature({"b": text, "a": "a", "Signature": "old"}, body, secret)
        == base64.b64encode(wanted).decode()
    )
