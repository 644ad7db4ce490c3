"""The signature of a call: ``MQv2-HMAC-SHA1`` over the time in ``x-mq-date-time``.

A verified call is made in the name of its account or user: the requests to brokers are signed with its secret, so that
access control there checks its permissions as it does for a client of remoting. With plain_acl.yml calls from
white-listed addresses need no signature.

Source: AuthenticationPipeline, DefaultAuthenticationContextBuilder, DefaultAuthenticationHandler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from gantrymq.auth.decision import ResourceAccess
from gantrymq.grpc.protocol.accesses import ANSWERED_HERE, accesses_of
from gantrymq.grpc.protocol.caller import Caller, CallIdentity
from gantrymq.grpc.protocol.codes import Code
from gantrymq.grpc.protocol.status import CallError
from gantrymq.model.host import ip_of
from gantrymq.remoting.acl import SessionCredentials
from gantrymq.remoting.forwarded import CallerProof

_AUTHORIZATION, _DATE_TIME = "authorization", "x-mq-date-time"


class AccountSecrets(Protocol):
    """The accounts or users of access control."""

    def secret_of(self, access_key: str) -> str | None:
        """The secret of an account; None if there is no such account."""
        ...

    def login_refusal(self, ip: str, access_key: str, is_signed: Callable[[str], bool]) -> str | None:
        """Why a call is not signed by a known account, or None. ``is_signed`` takes the secret."""
        ...

    def accesses_refusal(self, ip: str, access_key: str, accesses: Iterable[ResourceAccess]) -> str | None:
        """Why a user with a verified signature may not do all of ``accesses``, or None. None for an account."""
        ...


# Takes a call's metadata and the client's ip:port. Returns None for a call that need not be signed.
Authenticate = Callable[[dict[str, str], str], SessionCredentials | None]


def authenticator(accounts: AccountSecrets | None) -> Authenticate:
    """A reader of signatures, which raises CallError for a wrong or a missing one.

    Without ``accounts`` there is no access control, and signatures are not read.
    """
    if accounts is None:
        return lambda metadata, address: None

    def authenticate(metadata: dict[str, str], address: str) -> SessionCredentials | None:
        proof = read_proof(metadata, address)
        wrong = accounts.login_refusal(proof.ip, proof.access_key, proof.is_signed)
        if wrong is not None:
            raise CallError(Code.UNAUTHORIZED, wrong)
        secret = accounts.secret_of(proof.access_key)
        return None if secret is None else SessionCredentials(proof.access_key, secret)

    return authenticate


class CallGuard(Protocol):
    """Says whose call it is. Thread rule: the event loop's thread."""

    async def identify(self, metadata: dict[str, str], address: str, call: str, request: Any) -> CallIdentity:
        """Whose call it is. Raises CallError for a wrong signature. ``request`` is None for a telemetry stream."""
        ...

    async def recheck(self, caller: Caller) -> None:
        """Raise CallError if an earlier caller would be refused now."""
        ...


class SignatureGuard:
    """The guard of a server that has the ``accounts`` itself; None: there is no access control."""

    def __init__(self, accounts: AccountSecrets | None) -> None:
        self._accounts, self._authenticate = accounts, authenticator(accounts)

    async def identify(self, metadata: dict[str, str], address: str, call: str, request: Any) -> CallIdentity:
        """The account or user of the signature. Calls without a request to the broker are authorized here."""
        credentials = self._authenticate(metadata, address)
        if self._accounts is not None and credentials is not None and call in ANSWERED_HERE:
            ip, accesses = ip_of(address), accesses_of(call, request)
            wrong = self._accounts.accesses_refusal(ip, credentials.access_key, accesses)
            if wrong is not None:
                raise CallError(Code.UNAUTHORIZED, wrong)
        return CallIdentity(credentials)

    async def recheck(self, caller: Caller) -> None:
        """Whether the account is still there, with the same secret."""
        if self._accounts is None:
            return
        known = caller.credentials.secret_key if caller.credentials is not None else None
        wrong = self._accounts.login_refusal(caller.ip, caller.access_key, lambda secret: secret == known)
        if wrong is not None:
            raise CallError(Code.UNAUTHORIZED, wrong)


def read_proof(metadata: dict[str, str], address: str) -> CallerProof:
    """The signature of a call; without one the access key is empty. Raises CallError for a damaged one."""
    authorization, date_time = metadata.get(_AUTHORIZATION, ""), metadata.get(_DATE_TIME, "")
    access_key, signature = "", b""
    if authorization:
        if not date_time:
            raise CallError(Code.UNAUTHORIZED, "datetime is null.")
        access_key, signature = _parts(authorization)
    return CallerProof(access_key, date_time, signature, ip_of(address))


def _parts(authorization: str) -> tuple[str, bytes]:
    """The access key and the signature of ``MQv2-HMAC-SHA1 Credential=KEY/…, SignedHeaders=…, Signature=HEX``."""
    _, separator, rest = authorization.partition(" ")
    if not separator:
        raise CallError(Code.UNAUTHORIZED, "authentication header is incorrect.")
    fields = {}
    for part in rest.split(","):
        name, separator, value = part.strip().partition("=")
        if not separator:
            raise CallError(Code.UNAUTHORIZED, "authentication keyValues length is incorrect, actual length=1.")
        fields[name] = value
    try:
        return fields["Credential"].split("/")[0], bytes.fromhex(fields["Signature"])
    except (KeyError, ValueError):
        raise CallError(Code.UNAUTHORIZED, "authentication header is incorrect.") from None
