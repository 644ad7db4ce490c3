"""The login of a slave at an HA port, before any byte of the log. RocketMQ has none; without it frames are RocketMQ's.

Challenge and response: no password is sent, and each end proves that it has it over a number that the other has chosen,
so that nothing of an earlier connection is of use.

=================  ====================================================================================
direction          bytes
=================  ====================================================================================
slave to master    8: ``LOGIN``, a negative offset, which no master takes for a request or a report
master to slave    12 + 32: ``LOGIN``, the size -1, a random number
slave to master    2 + n + 32 + 32: the user's name, another random number, a proof
master to slave    1 + 32: 1 and a proof, or
master to slave    1 + 2 + n: 0 and why not; then it closes the connection
=================  ====================================================================================

A proof is HMAC-SHA256 of the password over which end it is, the name and both numbers. After it everything is as
without a login. Only TLS (haTlsEnable) keeps a third party on the way from reading or changing what follows.

A peer that does not log in is closed, unless haAllowedSlaves has its address: RocketMQ's slaves are allowed so. A
master that asks for no login, of RocketMQ as well, ignores a negative offset or closes the connection; a slave that
wants to log in copies nothing then.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from gantrymq.errors import LogCopyError
from gantrymq.ha.copy import CopyState
from gantrymq.ha.frames import LOGIN_BYTES, LOGIN_OFFSET, REPORT_BYTES, encode_header
from gantrymq.ha.master_link import Connect

_NONCE_BYTES = _PROOF_BYTES = 32
_NAME = struct.Struct(">H")
_MAX_TEXT_BYTES = 1_024
_LOGIN_S = 10.0
_SLAVE, _MASTER = b"gantrymq ha login 1 slave\0", b"gantrymq ha login 1 master\0"
_CHALLENGE_HEAD = encode_header(LOGIN_OFFSET, -1)
_SET_THERE = "set haAuthenticationEnabled=true at the master, or false here"


@dataclass(frozen=True, slots=True)
class Credentials:
    """The user with which a slave logs in, or has logged in."""

    name: str
    password: str = field(repr=False)


class SlaveLogins(Protocol):
    """The users of a master. Thread rule: the event loop's thread."""

    def secret_of(self, access_key: str) -> str | None:
        """The password of a user; None if there is none of this name."""
        ...

    def slave_refusal(self, ip: str, access_key: str, is_signed: Callable[[str], bool]) -> str | None:
        """Why a user may not copy the log, or None. ``is_signed`` takes the password."""
        ...


# A slave's end


def login_connect(connect: Connect, credentials: Callable[[], Credentials]) -> Connect:
    """A way to connect that logs in. It raises OSError as ``connect``, and LogCopyError if the login fails."""

    def connect_with_login(address: tuple[str, int], timeout_s: float) -> socket.socket:
        connected = connect(address, timeout_s)
        try:
            _log_in(connected, credentials())
        except TimeoutError:
            connected.close()
            raise LogCopyError(CopyState.LOGIN_FAILED, f"the master asks for no login: {_SET_THERE}") from None
        except BaseException:
            connected.close()
            raise
        return connected

    return connect_with_login


def _log_in(connected: socket.socket, credentials: Credentials) -> None:
    connected.sendall(LOGIN_BYTES)
    head = _receive(connected, len(_CHALLENGE_HEAD))
    if head != _CHALLENGE_HEAD:
        raise LogCopyError(CopyState.LOGIN_FAILED, f"the master sends its log without a login: {_SET_THERE}")
    theirs, ours, name = _receive(connected, _NONCE_BYTES), secrets.token_bytes(_NONCE_BYTES), credentials.name.encode()
    key = credentials.password.encode()
    proof = _proof(key, _SLAVE, name, theirs, ours)
    connected.sendall(_NAME.pack(len(name)) + name + ours + proof)
    if _receive(connected, 1) != b"\1":
        (length,) = _NAME.unpack(_receive(connected, _NAME.size))
        reason = _receive(connected, min(length, _MAX_TEXT_BYTES)).decode("utf-8", "replace")
        raise LogCopyError(CopyState.LOGIN_FAILED, f"the master refuses the login: {reason!a}")
    if not hmac.compare_digest(_receive(connected, _PROOF_BYTES), _proof(key, _MASTER, name, theirs, ours)):
        raise LogCopyError(CopyState.LOGIN_FAILED, "the master does not know the password of its user")


def _receive(connected: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = connected.recv(size - len(received))
        if not piece:
            text = f"the master closed the connection during the login: {_SET_THERE}"
            raise LogCopyError(CopyState.LOGIN_FAILED, text)
        received += piece
    return received


# A master's end


class LoginRefusedError(Exception):
    """A peer may not copy the log. ``reason`` is for the master's log, and the peer has been told it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


async def receive_login(connected: socket.socket, host: str, logins: SlaveLogins) -> Credentials | bytes:
    """The user of a peer that logs in, with its password, or the first bytes of one that does not log in.

    The socket does not block. Raises LoginRefusedError, and OSError if the peer closes the connection or is silent for
    ten seconds.
    """
    async with asyncio.timeout(_LOGIN_S):
        first = await _receive_soon(connected, REPORT_BYTES)
        if first != LOGIN_BYTES:
            return first
        loop, ours = asyncio.get_running_loop(), secrets.token_bytes(_NONCE_BYTES)
        await loop.sock_sendall(connected, _CHALLENGE_HEAD + ours)
        (length,) = _NAME.unpack(await _receive_soon(connected, _NAME.size))
        if length > _MAX_TEXT_BYTES:
            raise LoginRefusedError(f"a name of {length} bytes")
        name = await _receive_soon(connected, length)
        theirs, proof = await _receive_soon(connected, _NONCE_BYTES), await _receive_soon(connected, _PROOF_BYTES)

        def is_signed(password: str) -> bool:
            return hmac.compare_digest(proof, _proof(password.encode(), _SLAVE, name, ours, theirs))

        user = name.decode("utf-8", "replace")
        password = logins.secret_of(user)
        wrong = logins.slave_refusal(host, user, is_signed)
        if wrong is not None or password is None:
            reason = wrong or "username cannot be null."
            raw = reason.encode()[:_MAX_TEXT_BYTES]
            await loop.sock_sendall(connected, b"\0" + _NAME.pack(len(raw)) + raw)
            raise LoginRefusedError(reason)
        await loop.sock_sendall(connected, b"\1" + _proof(password.encode(), _MASTER, name, ours, theirs))
        return Credentials(user, password)


async def _receive_soon(connected: socket.socket, size: int) -> bytes:
    loop, received = asyncio.get_running_loop(), b""
    while len(received) < size:
        piece = await loop.sock_recv(connected, size - len(received))
        if not piece:
            raise ConnectionError("the peer closed the connection during the login")
        received += piece
    return received


def _proof(key: bytes, end: bytes, name: bytes, master_nonce: bytes, slave_nonce: bytes) -> bytes:
    return hmac.digest(key, end + _NAME.pack(len(name)) + name + master_nonce + slave_nonce, "sha256")
