"""The signature of a send, verified without a dictionary of its fields and without a command.

The obvious way decodes all fields into a dictionary, sorts the names, and joins the texts. It costs more than HMAC-SHA1
itself. The fields of a send are known, so here they are decoded into a structure that has them in the signed order.

What is read here has the same fields, and the same texts, as in the obvious way. Anything else is not read, and is
verified in the obvious way (:func:`gantrymq.remoting.acl.signature_matches`):

===============================================  ========================================================
an extField that a send does not have            such as ``_UNIQUE_KEY_QUERY``, a proxy's, or ``ns``
an extField that is no text                      null, a number, a list
a header in the form ROCKETMQ, or no valid JSON  read leniently, as fastjson does
a field twice                                    is read: the last one counts, as in the obvious way
===============================================  ========================================================

Source: AclUtils.combineRequestContent, SendMessageRequestHeaderV2.
"""

from __future__ import annotations

import hmac

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from gantrymq.remoting.acl import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, signature_of
from gantrymq.remoting.command import RemotingCommand

_NAMES = {"access_key": ACCESS_KEY, "security_token": SECURITY_TOKEN, "topic": "b", "signature": SIGNATURE}
_NOT_READ = (msgspec.MsgspecError, ValueError, RecursionError)


class SignedSend(Struct, kw_only=True, forbid_unknown_fields=True, rename=_NAMES, gc=False):
    """The fields of a signed SEND_MESSAGE_V2 or SEND_BATCH_MESSAGE, sorted by their names on the wire.

    The signature stands last. A field that is missing adds as little to the signed content as an empty one.
    """

    access_key: str
    security_token: str = ""
    a: str = ""
    topic: str = ""
    c: str = ""
    d: str = ""
    e: str = ""
    f: str = ""
    g: str = ""
    h: str = ""
    i: str = ""
    j: str = ""
    k: str = ""
    l: str = ""  # noqa: E741  (the name on the wire)
    m: str = ""
    n: str = ""
    signature: str

    def is_signed(self, secret: str, body: bytes | memoryview) -> bool:
        """Whether the send is signed with ``secret``. The comparison takes constant time."""
        content = "".join(astuple(self)[:-1]).encode()
        return hmac.compare_digest(signature_of(content, body, secret), self.signature.encode())


class _Frame(Struct, rename="camel", gc=False):
    ext_fields: SignedSend


_decode_fields = msgspec.json.Decoder(SignedSend).decode
_decode = msgspec.json.Decoder(_Frame).decode


def signed_send(request: RemotingCommand) -> SignedSend | None:
    """The fields of a send; None if they are not those of a signed send in JSON."""
    fields = request.json_fields
    try:
        return None if fields is None else _decode_fields(fields)
    except _NOT_READ:
        return None


def signed_send_in(header: memoryview) -> SignedSend | None:
    """The fields in the header of a frame that is known to be a send in JSON; None as in :func:`signed_send`."""
    try:
        return _decode(header).ext_fields
    except _NOT_READ:
        return None
