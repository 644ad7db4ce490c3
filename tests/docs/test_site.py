"""The site: its navigation has every page, and every link within the documentation leads somewhere.

The generated pages (scripts/site_hooks.py) count as pages of docs/. Links to them are examined as the site has them.
"""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
OUTSIDE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
HOOKS = runpy.run_path(str(ROOT / "scripts" / "site_hooks.py"))
COMMITTED = sorted(DOCS.rglob("*.md"))
_CODE = re.compile(r"^( *)```.*?^\1```$|``.+?``|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
_HEADING = re.compile(r"^#{1,6} +(.*?)(?: +#*)?$", re.MULTILINE)


@cache
def texts() -> dict[Path, str]:
    """The pages of the site: made by the first test, because each worker imports this module to collect its tests."""
    committed = {page: HOOKS["on_page_markdown"](page.read_text("utf-8")) for page in COMMITTED}
    return committed | {DOCS / path: text for path, text in HOOKS["generated_pages"]().items()}


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
    text = texts()[page] if page in texts() else page.read_text("utf-8")
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)
    seen: Counter[str] = Counter()
    found = set()
    for heading in _HEADING.findall(text):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def broken_links(page: Path, text: str, texts: Mapping[Path, str]) -> Iterator[str]:
    """The links of a page that lead neither to a file nor to one of ``texts``, or to a heading that is not there."""
    for target in _LINK.findall(without_code(text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        file = (page.parent / path).resolve() if path else page
        name = f"{page.relative_to(ROOT)}: {target}"
        if not file.exists() and file not in texts:
            yield f"{name}: no such file"
        elif page.is_relative_to(DOCS) and not file.is_relative_to(DOCS):
            yield f"{name}: outside of docs/, so not on the site"
        elif file.is_dir() and page.is_relative_to(DOCS):
            yield f"{name}: a directory"
        elif anchor and anchor not in anchors(file):
            yield f"{name}: no such heading"


def test_navigation_has_every_page_once() -> None:
    configured = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), _Loader)["nav"]
    assert sorted(navigation(configured)) == [str(page.relative_to(DOCS)) for page in sorted(texts())]


def test_every_relative_link_and_anchor_of_site_resolves() -> None:
    assert [line for page, text in texts().items() for line in broken_links(page, text, texts())] == []


def test_every_relative_link_and_anchor_of_committed_pages_leads_to_committed_page() -> None:
    pages = [*COMMITTED, *(ROOT / name for name in OUTSIDE)]
    assert [line for page in pages for line in broken_links(page, page.read_text("utf-8"), {})] == []


def test_lists_and_tables_are_seen_by_markdown() -> None:
    """MkDocs needs a blank line before a list or a table, and four spaces before what belongs to an item."""
    wrong = []
    for page, source in texts().items():
        text = _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), source)
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
def test_site_builds_without_warning_and_without_other_hosts(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|link|img|iframe)[^>]*?(?:src|href)="?(https?:[^" >]+)', page.read_text("utf-8")
        )
        assert [url for url in loaded if "canonical" not in url] == [], page
    shutil.rmtree(tmp_path / "site")
