"""A request that a proxy sends for its client: the client's proof, signed by the proxy.

A client of gRPC signs a date and no request, so a proxy cannot sign in its name without its password. Here it passes
on what the client has sent, and the broker verifies both: the proxy, which must be a super user, and the client, whose
permissions and address then count.

==================  =====================================================================================
field               value
==================  =====================================================================================
AccessKey           the client's user
CallerDateTime      what the client has signed
CallerSignature     the client's signature, in hex
CallerAddress       the client's IP address
ProxyAccessKey      the proxy's user
ProxySignature      HMAC-SHA256, in hex, of the proxy's password over the code, all other fields and the body
==================  =====================================================================================

There is no Signature, so that a broker that does not know this form refuses the request ("check signature failed.") and
never takes it for one of the proxy or of the client.

Source: none, RocketMQ's proxy asks a broker for the password and decides itself.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field

from gantrymq.model.java import encode_utf8
from gantrymq.remoting.acl import ACCESS_KEY, SIGNATURE, SessionCredentials
from gantrymq.remoting.command import RemotingCommand

PROXY_ACCESS_KEY = "ProxyAccessKey"
_PROXY_SIGNATURE = "ProxySignature"
_DATE_TIME, _CALLER_SIGNATURE, _CALLER_IP = "CallerDateTime", "CallerSignature", "CallerAddress"
_CONTEXT = b"gantrymq forwarded request 1\0"  # so that no other signature of the same password fits


@dataclass(frozen=True, slots=True)
class CallerProof:
    """How a client of gRPC proves its user: a signature over a date. ``ip`` is where the call came from."""

    access_key: str
    date_time: str
    signature: bytes = field(repr=False)
    ip: str

    def is_signed(self, secret: str) -> bool:
        """Whether the signature is made with ``secret``. The comparison takes constant time."""
        expected = hmac.digest(encode_utf8(secret), encode_utf8(self.date_time), "sha1")
        return hmac.compare_digest(expected, self.signature)

    def forward(self, command: RemotingCommand, proxy: SessionCredentials) -> None:
        """Make ``command`` a request of this client, passed on by ``proxy``. Call it last: it signs all fields."""
        fields = dict(command.fields())
        fields.pop(SIGNATURE, None)
        fields |= {
            ACCESS_KEY: self.access_key,
            _DATE_TIME: self.date_time,
            _CALLER_SIGNATURE: self.signature.hex(),
            _CALLER_IP: self.ip,
            PROXY_ACCESS_KEY: proxy.access_key,
        }
        fields[_PROXY_SIGNATURE] = _digest(command, fields, proxy.secret_key)
        command.ext_fields.pop(SIGNATURE, None)
        command.ext_fields.update(fields)


def forwarded_proof(command: RemotingCommand) -> CallerProof | None:
    """The client's proof in a request that a proxy passes on; None if a field is missing or no hexadecimal number."""
    fields = command.ext_fields
    try:
        signature = bytes.fromhex(fields[_CALLER_SIGNATURE])
        return CallerProof(fields.get(ACCESS_KEY, ""), fields[_DATE_TIME], signature, fields[_CALLER_IP])
    except (KeyError, ValueError):
        return None


def proxy_signature_matches(command: RemotingCommand, secret: str) -> bool:
    """Whether a request is passed on by a proxy with the password ``secret``."""
    given = command.ext_fields.get(_PROXY_SIGNATURE, "")
    return hmac.compare_digest(encode_utf8(_digest(command, command.ext_fields, secret)), encode_utf8(given))


def _digest(command: RemotingCommand, fields: dict[str, str], secret: str) -> str:
    digest = hmac.new(encode_utf8(secret), _CONTEXT + int(command.code).to_bytes(4, "big", signed=True), "sha256")
    for name in sorted(fields):
        if name != _PROXY_SIGNATURE:
            for text in (name, fields[name]):
                raw = encode_utf8(text)
                digest.update(len(raw).to_bytes(4, "big") + raw)
    digest.update(command.body)
    return digest.hexdigest()
