"""Gives each cell of a table the name of its column, which a narrow screen shows beside the value.

At phone width a row is a block: the style sheet hides the head of the table and prints ``data-label`` before each cell.
Without the labels a row would be a list of bare numbers. With a table that scrolls, the last columns would be out of
sight.
"""

from __future__ import annotations

import re

from markupsafe import Markup, escape

_NAME = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_ROW_OR_CELL = re.compile(r"<(tr|td|th)\b([^>]*)>")
_SPAN = re.compile(r'\bcolspan="(\d+)"')


def labelled(table: Markup) -> Markup:
    """``table`` (a thead and a tbody) with ``data-label`` on the cells of its body. A cell of several columns has none.

    Values in the HTML are escaped, so that every ``<`` begins a tag of a template.
    """
    head, end, body = str(table).partition("</thead>")
    names = [" ".join(Markup(_TAG.sub("", name)).unescape().split()) for name in _NAME.findall(head)]
    column = 0

    def with_label(match: re.Match[str]) -> str:
        nonlocal column
        tag, attributes = match.groups()
        if tag == "tr":
            column = 0
            return match[0]
        span, at = _SPAN.search(attributes), column
        column += int(span[1]) if span else 1
        if span or "data-label" in attributes or at >= len(names) or not names[at]:
            return match[0]
        return f'<{tag}{attributes} data-label="{escape(names[at])}">'

    return Markup(f"{head}{end}{_ROW_OR_CELL.sub(with_label, body)}")
