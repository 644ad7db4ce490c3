"""Guards every request: host names, the access token, requests of other sites, and the headers of every response.

==========================  ========================================================================================
attack                      answer
==========================  ========================================================================================
DNS rebinding               a Host header must be an IP address, ``localhost``, this machine's name, or a given name
another user or machine     a token is needed unless the console listens on loopback; a session ends after 12 hours
a form of another site      Origin and Sec-Fetch-Site are checked, and each form carries a token of this process
script in a value           everything is escaped, and the Content-Security-Policy allows only scripts of the console
framing, sniffing, leaking  ``frame-ancestors 'none'``, ``nosniff``, ``Referrer-Policy: same-origin``
load, timing of answers     a read by a script, an image or a frame of another site is refused; a link is not
==========================  ========================================================================================
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gantrymq.clock import Clock, SystemClock

SESSION_S = 12 * 3600
STATIC = "/static/"
LOGIN = "/login"
_SAFE_METHODS = ("GET", "HEAD")
_POLICY = "; ".join(
    (
        *("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", "font-src 'self'"),
        *("connect-src 'self'", "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'"),
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

Refuse = Callable[[Request, int, str, str], Response]


def new_token() -> str:
    """A random access token."""
    return secrets.token_urlsafe(24)


@dataclass(frozen=True)
class Access:
    """The rules of one run of the console.

    Without ``token`` no login is needed. ``host_names`` are allowed in the Host header besides IP addresses,
    ``localhost`` and this machine's name.
    """

    allow_changes: bool = False
    token: str | None = field(default=None, repr=False)
    host_names: Iterable[str] = ()
    clock: Clock = field(default_factory=SystemClock)
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    @property
    def form_token(self) -> str:
        """What each form that changes something carries. Another site cannot read it."""
        return self._signed("form")

    def is_form_token(self, text: str) -> bool:
        """Whether a form is one of this run."""
        return hmac.compare_digest(self.form_token.encode(), text.encode("utf-8", "replace"))

    def is_token(self, text: str) -> bool:
        """Whether ``text`` is the access token."""
        return self.token is not None and hmac.compare_digest(self.token.encode(), text.encode("utf-8", "replace"))

    def new_session(self) -> str:
        """The value of the cookie of a new session."""
        ends_s = self.clock.now_ms() // 1000 + SESSION_S
        return f"{ends_s}.{self._signed(f'session {ends_s}')}"

    def session_problem(self, cookie: str) -> str | None:
        """Why a session's cookie is not accepted; None if it is."""
        ends, _, signature = cookie.partition(".")
        if not ends.isascii() or not ends.isdecimal():
            return "This page needs the console's access token."
        if not hmac.compare_digest(self._signed(f"session {ends}").encode(), signature.encode("utf-8", "replace")):
            return "The session belongs to an earlier start of the console."
        if int(ends) * 1000 <= self.clock.now_ms():
            return "The session has expired."
        return None

    def _signed(self, text: str) -> str:
        return hmac.new(self.secret, f"{text} {self.token}".encode(), "sha256").hexdigest()

    def is_known_host(self, name: str) -> bool:
        """Whether a host name of a request is one of this console. A site of an attacker has another."""
        name = name.lower().rstrip(".")
        if name in {"localhost", socket.gethostname().lower(), *(host_name.lower() for host_name in self.host_names)}:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


class Guard:
    """The middleware around the whole application. ``refuse`` renders the page of a refusal."""

    def __init__(self, app: ASGIApp, access: Access, refuse: Refuse) -> None:
        self._app, self._access, self._refuse = app, access, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add_headers(message, is_static=scope["path"].startswith(STATIC))
            await send(message)

        answer = self._answer(Request(scope))
        await (answer or self._app)(scope, receive, send_guarded)

    def _answer(self, request: Request) -> Response | None:
        """The response instead of a page; None if the page may answer."""
        name = _host_name(request.headers.get("host", ""))
        if name is None or not self._access.is_known_host(name):
            text = "Open the console under its address, or start it with --host-name for this name."
            return self._refuse(request, 400, "This host name is not the console's", text)
        if request.method not in _SAFE_METHODS and not _is_same_origin(request):
            text = "Only the console's own forms may change something."
            return self._refuse(request, 403, "The request came from another site", text)
        if _is_embedded_elsewhere(request):
            text = "Another site may link to the console, and not load its pages in its own."
            return self._refuse(request, 403, "The request came from another site", text)
        if self._access.token is None or request.url.path.startswith(STATIC) or request.url.path == LOGIN:
            return None
        given = request.query_params.get("token")
        if given is not None and self._access.is_token(given):
            return self.logged_in(request, own_address(request))
        problem = self._access.session_problem(request.cookies.get(cookie_name(request), ""))
        if given is not None:
            problem = "That is not the access token of this console."
        if problem is None:
            return None
        answer = self._refuse(request, 401, "Log in", problem)
        if "hx-request" in request.headers:
            answer.headers["HX-Refresh"] = "true"  # a polled part: let the whole page tell
        return answer

    def logged_in(self, request: Request, path: str) -> Response:
        """Redirect to a page of the console, with the cookie of a new session."""
        answer = RedirectResponse(path, 303)
        cookie: SimpleCookie = SimpleCookie()
        cookie[name := cookie_name(request)] = self._access.new_session()
        cookie[name] |= {"path": "/", "httponly": True, "samesite": "Strict", "max-age": SESSION_S}
        if request.url.scheme == "https":
            cookie[name]["secure"] = True
        answer.headers.append("Set-Cookie", cookie[name].OutputString())
        return answer


def cookie_name(request: Request) -> str:
    """The session's cookie. Its name has the port, because cookies of one host are shared by all ports."""
    port = (request.scope.get("server") or ("", 0))[1]
    return f"gantrymq_console_{port}"


def own_path(text: str) -> str:
    """``text`` as a path of this console: never another host."""
    return "/" + text.replace("\\", "/").lstrip("/") if text.isprintable() else "/"


def own_address(request: Request) -> str:
    """The address of the page of a request, as it was sent, without the access token."""
    rest = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
    path = own_path(request.scope.get("raw_path", b"/").decode("ascii", "replace").partition("?")[0])
    return f"{path}?{urlencode(rest)}" if rest else path


def _host_name(host: str) -> str | None:
    """The name in a Host header without the port; None if it is not valid."""
    if not host or any(letter in host for letter in "/@?#\\ "):
        return None
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return None
    return parts.hostname


def _is_embedded_elsewhere(request: Request) -> bool:
    """Whether a script, an image or a frame of another site reads a page. A link of another site does not."""
    headers = request.headers
    is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest", "document") == "document"
    return headers.get("sec-fetch-site") == "cross-site" and not is_link


def _is_same_origin(request: Request) -> bool:
    """Whether a request that changes something can come from a page of the console.

    A browser sends at least one of the headers. A program that sends none of them still needs the form's token.
    """
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return False
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers["host"]


def _add_headers(message: MutableMapping[str, Any], *, is_static: bool) -> None:
    headers = MutableHeaders(scope=message)
    for name, value in _HEADERS.items():
        headers[name] = value
    headers["Cache-Control"] = "public, max-age=86400" if is_static else "no-store"
