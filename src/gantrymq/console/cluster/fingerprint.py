"""Two operators who change the same thing: what a form carries of what its page showed, and the page of a conflict."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from msgspec import to_builtins
from msgspec.json import encode
from starlette.responses import Response

from gantrymq.console.cluster.source import Broker
from gantrymq.console.view import View


def fingerprint(settings: Sequence[tuple[Broker, object]]) -> str:
    """A short hash of something's settings at all brokers (None where it does not exist), for forms."""
    shown = sorted((broker.name, to_builtins(config)) for broker, config in settings if config is not None)
    return sha256(encode(shown, order="deterministic")).hexdigest()[:16]


def conflict(view: View, text: str, name: str, address: str) -> Response:
    """The page that says that nothing was changed, and why. ``name`` and ``address`` are a link to what it is about."""
    return view.page("conflict.html.j2", status=409, text=text, links=[(name, address)])
