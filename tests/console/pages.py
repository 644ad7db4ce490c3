"""What tests read of the console's pages: their text, their forms, and all pages that are linked."""

from __future__ import annotations

import html
import re
from urllib.parse import urlsplit

import httpx


def shown(answer: httpx.Response, status: int = 200) -> str:
    """The text of a page, without marks of HTML."""
    assert answer.status_code == status, answer.text
    return html.unescape(re.sub(r"<[^>]+>", " ", answer.text))


def rows_of(answer: httpx.Response) -> list[list[str]]:
    """The rows of all tables of a page: the texts of their cells."""
    assert answer.status_code == 200, answer.text
    rows = [
        re.findall(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", row, re.S) for row in re.findall(r"<tr>.*?</tr>", answer.text, re.S)
    ]
    return [[" ".join(html.unescape(re.sub(r"<[^>]+>", " ", cell)).split()) for cell in row] for row in rows]


def form_of(answer: httpx.Response, action: str) -> dict[str, str]:
    """The fields of the form of a page that is sent to ``action``."""
    found = re.search(rf'<form[^>]*action="{re.escape(action)}".*?</form>', answer.text, re.S)
    assert found, f"no form to {action}"
    fields = {}
    for tag in re.findall(r"<input[^>]*>", found[0]):
        values = dict(re.findall(r'(\w+)="([^"]*)"', tag))
        if "name" in values and (values.get("type") not in ("radio", "checkbox") or "checked" in tag):
            fields[values["name"]] = html.unescape(values.get("value", ""))
    return fields


def crawl(page: httpx.Client) -> dict[str, str]:
    """One page of each kind that the pages link to, and what these link to, by kind.

    None of them fails, or has characters that a browser would interpret.
    """
    texts = dict[str, str]()
    waiting = {"/": "/"}
    while waiting:
        for kind, path in waiting.items():
            answer = page.get(path)
            assert answer.status_code == 200, (path, answer.text[-2000:])
            for raw in ("\x1b", "\u202e", "<script>alert", "<b>"):
                assert raw not in answer.text, path
            texts[kind] = answer.text
        links = {one for text in texts.values() for one in re.findall(r'<a[^>]*href="(/[^"]*)"', text)}
        kinds = {_kind(html.unescape(one)): html.unescape(one) for one in sorted(links)}
        waiting = {kind: path for kind, path in kinds.items() if kind not in texts and "/message/body" not in path}
    return texts


def _kind(path: str) -> str:
    """The address without names and values."""
    parts = urlsplit(path)
    names = re.sub(r"^(/\w+)/.*", r"\1/NAME", parts.path)
    return f"{names}?{sorted(one.partition('=')[0] for one in parts.query.split('&'))}"
