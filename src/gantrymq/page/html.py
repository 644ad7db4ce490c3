"""From a template and what goes into it to a page."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

import orjson
import vl_convert
from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from gantrymq.page.figure import Figure

_PARTS = "parts.html.j2"


def render(template: str, **values: Any) -> str:
    """The page that the text ``template`` makes of ``values``. It finds ``css``, ``js`` and ``vega`` in them too.

    Macros for figures and tiles can be imported from ``parts.html.j2``.
    """
    loader = DictLoader({_PARTS: _own(_PARTS), "page": template})
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    assets = {"css": Markup(_own("page.css")), "js": Markup(_own("page.js")), "vega": Markup(_vega())}
    return environment.get_template("page").render(**values, **assets)


def shown(figure: Figure) -> dict[str, Any]:
    """A figure as the templates take it."""
    return {
        "title": figure.title,
        "note": figure.note,
        "is_wide": figure.is_wide,
        # An HTML parser must find no "<" in it.
        "json": Markup(orjson.dumps(figure.spec).decode().replace("<", "\\u003c")),
    }


def tile(value: str, what: str, more: str) -> dict[str, str]:
    """A number that the page begins with."""
    return {"value": value, "what": what, "more": more}


def _own(name: str) -> str:
    return (files("gantrymq.page") / name).read_text("utf-8")


@cache
def _vega() -> str:
    """The library that draws. What would end the element it stands in, within a text of it, is spelt otherwise."""
    return re.sub(r"</(?=script)", r"<\\/", vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed"), flags=re.I)
