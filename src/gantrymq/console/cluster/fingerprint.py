"""Detects that settings changed since a form was shown: the hash in the form, and the page of a conflict."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from msgspec import to_builtins
from msgspec.json import encode
from starlette.responses import Response

from gantrymq.console.cluster.source import Broker
from gantrymq.console.page_request import PageRequest


def fingerprint(settings: Sequence[tuple[Broker, object]]) -> str:
    """A short hash of something's settings at all brokers (None where it does not exist), for forms."""
    shown = sorted((broker.name, to_builtins(config)) for broker, config in settings if config is not None)
    return sha256(encode(shown, order="deterministic")).hexdigest()[:16]


def conflict(request: PageRequest, text: str, name: str, address: str) -> Response:
    """The page that says that nothing was changed, and why. ``name`` and ``address`` are a link to what it is about."""
    return request.page("conflict.html.j2", status=409, text=text, links=[(name, address)])
