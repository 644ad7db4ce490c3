"""The signature of a call: ``MQv2-HMAC-SHA1`` over the time in ``x-mq-date-time``.

A verified call is made in the name of its account: the requests to brokers are signed with the account's secret, so
that access control there checks its permissions as it does for a client of remoting. An unsigned call stays unsigned.

Source: AuthenticationPipeline, DefaultAuthenticationContextBuilder, DefaultAuthenticationHandler.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

from gantrymq.grpc.codes import Code
from gantrymq.grpc.status import CallError
from gantrymq.remoting.acl import SessionCredentials

_AUTHORIZATION, _DATE_TIME = "authorization", "x-mq-date-time"


def authenticator(
    secret_of: Callable[[str], str | None] | None,
) -> Callable[[dict[str, str]], SessionCredentials | None]:
    """A reader of signatures. ``secret_of`` returns the secret of an access key, None if there is no such account.

    Without ``secret_of`` there is no access control, and signatures are not read.
    """
    if secret_of is None:
        return lambda _: None

    def authenticate(metadata: dict[str, str]) -> SessionCredentials | None:
        authorization = metadata.get(_AUTHORIZATION, "")
        if not authorization:
            return None
        date_time = metadata.get(_DATE_TIME, "")
        if not date_time:
            raise CallError(Code.UNAUTHORIZED, "datetime is null.")
        access_key, signature = _parts(authorization)
        secret = secret_of(access_key)
        if secret is None:
            raise CallError(Code.UNAUTHORIZED, f"No acl config for {access_key[:128]}")
        digest = hmac.new(secret.encode(), date_time.encode(), hashlib.sha1).digest()
        if not hmac.compare_digest(digest, signature):
            raise CallError(Code.UNAUTHORIZED, f"Check signature failed for accessKey={access_key[:128]}")
        return SessionCredentials(access_key, secret)

    return authenticate


def _parts(authorization: str) -> tuple[str, bytes]:
    """The access key and the signature of ``MQv2-HMAC-SHA1 Credential=KEY/…, SignedHeaders=…, Signature=HEX``."""
    _, separator, rest = authorization.partition(" ")
    if not separator:
        raise CallError(Code.UNAUTHORIZED, "authentication header is incorrect.")
    fields = {}
    for one in rest.split(","):
        name, separator, value = one.strip().partition("=")
        if not separator:
            raise CallError(Code.UNAUTHORIZED, "authentication keyValues length is incorrect, actual length=1.")
        fields[name] = value
    try:
        return fields["Credential"].split("/")[0], bytes.fromhex(fields["Signature"])
    except (KeyError, ValueError):
        raise CallError(Code.UNAUTHORIZED, "authentication header is incorrect.") from None
