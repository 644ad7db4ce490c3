"""The blocks of code of README.md and docs/: where they are, and what is done with each.

A block is fenced by three backticks. Its language says what a test does with it:

| language | |
|---|---|
| `python` | executed, in one namespace for all blocks of a page; a test function with fixtures is run by pytest |
| `bash` | run by bash, in one session for all blocks of a page. No command may fail |
| `output` | what the block before it prints, without the parts for which it has `…` |
| `console` | commands after `$ `, each with its output, which are run and compared |
| `json`, `toml`, `yaml` | parsed |

With `title="NAME"` a block is the content of a file, which later blocks of the page use.

Comments directly before the fence change that. Each but `before` and `after` has a reason:

    <!-- slow: REASON -->            the tests of `make test-slow` run it
    <!-- parsed: REASON -->          commands of gantrymq are parsed, not run
    <!-- run by: tests/FILE.py -->   another test runs it
    <!-- not run: REASON -->
    <!-- exits with 1: REASON -->    the last command of the block does
    <!-- before CODE -->             Python that is executed before the block, and that a reader need not see
    <!-- after CODE -->              the same after it

`page slow` and `page run by` hold for all blocks of a page, wherever they stand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MARKERS = "slow|parsed|run by|not run|exits with \\d+|before|after|page slow|page run by"
_COMMENT = re.compile(rf"<!--\s*({MARKERS})\b:?[ \t]*\n?(.*?)\s*-->", re.DOTALL)
_FENCE = re.compile(
    r"(?P<comments>(?:^ *<!--(?:(?!-->).)*-->\s*?\n\s*?)*)"
    r"^(?P<indent> *)```(?P<language>\w*)(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
EXECUTED = frozenset({"python", "bash", "console"})
PARSED = frozenset({"json", "toml", "yaml"})


@dataclass(frozen=True)
class Block:
    """A block of code: its page, the line of its fence, its language and text, and its markers with their reasons."""

    page: str
    line: int
    language: str
    title: str
    text: str
    markers: dict[str, str]

    @property
    def place(self) -> str:
        """The page with the line of the fence."""
        return f"{self.page}:{self.line}"

    @property
    def exit_code(self) -> int:
        """The exit code of its last command."""
        return next((int(name.split()[-1]) for name in self.markers if name.startswith("exits with")), 0)

    @property
    def fate(self) -> str:
        """What is done with the block: a marker's name, "run", "file", "checked" (data), or "" if nothing is."""
        for name in ("not run", "run by", "parsed", "slow"):
            if name in self.markers:
                return name
        if self.title:
            return "file"
        if self.language in EXECUTED or self.language == "output":
            return "run"
        return "checked" if self.language in PARSED else ""


def pages() -> list[str]:
    """README.md, CONTRIBUTING.md and every page of docs/."""
    return [
        "README.md",
        "CONTRIBUTING.md",
        *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/**/*.md"))),
    ]


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page in their order. An `output` has the markers of the block before it."""
    text = (ROOT / page).read_text("utf-8")
    of_page = {name.removeprefix("page "): why for name, why in _COMMENT.findall(text) if name.startswith("page ")}
    found: list[Block] = []
    for match in _FENCE.finditer(text):
        own = {name: why for name, why in _COMMENT.findall(match["comments"]) if not name.startswith("page ")}
        markers = of_page | own
        if match["language"] == "output" and found:
            markers = found[-1].markers | markers
        title = re.search(r'title="([^"]+)"', match["info"])
        indent = match["indent"]
        code = "".join(line.removeprefix(indent) for line in match["text"].splitlines(keepends=True))
        line = text.count("\n", 0, match.start("indent")) + 1
        found.append(Block(page, line, match["language"], title[1] if title else "", code, markers))
    return found
