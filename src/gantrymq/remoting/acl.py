"""RocketMQ's ACL signature: HMAC-SHA1 over the values of the extFields, sorted by key, and the body.

Source: AclClientRPCHook, AclUtils.combineRequestContent, AclSigner, SessionCredentials.
"""

import hashlib
import hmac
from binascii import b2a_base64
from dataclasses import dataclass, field
from functools import lru_cache

from gantrymq.model.java import encode_utf8
from gantrymq.remoting.codes import VERSION_4_9_3
from gantrymq.remoting.command import RemotingCommand

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"  # UNIQUE_MSG_QUERY_FLAG
CREDENTIALS = frozenset({ACCESS_KEY, SIGNATURE, SECURITY_TOKEN})


@dataclass(frozen=True, slots=True)
class SessionCredentials:
    """The credentials of a client. Every request carries the access key and a signature made with the secret key."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def sign(self, command: RemotingCommand) -> None:
        """Add AccessKey, SecurityToken (if there is one) and Signature to a request.

        Call it last: it signs the other fields.
        """
        fields = dict(command.fields())
        fields[ACCESS_KEY] = self.access_key
        if self.security_token is not None:
            fields[SECURITY_TOKEN] = self.security_token
        signature = calculate_signature(fields, command.body, self.secret_key)
        for name in (ACCESS_KEY, SECURITY_TOKEN):
            if name in fields:
                command.ext_fields[name] = fields[name]
        command.ext_fields[SIGNATURE] = signature


def calculate_signature(fields: dict[str, str], body: bytes, secret_key: str) -> str:
    """The signature in Base64 over a request's extFields (without Signature) and body."""
    return signature_of(_content(fields), body, secret_key).decode("ascii")


def signature_matches(command: RemotingCommand, secret_key: str) -> bool:
    """Whether a received request is signed with ``secret_key``. The comparison takes constant time.

    Clients up to 4.9.3 add the field ``_UNIQUE_KEY_QUERY`` after they have signed.
    """
    fields = command.ext_fields
    given = fields.get(SIGNATURE)
    if given is None:
        return False
    if command.version <= VERSION_4_9_3 and UNIQUE_KEY_QUERY in fields:
        fields = {name: text for name, text in fields.items() if name != UNIQUE_KEY_QUERY}
    return hmac.compare_digest(signature_of(_content(fields), command.body, secret_key), encode_utf8(given))


def signature_of(content: bytes, body: bytes | memoryview, secret_key: str) -> bytes:
    """The signature in Base64 over the joined texts of a request, as UTF-8, and its body."""
    digest = _keyed(secret_key).copy()
    digest.update(content)
    digest.update(body)
    return b2a_base64(digest.digest(), newline=False)


def _content(fields: dict[str, str]) -> bytes:
    return encode_utf8("".join([fields[name] for name in sorted(fields) if name != SIGNATURE]))


@lru_cache(maxsize=1024)
def _keyed(secret_key: str) -> hmac.HMAC:
    """A digest to copy. Its key takes a third of the time that a request's digest would take."""
    return hmac.new(encode_utf8(secret_key), digestmod=hashlib.sha1)
