"""Renders a report page from a template and its values."""

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
    """Render the text ``template`` with ``values``. The template also gets ``css``, ``js`` and ``vega``.

    It can import macros for figures and tiles from ``parts.html.j2``.
    """
    loader = DictLoader({_PARTS: _own(_PARTS), "page": template})
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    assets = {"css": Markup(_own("page.css")), "js": Markup(_own("page.js")), "vega": Markup(_vega())}
    return environment.get_template("page").render(**values, **assets)


def template_values(figure: Figure) -> dict[str, Any]:
    """Return a figure in the form that the templates take."""
    return {
        "title": figure.title,
        "note": figure.note,
        "is_wide": figure.is_wide,
        # "<" is escaped, so that an HTML parser cannot end the script element early.
        "json": Markup(orjson.dumps(figure.spec).decode().replace("<", "\\u003c")),
    }


def tile(value: str, what: str, more: str) -> dict[str, str]:
    """Return one of the numbers at the top of the page, in the form that the templates take."""
    return {"value": value, "what": what, "more": more}


def _own(name: str) -> str:
    return (files("gantrymq.page") / name).read_text("utf-8")


@cache
def _vega() -> str:
    """Return the drawing library. Every ``</script`` in it is escaped, because it would end its script element."""
    return re.sub(r"</(?=script)", r"<\\/", vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed"), flags=re.I)
