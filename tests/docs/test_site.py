"""The site: its navigation has every page, and every link within the documentation leads somewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
OUTSIDE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
PAGES = sorted(DOCS.rglob("*.md"))
_CODE = re.compile(r"^( *)```.*?^\1```$|``.+?``|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
_HEADING = re.compile(r"^#{1,6} +(.*?)(?: +#*)?$", re.MULTILINE)


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without the Python objects that it names."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)


def navigation(entry: Any) -> Iterator[str]:
    """The pages of a part of the navigation."""
    if isinstance(entry, str):
        yield entry
    else:
        for below in entry.values() if isinstance(entry, dict) else entry:
            yield from navigation(below)


def without_code(text: str) -> str:
    """The text without blocks and spans of code, and without comments."""
    return _CODE.sub("", _COMMENT.sub("", text))


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub and the site make them."""
    text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    seen: Counter[str] = Counter()
    found = set()
    for heading in _HEADING.findall(text):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def broken_links(page: Path) -> Iterator[str]:
    for target in _LINK.findall(without_code(page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        file = (page.parent / path).resolve() if path else page
        name = f"{page.relative_to(ROOT)}: {target}"
        if not file.exists():
            yield f"{name}: no such file"
        elif page.is_relative_to(DOCS) and not file.is_relative_to(DOCS):
            yield f"{name}: outside of docs/, so not on the site"
        elif file.is_dir() and page.is_relative_to(DOCS):
            yield f"{name}: a directory"
        elif anchor and anchor not in anchors(file):
            yield f"{name}: no such heading"


def test_the_navigation_has_every_page_once() -> None:
    configured = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), _Loader)["nav"]
    assert sorted(navigation(configured)) == [str(page.relative_to(DOCS)) for page in PAGES]


def test_every_relative_link_and_anchor_resolves() -> None:
    assert [line for page in [*PAGES, *(ROOT / name for name in OUTSIDE)] for line in broken_links(page)] == []


def test_lists_and_tables_are_seen_by_markdown() -> None:
    """MkDocs needs a blank line before a list or a table, and four spaces before what belongs to an item."""
    wrong = []
    for page in PAGES:
        text = _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), page.read_text("utf-8"))
        text = _CODE.sub(lambda found: "\n" * found[0].count("\n"), text)
        lines = ["", *text.splitlines()]
        for number, (before, line) in enumerate(pairwise(lines), 1):
            begins = (
                re.match(r"(?:[-*] |1\. |\|)", line)
                and before.strip()
                and not re.match(r"\s*(?:[-*]|\d+\.) |\||\s{2,}", before)
            )
            nested = re.match(r" {1,3}(?:[-*]|\d+\.) ", line)
            if begins or nested:
                wrong.append(f"{page.relative_to(ROOT)}:{number}: {line}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_mkdocs_builds_the_site_without_a_warning_and_without_other_hosts(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|link|img|iframe)[^>]*?(?:src|href)="?(https?:[^" >]+)', page.read_text("utf-8")
        )
        assert [url for url in loaded if "canonical" not in url] == [], page
    shutil.rmtree(tmp_path / "site")
