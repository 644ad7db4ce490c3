"""The application: the pages of a site, login, static files and error pages, behind the guard."""

from __future__ import annotations

import mimetypes
from functools import partial
from importlib.resources import files

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from gantrymq.console.failures import described
from gantrymq.console.notices import Notices
from gantrymq.console.page_request import Frame, PageRequest, Site, read_form
from gantrymq.console.security import LOGIN, STATIC, Access, Guard, own_address, own_path
from gantrymq.errors import GantrymqError
from gantrymq.logs import get_logger

log = get_logger("gantrymq.console")

_STATIC_FILES = (
    *("console.css", "console.js", "icon.svg", "store.css", "store_map.js"),
    *("vendor/htmx.min.js", "vendor/uPlot.min.js", "vendor/uPlot.min.css"),
)
_FAILED = "The request failed"
_TITLES = {
    400: "The request is not valid",
    403: "This is not allowed",
    404: "There is no such page",
    405: "There is no such page",
}


def console_app(site: Site, access: Access) -> ASGIApp:
    """The ASGI application of a console."""
    app = Starlette(
        routes=[
            *site.routes,
            Route(LOGIN, partial(_log_in, access), methods=["POST"]),
            Route(f"{STATIC}{{name:path}}", _static_file, methods=["GET"]),
        ],
        exception_handlers={
            HTTPException: _http_error,
            GantrymqError: _cluster_error,
            Exception: _fault,
        },
    )
    app.state.frame = Frame(site, access, Notices())
    refuse = partial(_refused, app)
    guard = Guard(app, access, refuse)
    app.state.guard = guard
    return guard


def _refused(app: Starlette, request: Request, status: int, title: str, text: str) -> Response:
    request.scope["app"] = app
    return error_page(request, status, title, text, bare=True)


def error_page(request: Request, status: int, title: str, text: str, *, bare: bool = False) -> Response:
    """The page of an error. Status 401 has the form for the token. A polled part of a page gets one line.

    A ``bare`` page does not tell what the console shows, because its reader is not known.
    """
    template = "error_part.html.j2" if "hx-request" in request.headers else "error.html.j2"
    return PageRequest(request).page(
        template, status=status, title=title, text=text, status_code=status, bare=bare, address=own_address(request)
    )


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    is_plain = error.detail in ("Not Found", "Method Not Allowed")
    title = "Not found" if error.status_code == 404 and not is_plain else _TITLES.get(error.status_code, _FAILED)
    text = "" if is_plain else error.detail
    return await run_in_threadpool(error_page, request, error.status_code, title, text)


async def _cluster_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, GantrymqError)
    status, title, text = described(error)
    return await run_in_threadpool(error_page, request, status, title, text)


def _fault(request: Request, error: Exception) -> Response:
    log.error("a page failed", path=request.url.path, reason=f"{type(error).__name__}: {error}")
    text = f"This is a fault of the console: {type(error).__name__}: {error}"
    return error_page(request, 500, "The page failed", text)


async def _log_in(access: Access, request: Request) -> Response:
    """POST /login: the token from the form."""
    fields = dict(await read_form(request))
    if not access.is_token(fields.get("token", "").strip()):
        return error_page(request, 401, "Log in", "That is not the access token of this console.", bare=True)
    guard: Guard = request.app.state.guard
    return guard.logged_in(request, own_path(fields.get("next", "/")))


def _static_file(request: Request) -> Response:
    name: str = request.path_params["name"]
    if name not in _STATIC_FILES:
        raise HTTPException(404)
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response((files("gantrymq.console") / "static" / name).read_bytes(), media_type=kind)
