"""What MkDocs calls while it builds the site (mkdocs.yml, ``hooks``).

Pages that follow from the code are not in git: the site builds them. ``generated_pages`` has them by their path in
docs/. A committed page links to one by way of reference.md, which says how to see it without the site, and names the
page as the link's title::

    [public names](reference.md#generated-pages "api.md#the-store")

In the site such a link leads to the page itself. ``<!-- tables of metrics -->`` stands for the tables of
metrics_page.py, ``<!-- table of mqadmin -->`` for that of commands_page.py, ``<!-- drawing: NAME -->`` for a drawing of
drawings.py. A drawing is put into the page instead of beside it: an image in a file of its own follows the colours of
the system, a drawing in the page follows the palette that the reader has chosen.
"""

from __future__ import annotations

import re
import runpy
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

_FOLDER = Path(__file__).parent
_GENERATED_LINK = re.compile(r'\]\((?:\.\./)*reference\.md#generated-pages\s+"([^"]+)"\)')
_TABLES_OF_METRICS = "<!-- tables of metrics -->"
_TABLE_OF_MQADMIN = "<!-- table of mqadmin -->"
_DRAWING = re.compile(r"<!-- drawing: ([\w-]+) -->")
_STORE = re.compile(r"^```console [\w-]+$", re.MULTILINE)


@cache
def generated_pages() -> dict[str, str]:
    """The text of each generated page by its path in docs/."""
    keys = _script("broker_keys_page")
    return {
        "api.md": _script("api_page")["page"](),
        "compatibility/broker-keys.md": keys["page"](),
        "compatibility/proxy-keys.md": keys["proxy_page"](),
        **{f"commands/{name}": text for name, text in _script("commands_page")["pages"]().items()},
    }


def on_files(files: Any, config: Any) -> Any:
    """The files of the site with the generated pages."""
    for path, text in generated_pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page as the site has it: links to generated pages, tables of the code, blocks without names of stores.

    The name of a store after ``console`` is for tests/transcripts.
    """
    markdown = _GENERATED_LINK.sub(r"](\1)", _STORE.sub("```console", markdown))
    if _TABLES_OF_METRICS in markdown:
        markdown = markdown.replace(_TABLES_OF_METRICS, _script("metrics_page")["reference"]())
    if _TABLE_OF_MQADMIN in markdown:
        markdown = markdown.replace(_TABLE_OF_MQADMIN, _script("commands_page")["mqadmin"]())
    return markdown


def on_page_content(html: str, **_: Any) -> str:
    """The page with its drawings."""
    return _DRAWING.sub(lambda found: _script("drawings")["DRAWINGS"][found[1]], html)


@cache
def _script(name: str) -> dict[str, Any]:
    return runpy.run_path(str(_FOLDER / f"{name}.py"))
