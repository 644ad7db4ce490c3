"""Turns values into HTML: the environment of the templates, with its filters and the address of each page.

A text in a template is made visible and escaped without a filter (``finalize`` and ``autoescape``). Only
:class:`markupsafe.Markup` is inserted as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode
from zoneinfo import ZoneInfo

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from gantrymq.console.security import STATIC
from gantrymq.console.table_labels import labelled
from gantrymq.console.visible import visible, visible_lines
from gantrymq.model.size import size_text
from gantrymq.model.texts import count_text

_LAST_MS = 253_402_300_799_999  # the end of the year 9999


@cache
def environment() -> Environment:
    """The environment of all templates."""
    made = Environment(
        loader=PackageLoader("gantrymq.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    made.filters |= {"number": number, "size": size, "rate": rate, "raw": raw, "lines": lines, "percent": percent}
    made.filters["coded"] = coded
    made.globals |= {"url": url, "static": static, "time_in": time_in, "yes": yes, "count": count_text}
    made.globals["labelled"] = labelled
    return made


def _shown(value: object) -> object:
    """A value as the templates print it: Markup as it is, everything else as visible text, None as a dash."""
    if value is None:
        return "–"
    return value if hasattr(value, "__html__") else visible(str(value))


def raw(value: object) -> Markup:
    """Escape a value for a field of a form. Control characters stay, because the form sends the value back.

    A page cannot have a byte of a file name that is not UTF-8, which becomes ``?``, or U+0000, which is left out.
    """
    return escape("" if value is None else str(value).encode("utf-8", "replace").decode().replace("\0", ""))


def lines(text: str) -> Markup:
    """A text of several lines, for an element that keeps white space."""
    return escape(visible_lines(text))


def coded(text: str) -> Markup:
    """A text with each part between backticks, such as a command, as code."""
    parts = visible(text).split("`")
    is_paired = len(parts) % 2 == 1
    marked = (
        Markup("<code>{}</code>").format(part) if number % 2 and is_paired else escape(part)
        for number, part in enumerate(parts)
    )
    return Markup("" if is_paired else "`").join(marked)


def url(path: str, *parts: object, **query: object) -> str:
    """The address of a page: ``path``, then ``parts`` as names in it, then a query without empty values.

    ``url("/topics", "a/b", queue=1)`` is ``/topics/a%2Fb?queue=1``.
    """
    whole = "/".join([path, *(quote(str(part).encode("utf-8", "surrogatepass"), safe="") for part in parts)])
    given = [(name, value) for name, value in query.items() if value is not None and value != ""]
    return f"{whole}?{urlencode(given, errors='replace', doseq=True)}" if given else whole


@cache
def static(name: str) -> str:
    """The address of a static file. It changes with the contents, so that browsers may keep the file."""
    contents = (files("gantrymq.console") / "static" / name).read_bytes()
    return f"{STATIC}{name}?v={sha256(contents).hexdigest()[:10]}"


def number(value: float | None) -> str:
    """A count with separators; a dash for None."""
    return "–" if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """A rate with at most one decimal; a dash for None."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.1f}"


def size(value: float | None) -> str:
    """A number of bytes with its unit; a dash for None."""
    return "–" if value is None else size_text(value)


def percent(value: float | None) -> str:
    """A ratio as a percentage; a dash for None."""
    return "–" if value is None else f"{100 * value:.1f} %"


def yes(value: bool | None) -> str:
    """``yes``, ``no``, or a dash for None."""
    return "–" if value is None else "yes" if value else "no"


def zone_of(name: str) -> tzinfo | None:
    """The time zone with a name of the IANA data base; None if there is no such zone."""
    try:
        return ZoneInfo(name) if name else None
    except (OSError, ValueError):  # no file, or not the name of one
        return None


def time_in(zone: tzinfo | None, timestamp_ms: int | None) -> Markup:
    """An element with a time in the operator's zone, and in UTC as its title.

    ``never`` for 0 and negative numbers, a dash for None, the number itself for a time after the year 9999. Without a
    zone it is the server's, with its offset.
    """
    if timestamp_ms is None:
        return Markup("–")
    if timestamp_ms <= 0:
        return Markup("never")
    if timestamp_ms > _LAST_MS - 86_400_000:
        return escape(timestamp_ms)
    moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC) + timedelta(milliseconds=timestamp_ms % 1000)
    local = moment.astimezone(zone)
    text = f"{local:%Y-%m-%d %H:%M:%S}" if zone is not None else local.isoformat(" ", "seconds")
    title = f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03}Z", title, text
    )


def render(template: str, values: Mapping[str, Any]) -> str:
    """Render a template."""
    return environment().get_template(template).render(values)
