"""docs/runbook.md: each command is run on the store of its section, and says what the page says.

``pytest tests/transcripts --update-transcripts`` writes the outputs of the page. Read the difference before you commit
it.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from gantrymq.cli.main import exit_code
from runbook_stores import DAMAGES, make

PAGE = Path(__file__).parents[2] / "docs" / "runbook.md"
BLOCK = re.compile(r"^```console ?(?P<store>[\w-]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT = "$ "
# What differs from run to run: how long something took, and the rate that follows from it.
VOLATILE = [
    (re.compile(r"\b\d[\d.,]* (ms|s|µs)\b"), "… ms"),
    (re.compile(r"\b[\d.,]+ ([kMGT]?B)/s"), r"… \1/s"),
    (re.compile(r"\b[\d.,]+ (a second)"), r"… \1"),
    (re.compile(r"\bpid \d+|process \d+"), "process …"),
    (re.compile(r"\b(?!2025-11-21)\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\+00:00"), "…"),  # stored by the command itself
]
# The steps of a command below the time of all.
STEPS = re.compile(r"\n {8,}\w+ … ms(?=\n|$)")
ANY_LINES = "…"


def blocks() -> list[tuple[str, str]]:
    return [(match["store"], match["text"]) for match in BLOCK.finditer(PAGE.read_text("utf-8"))]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The healthy store."""
    path = tmp_path_factory.mktemp("original") / "store"
    make(path)
    return path


def run(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command says, as the page has it: with ``/data`` for the folder and the exit code where it is not 0."""
    program, *arguments = shlex.split(command.replace("/data", str(folder)))
    assert program == "gantrymq", command
    code = exit_code(arguments)
    said = "".join(capsys.readouterr())
    said = "\n".join(line.rstrip() for line in said.splitlines()).replace(str(folder), "/data")
    for pattern, instead in VOLATILE:
        said = pattern.sub(instead, said)
    said = STEPS.sub("", said).strip("\n")
    return said + (f"\n[exit code {code}]" if code else "")


def transcript(store: str, text: str, folder: Path, original: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The block as its commands say it now. A block without the name of a store goes on with that of the one before."""
    if store:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(original, folder / "store")
        DAMAGES[store](folder / "store")
    said = []
    for part in re.split(r"^(?=\$ )", text, flags=re.MULTILINE):
        if part.startswith(PROMPT):
            command, _, shown = part.removeprefix(PROMPT).partition("\n")
            said.append(f"{PROMPT}{command}\n{shortened(run(command, folder, capsys), shown.strip())}")
    return "\n".join(said) + "\n"


def shortened(fresh: str, shown: str) -> str:
    """An output as the page shows it, if the lines "…" of the page stand for any lines of it; otherwise the whole."""
    pattern = "".join(r"(?:.*\n)*" if line == ANY_LINES else re.escape(f"{line}\n") for line in shown.splitlines())
    return shown if re.fullmatch(pattern, f"{fresh}\n") else fresh


def test_output_of_every_command_equals_page(
    original: Path,
    tmp_path: Path,
    utc: None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    text = PAGE.read_text("utf-8")
    fresh = BLOCK.sub(
        lambda match: (
            f"```console{' ' * bool(match['store'])}{match['store']}\n"
            f"{transcript(match['store'], match['text'], tmp_path / 'data', original, capsys)}```"
        ),
        text,
    )
    if request.config.getoption("--update-transcripts"):
        PAGE.write_text(fresh, "utf-8")
    assert fresh.splitlines() == text.splitlines()


def test_runbook_has_every_kind_of_store() -> None:
    assert {store for store, _ in blocks() if store} == set(DAMAGES)
