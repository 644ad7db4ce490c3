"""The pages and drawings that scripts write are what the scripts would write now."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_pages_of_commands_are_what_their_script_writes() -> None:
    """After a change of a command, an option or a help text run scripts/commands_page.py."""
    pages = runpy.run_path(str(ROOT / "scripts" / "commands_page.py"))["pages"]()
    folder = ROOT / "docs" / "commands"
    assert {path.name for path in folder.iterdir()} == set(pages)
    for name, text in pages.items():
        assert (folder / name).read_text("utf-8") == text, name


def test_the_drawings_are_what_their_script_writes() -> None:
    """After a change of a drawing run scripts/drawings.py."""
    for name, content in runpy.run_path(str(ROOT / "scripts" / "drawings.py"))["DRAWINGS"].items():
        assert (ROOT / "docs" / "images" / name).read_text("utf-8") == content, name
