"""What MkDocs calls while it builds the site (mkdocs.yml, ``hooks``).

Drawings (SVG) are put into the page instead of beside it: an image in a file of its own follows the colours of the
system, a drawing in the page follows the palette that the reader has chosen.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_IMAGE = re.compile(r'<img alt="([^"]*)" src="([^"]+\.svg)"\s*/?>')


_STORE = re.compile(r"^```console [\w-]+$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page without the names of stores after ``console``, which are for tests/transcripts."""
    return _STORE.sub("```console", markdown)


def on_page_content(html: str, page: Any, config: Any, **_: Any) -> str:
    """The page with its drawings in place of the images that name them."""
    folder = Path(config["docs_dir"]) / Path(page.file.src_uri).parent

    def drawing(found: re.Match[str]) -> str:
        text = (folder / found[2]).read_text("utf-8")
        return re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)

    return _IMAGE.sub(drawing, html)
