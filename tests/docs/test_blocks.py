"""Every block of code in the documentation is run, or says why not (doc_blocks.py has the rules)."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import pytest
from doc_blocks import ROOT, Block, blocks_of, pages
from page_run import PageRun, check_command, check_data, commands_of

from gantrymq import EmbeddedBroker
from interop.fixed_ports import fixed_port

BLOCKS = {page: blocks for page in pages() if (blocks := blocks_of(page))}
ALL = [block for blocks in BLOCKS.values() for block in blocks]
NAMESRV = "127.0.0.1:9876"
SHORTEST_REASON = 2  # words
CODE = {"before", "after"}
KNOWN = CODE | {"slow", "parsed", "run by", "not run"}
# What the examples need of their broker.
SETTINGS = {"enablePropertyFilter": True, "recallMessageEnable": True}


def with_fates(*fates: str) -> list[str]:
    return [page for page, blocks in BLOCKS.items() if any(one.fate in fates and not one.title for one in blocks)]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """That of a new user: an empty home, and this Python's commands."""
    home = tmp_path / "home"
    home.mkdir()
    kept = {name: os.environ[name] for name in ("JAVA_HOME", "LANG") if name in os.environ}
    commands = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    return kept | {
        "HOME": str(home), "PATH": commands, "COLUMNS": "110", "TZ": "UTC", "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1", "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTEST_ADDOPTS": "-p no:asyncio -p no:cacheprovider -p no:hypothesispytest -p no:benchmark",
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "page"
    path.mkdir()
    monkeypatch.chdir(path)
    return path


def test_every_block_is_run_or_says_why_not() -> None:
    wrong = [f"{one.place}: a block of '{one.language}' without a marker" for one in ALL if not one.fate]
    for one in ALL:
        for name, reason in one.markers.items():
            if name == "run by":
                assert (ROOT / reason).is_file(), f"{one.place}: {reason} is not there"
            elif name not in CODE and len(reason.split()) < SHORTEST_REASON:
                wrong.append(f"{one.place}: '{name}' without a reason")
    assert not wrong, "\n".join(wrong)


def test_every_marker_is_known() -> None:
    assert {name for one in ALL for name in one.markers if name not in KNOWN and not name.startswith("exits")} == set()


@pytest.mark.parametrize("block", [one for one in ALL if one.fate == "checked"], ids=lambda one: one.place)
def test_block_of_data_can_be_parsed(block: Block) -> None:
    check_data(block)


@pytest.mark.parametrize("page", with_fates("parsed"))
def test_commands_of_page_are_parsed(page: str, folder: Path) -> None:
    for name in ("broker.conf", "namesrv.conf", "messages.jsonl"):
        (folder / name).touch()
    for block in BLOCKS[page]:
        if block.fate == "parsed":
            commands = commands_of(block.text)
            assert commands, block.place
            for words in commands:
                check_command(words)


@pytest.mark.parametrize("page", with_fates("run"))
def test_blocks_of_page_run(
    page: str, folder: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a broker in place of the one that the page names."""
    monkeypatch.setenv("HOME", environment["HOME"])
    run_page(page, {"run", "file"}, folder, environment)


@pytest.mark.slow
@pytest.mark.parametrize("page", with_fates("slow"))
def test_slow_blocks_of_page_run(
    page: str, folder: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first block to the last, with the servers that the page starts, at other ports."""
    monkeypatch.setenv("HOME", environment["HOME"])
    run_page(page, {"run", "file", "slow"}, folder, environment)


def replace_all(text: str, replaced: dict[str, str]) -> str:
    for before, after in replaced.items():
        text = text.replace(before, after)
    return text


def run_page(page: str, fates: set[str], folder: Path, environment: dict[str, str]) -> None:
    blocks = [block for block in BLOCKS[page] if block.fate in fates]
    replaced = {"/data/": f"{folder}/"}
    with contextlib.ExitStack() as stack:
        if any("gantrymq serve" in block.text for block in blocks):
            namesrv, listen = fixed_port(), fixed_port()
            replaced |= {
                NAMESRV: f"127.0.0.1:{namesrv}",
                "gantrymq serve": f"gantrymq serve --namesrv-port {namesrv} --listen-port {listen}",
                "127.0.0.1:10911": f"127.0.0.1:{listen}",
            }
        elif any(NAMESRV in block.text for block in blocks):
            replaced[NAMESRV] = stack.enter_context(EmbeddedBroker(settings=SETTINGS)).namesrv
        run = PageRun(folder, lambda text: replace_all(text, replaced), environment)
        stack.callback(run.close)
        for block in blocks:
            run.run(block)
