"""Rules for pages: sizes, cells that can be read in raw Markdown, no tests in user pages, figures of the README."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
README_LINES = 100
CELL_CHARACTERS = 200
# For people who change gantrymq, so they may name its tests.
OF_DEVELOPERS = {"ARCHITECTURE.md", "STYLE.md", "decisions", "formats", "perf"}
_BLOCK = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


def pages() -> list[Path]:
    """All committed pages of the documentation."""
    return [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """The lines of a page with their numbers, without blocks of code and comments."""
    text = page.read_text("utf-8")
    for pattern in (_BLOCK, _COMMENT):
        text = pattern.sub(lambda match: "\n" * match[0].count("\n"), text)
    yield from enumerate(text.splitlines(), 1)


def cells(line: str) -> list[str]:
    """The cells of a row of a table."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def test_readme_fits_hundred_lines() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= README_LINES


def test_cell_of_table_can_be_read_in_raw_markdown() -> None:
    wrong = [
        f"{page.relative_to(ROOT)}:{number}: a cell of {longest} characters: give the row lines of its own"
        for page in pages()
        for number, line in prose(page)
        if line.startswith("|") and (longest := max(map(len, cells(line)))) > CELL_CHARACTERS
    ]
    assert not wrong, "\n".join(wrong)


def test_user_page_does_not_name_tests() -> None:
    wrong = [
        f"{page.relative_to(ROOT)}:{number}: {line.strip()}"
        for page in sorted(DOCS.rglob("*.md"))
        if page.relative_to(DOCS).parts[0] not in OF_DEVELOPERS
        for number, line in prose(page)
        if "tests/" in line
    ]
    assert not wrong, "\n".join(wrong)


def test_readme_ratios_equal_those_of_performance_page() -> None:
    table = (ROOT / "README.md").read_text("utf-8").partition("## How it compares")[2]
    ratios = re.findall(r"\d[\d.]* to \d[\d.]*(?=\*{0,2} \|)", table)
    performance = (DOCS / "PERFORMANCE.md").read_text("utf-8")
    assert len(ratios) == 10
    assert [ratio for ratio in ratios if ratio not in performance] == []
