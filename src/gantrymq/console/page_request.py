"""What a page gets: its request with checked parameters, and the response in the frame of the console."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from gantrymq.console.rendering import render, time_in, zone_of
from gantrymq.model.java import LONG_MAX

if TYPE_CHECKING:
    from gantrymq.console.notices import Notices
    from gantrymq.console.security import Access

ZONE_COOKIE = "gantrymq_zone"
_MAX_FORM_BYTES = 1 << 20
_MAX_FIELDS = 2_000


@dataclass(frozen=True)
class NavigationEntry:
    """An entry of the navigation. It is marked on its own page, on those below it, and on ``others``."""

    path: str
    name: str
    others: Sequence[str] = ()

    def leads_to(self, path: str) -> bool:
        """Whether the entry is that of the page at ``path``."""
        return path in (self.path, *self.others) or (self.path != "/" and path.startswith(f"{self.path}/"))


@dataclass
class Site:
    """The pages for one cluster or one store.

    ``title`` names the source, ``kind`` is ``cluster`` or ``store``. ``close`` is called when the console stops.
    """

    title: str
    kind: str
    navigation: Sequence[NavigationEntry]
    routes: Sequence[Route]
    close: Callable[[], None]


@dataclass
class Frame:
    """What all pages of a console share. The application has it as ``state.frame``."""

    site: Site
    access: Access
    notices: Notices


@dataclass
class PageRequest:
    """One request to a page. ``missing`` has what did not answer: (its name, the error as text)."""

    request: Request
    form: Sequence[tuple[str, str]] = ()
    missing: list[tuple[str, str]] = field(default_factory=list)

    @property
    def frame(self) -> Frame:
        """The values of the frame that all pages share."""
        frame: Frame = self.request.app.state.frame
        return frame

    @property
    def zone(self) -> tzinfo | None:
        """The operator's time zone, if the browser has told it."""
        return zone_of(unquote(self.request.cookies.get(ZONE_COOKIE, "")))

    # Parameters

    def name(self) -> str:
        """The name in the path. Raises a 404 for an empty one."""
        name: str = self.request.path_params["name"]
        if not name:
            raise HTTPException(404)
        return name

    def text(self, name: str, default: str = "") -> str:
        """A parameter of the query, or of the form of an action."""
        for key, value in reversed(self.form or self.request.query_params.multi_items()):
            if key == name:
                return value.strip()
        return default

    def texts(self, name: str) -> list[str]:
        """All values of a parameter."""
        return [value for key, value in self.form or self.request.query_params.multi_items() if key == name]

    def number(self, name: str, default: int, *, minimum: int = 0, maximum: int = LONG_MAX) -> int:
        """A whole number. Raises a 400 if it is not one, or not within the limits."""
        text = self.text(name)
        if not text:
            return default
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdecimal() and len(digits) < 20 and minimum <= int(text) <= maximum:
            return int(text)
        raise HTTPException(400, f"{name}: {text!r} is not a whole number from {minimum} to {maximum}")

    def optional_number(self, name: str, *, minimum: int = 0, maximum: int = LONG_MAX) -> int | None:
        """As :meth:`number`; None if it is not given."""
        return self.number(name, 0, minimum=minimum, maximum=maximum) if self.text(name) else None

    def moment_ms(self, name: str) -> int | None:
        """A time in milliseconds: ISO 8601, in the operator's zone unless it names one, or milliseconds. None: missing.

        Raises a 400.
        """
        text = self.text(name)
        if not text:
            return None
        if text.isascii() and text.isdecimal() and len(text) > 8:
            return self.number(name, 0)
        try:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=self.zone) if self.zone else moment.astimezone()
            return max(int(moment.timestamp() * 1000), 0)
        except (ValueError, OverflowError, OSError):
            raise HTTPException(400, f"{name}: {text!r} is no time; write 2026-11-24T08:30, or milliseconds") from None

    def times_ms(self) -> tuple[int | None, int | None]:
        """The times ``begin`` and ``end``, as :meth:`moment_ms`. Raises a 400 with both if none is between them."""
        begin_ms, end_ms = self.moment_ms("begin"), self.moment_ms("end")
        if begin_ms is not None and end_ms is not None and begin_ms >= end_ms:
            raise HTTPException(400, f"begin: {self.text('begin')!r} is not before the end, {self.text('end')!r}")
        return begin_ms, end_ms

    # Responses

    def page(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """A page, or a part of one, from a template."""
        frame = self.frame
        shared = {
            "site": frame.site,
            "bare": False,
            "is_part": "hx-request" in self.request.headers,
            "path": self.request.url.path,
            "missing": self.missing,
            "notice": frame.notices.take(self.request.query_params.get("notice", "")),
            "allow_changes": frame.access.allow_changes,
            "form_token": frame.access.form_token,
            "has_login": frame.access.token is not None,
            "time": lambda timestamp_ms: time_in(self.zone, timestamp_ms),
            "zone_name": str(self.zone) if self.zone else "the server's zone",
            "query": self.request.query_params,
        }
        return HTMLResponse(render(template, {**shared, **values}), status)

    def done(self, path: str, text: str, *, is_problem: bool = False) -> Response:
        """Redirect to a page, which shows ``text`` once."""
        number = self.frame.notices.add(text, is_problem=is_problem)
        return RedirectResponse(f"{path}{'&' if '?' in path else '?'}notice={number}", 303)


Handler = Callable[[PageRequest], Response]


def get(path: str, handler: Handler) -> Route:
    """A page. ``handler`` runs in a thread of its own."""

    def endpoint(request: Request) -> Response:
        return handler(PageRequest(request))

    return Route(path, endpoint, methods=["GET"])


def action(path: str, handler: Handler, *, changes: bool = True) -> Route:
    """A POST from a form of the console. ``changes`` says that it needs ``--allow-changes``.

    The handler answers with a redirect (:meth:`PageRequest.done`), or with a page that tells a conflict.
    """

    async def endpoint(request: Request) -> Response:
        frame: Frame = request.app.state.frame
        if changes and not frame.access.allow_changes:
            raise HTTPException(403, "This console is read-only. Start it with --allow-changes to change the cluster.")
        form = await read_form(request)
        if not frame.access.is_form_token(dict(form).get("form_token", "")):
            raise HTTPException(403, "The form is not of this run of the console. Load its page again, and repeat it.")
        return await run_in_threadpool(handler, PageRequest(request, form))

    return Route(path, endpoint, methods=["POST"])


async def read_form(request: Request) -> list[tuple[str, str]]:
    """The fields of a form. Raises a 4xx if it is too large or of another type."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise HTTPException(415, "A form is expected.")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MAX_FORM_BYTES:
            raise HTTPException(413, "The form is too large.")
    try:
        return parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise HTTPException(400, "The form cannot be read.") from None
