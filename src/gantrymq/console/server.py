"""Serves the console over HTTP, beside other work of an event loop."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from gantrymq.console.application import console_app
from gantrymq.console.page_request import Site
from gantrymq.console.security import Access
from gantrymq.errors import ConfigError, RemotingError
from gantrymq.model.host import is_loopback

_STARTED_WITHIN_S = 30.0
_LOOK_AGAIN_S = 0.005
_LEAVE_WITHIN_S = 2


class _Uvicorn(uvicorn.Server):
    """A server without signal handlers: the owner of the event loop has its own."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


class ConsoleServer:
    """The console of a site at an address. ``port`` 0 means a free one.

    With ``certificate`` (the files of a certificate chain and its key, PEM) it speaks HTTPS. Raises ConfigError if they
    cannot be used.

    Thread rule: the event loop's thread.
    """

    def __init__(
        self,
        site: Site,
        access: Access,
        *,
        address: str = "127.0.0.1",
        port: int = 0,
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        self._site, self._access, self._address, self._port = site, access, address, port
        self._certificate = certificate
        if certificate is not None:
            _require_usable(*certificate)
        self._server: _Uvicorn | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The console's address, without the token."""
        host = f"[{self._address}]" if ":" in self._address else self._address
        return f"{'https' if self._certificate else 'http'}://{host}:{self._port}/"

    async def start(self) -> None:
        """Return when it serves. Raises RemotingError if it cannot listen."""
        listening = self._listen()
        self._port = listening.getsockname()[1]
        settings: dict[str, Any] = {
            "log_config": None,
            "access_log": False,
            "lifespan": "off",
            "ws": "none",
            "server_header": False,
            "proxy_headers": False,
            "timeout_graceful_shutdown": _LEAVE_WITHIN_S,
        }
        if self._certificate is not None:
            settings["ssl_certfile"], settings["ssl_keyfile"] = map(str, self._certificate)
        self._server = _Uvicorn(uvicorn.Config(console_app(self._site, self._access), **settings))
        self._task = asyncio.create_task(self._server.serve(sockets=[listening]))
        async with asyncio.timeout(_STARTED_WITHIN_S):
            while not self._server.started:
                if self._task.done():
                    await self._task
                    raise RemotingError(f"{self.url}: the console did not start")
                await asyncio.sleep(_LOOK_AGAIN_S)

    async def shutdown(self) -> None:
        """Stop serving, and close the site. A second call has no effect."""
        task, self._task = self._task, None
        if task is not None and self._server is not None:
            self._server.should_exit = True
            await task
            await asyncio.to_thread(self._site.close)

    def announcement(self) -> Mapping[str, object]:
        """The fields of the ready line. The address has the token, which is printed only here."""
        token = self._access.token
        shown = f"{self.url}?token={token}" if token else self.url
        return {"console": shown, self._site.kind: self._site.title, "changes": self._access.allow_changes or None}

    def _listen(self) -> socket.socket:
        try:
            family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
            listening = socket.socket(family)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listening.bind((self._address, self._port))
            except BaseException:
                listening.close()
                raise
        except OSError as error:
            reason = error.strerror or error
            raise RemotingError(f"{self._address}:{self._port}: cannot listen: {reason}") from error
        return listening


def _require_usable(certificate: Path, key: Path) -> None:
    """Raises ConfigError if a certificate and its key cannot be used."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError("https-cert", f"{certificate}, {key}", reason) from None


def _no_password() -> str:
    raise ValueError("the key is encrypted; give one that is not")


def access_rules(address: str, *, allow_changes: bool = False, token: str | None = None, **more: Any) -> Access:
    """The rules for a console that listens on ``address``: with a token unless that is loopback."""
    from gantrymq.console.security import new_token

    needed = token or (None if is_loopback(address) else new_token())
    return Access(allow_changes=allow_changes, token=needed, **more)
