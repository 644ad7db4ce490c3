"""The sender of a call: what its metadata says, and what the server knows of the connection.

Source: ContextInitPipeline, HeaderInterceptor, GrpcConstants.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from gantrymq.auth.decision import ResourceAccess
from gantrymq.grpc.protocol.codes import Code
from gantrymq.grpc.protocol.status import CallError
from gantrymq.model.host import ip_of
from gantrymq.remoting.acl import SessionCredentials
from gantrymq.remoting.codes import VERSION_5_5_0, LanguageCode
from gantrymq.remoting.forwarded import CallerProof

MAX_CLIENT_ID = 512  # characters; a broker keeps no longer one
_LANGUAGES = {"GOLANG": LanguageCode.GO, "DOT_NET": LanguageCode.DOTNET, "CSHARP": LanguageCode.DOTNET}


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of one call, or of a telemetry stream.

    ``address`` is the client's ``ip:port``. ``client_version`` is empty if the client names none. ``credentials`` are
    those with which the call was signed, None for an unsigned one. A proxy that does not know them has a ``proof`` to
    pass on instead, and ``accesses``, what the call needs.
    """

    client_id: str
    language: LanguageCode
    client_version: str
    address: str
    credentials: SessionCredentials | None = None
    version: int = field(default=VERSION_5_5_0)
    proof: CallerProof | None = None
    accesses: tuple[ResourceAccess, ...] = ()

    @property
    def access_key(self) -> str:
        """The account or user; empty for an unsigned call."""
        signed = self.credentials or self.proof
        return "" if signed is None else signed.access_key

    @property
    def ip(self) -> str:
        """The client's IP address."""
        return ip_of(self.address)


class CallIdentity(NamedTuple):
    """Whose call it is: fields of its :class:`Caller`."""

    credentials: SessionCredentials | None = None
    proof: CallerProof | None = None
    accesses: tuple[ResourceAccess, ...] = ()


def read_caller(metadata: dict[str, str], address: str, identity: CallIdentity) -> Caller:
    """The sender of a call. Raises CallError without a client id."""
    client_id = metadata.get("x-mq-client-id", "")
    if not client_id.strip():
        raise CallError(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")
    if len(client_id) > MAX_CLIENT_ID:
        raise CallError(Code.CLIENT_ID_REQUIRED, f"client id cannot have more than {MAX_CLIENT_ID} characters")
    return Caller(
        client_id,
        _language(metadata.get("x-mq-language", "")),
        metadata.get("x-mq-client-version", ""),
        address,
        identity.credentials,
        proof=identity.proof,
        accesses=identity.accesses,
    )


def _language(name: str) -> LanguageCode:
    code = _LANGUAGES.get(name.upper()) or LanguageCode.__members__.get(name.upper())
    return LanguageCode.OTHER if code is None else code
