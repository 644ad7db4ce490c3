"""What a person at a terminal sees, and how long it takes until something is seen."""

from __future__ import annotations

import json
import os
import platform
import pty
import select
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_cases import COMMAND, Run, start
from rich.console import Console

from gantrymq.cli import terminal

COMMANDS = ("info", "dump", "log", "query", "at", "recover", "ingest")


@pytest.mark.parametrize("words", [[], ["store"], *(["store", name] for name in COMMANDS)], ids=" ".join)
def test_help_has_examples(gantrymq: Run, words: list[str]) -> None:
    outcome = gantrymq(*words, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert all(name in outcome.text for name in COMMANDS) if words == ["store"] else "Examples" in outcome.text
    assert f"gantrymq {' '.join(words)}".rstrip() in outcome.text
    if words[:1] == ["store"] and len(words) == 2:
        assert all(option in outcome.text for option in ("--config", "-c", "--set", "--json"))


def test_no_arguments_show_help(gantrymq: Run) -> None:
    for words in ([], ["store"]):
        outcome = gantrymq(*words)
        assert "Usage: gantrymq" in outcome.text
        assert (outcome.code, outcome.err) == (2, "")


def test_version_names_build_platform_and_extras(gantrymq: Run) -> None:
    from gantrymq import __version__

    first, built, runs_on, extras = gantrymq("--version").text.splitlines()
    assert first == f"gantrymq {__version__}"
    assert "a checkout" in built
    assert f"Python {platform.python_version()}" in runs_on
    assert "jit" in extras.partition("(")[0]


LARGE = ("pandas", "pyarrow", "pyspark")
HEAVY = ("numba", "numpy", "gantrymq.store", *LARGE)
# What a recovery that loses nothing does without. Each was a part of its start once.
UNUSED = ("asyncio", "ssl", "msgspec", "gantrymq.config.broker_settings", "gantrymq.tools.findings")


@pytest.mark.parametrize(
    ("arguments", "forbidden"),
    [
        (["--help"], HEAVY),
        (["--version"], (*HEAVY, "asyncio", "logging", "rich", "gantrymq.cli.admin", "gantrymq.client")),
        (["store", "dump", "--help"], HEAVY),
        (
            ["store", "info", "STORE", "--json"],
            ("numba", "rich.table", *LARGE),
        ),
        (["store", "info", "STORE"], ("numba", *LARGE)),
        (["store", "dump", "STORE"], ("numba", *LARGE)),
        (["store", "log", "STORE", "--json"], ("numba", "rich.table", *LARGE)),
        (["store", "recover", "STORE", "--json"], ("numba", "_hashlib", *UNUSED, *LARGE)),
        (["store", "recover", "STORE", "--dry-run"], ("numba", "rich", "_hashlib", *LARGE)),
        (["store", "rebuild", "STORE", "--json"], ("numba", "_hashlib", *LARGE)),
        (["store", "verify", "STORE", "--json"], ("numba", *LARGE)),
        (["store", "salvage", "STORE", "OUT", "--json"], ("numba", *LARGE)),
    ],
)
def test_command_imports_only_needed_modules(
    golden: Callable[[str], Path], tmp_path: Path, arguments: list[str], forbidden: tuple[str, ...]
) -> None:
    code = (
        "import sys\nfrom gantrymq.cli.main import exit_code\nstatus = exit_code(sys.argv[2:])\n"
        "loaded = [name for name in sys.argv[1].split(',') if name in sys.modules]\n"
        "sys.exit(f'loaded {loaded}' if loaded else status)"
    )
    store = str(golden("direct-mixed") / "store")

    def run(out: str) -> subprocess.CompletedProcess[bytes]:
        places = {"STORE": store, "OUT": str(tmp_path / out)}
        words = [places.get(word, word) for word in arguments]
        command = [sys.executable, "-c", code, ",".join(forbidden), *words]
        return subprocess.run(command, capture_output=True, check=False)

    done = run("first")
    if done.returncode or done.stderr:  # it may have had to compile kernels
        done = run("second")
    assert (done.returncode, done.stderr) == (0, b"")


def test_closed_pipe_prints_no_error(golden: Callable[[str], Path]) -> None:
    for more in ([], ["--json"]):
        with start("store", "dump", golden("direct-mixed") / "store", *more) as child:
            assert child.stdout is not None
            child.stdout.readline()
            child.stdout.close()
            _, err = child.communicate(timeout=60)
        assert (child.returncode, err) == (141, b"")


def _at_a_terminal(*arguments: object) -> str:
    """What the command writes to a terminal that is both its stdout and its stderr."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment
    ) as child:
        os.close(theirs)
        shown, waiting = b"", select.poll()  # select.select takes no descriptor beyond 1023
        waiting.register(ours, select.POLLIN)
        while waiting.poll(60_000):
            try:
                data = os.read(ours, 65536)
            except OSError:  # the terminal's other end is closed
                break
            shown += data
        assert child.wait(60) == 0
    os.close(ours)
    return shown.decode()


def test_progress_is_shown_on_terminal(golden_copy: Callable[[str], Path], tmp_path: Path) -> None:
    store = golden_copy("lost-queues")
    shown = _at_a_terminal("store", "recover", store)
    assert "Reading the commit log" in shown
    assert "added" in shown
    given = tmp_path / "in.jsonl"
    given.write_text('{"topic":"t","body":"b"}\n' * 1000)
    shown = _at_a_terminal("store", "ingest", tmp_path / "new", given, "--set", "mappedFileSizeCommitLog=1048576")
    assert "Storing" in shown
    assert "1,000 messages stored" in shown
    answers = _at_a_terminal("store", "ingest", tmp_path / "new", given, "--json")
    assert "Storing" not in answers
    assert answers.count("PUT_OK") == 1000


OBEYED = "\x1b[31mRED\x1b]0;title\x07\x9b2J\u202e"
HARMLESS = "·[31mRED·]0;title··2J·"


@pytest.fixture
def odd_store(gantrymq: Run, tmp_path: Path) -> Path:
    """Its name, and a message's topic, tag, key and body: text that a terminal would obey."""
    store, given = tmp_path / f"s{OBEYED}", tmp_path / "in.jsonl"
    given.write_text(json.dumps({"topic": OBEYED, "body": f"{OBEYED}\nゴ\u3000ゴ", "tags": OBEYED, "keys": ["a\nb"]}))
    assert gantrymq("store", "ingest", store, given, "--set", "mappedFileSizeCommitLog=65536").code == 0
    return store


@pytest.mark.parametrize(
    "words",
    [
        *(["dump"], ["log"], ["info"], ["query", OBEYED, "a\nb"], ["at", OBEYED, "0", "0"]),
        *(["recover"], ["rebuild"], ["verify"], ["export", "OUT"], ["salvage", "OUT"], ["ingest", os.devnull]),
    ],
    ids=lambda words: words[0],
)
def test_control_characters_are_escaped_on_terminal(
    gantrymq: Run, odd_store: Path, tmp_path: Path, words: list[str]
) -> None:
    if words == ["verify"]:
        shutil.rmtree(odd_store / "consumequeue" / OBEYED)
    out = str(tmp_path / f"out{OBEYED}")
    outcome = gantrymq("store", words[0], odd_store, *(out if word == "OUT" else word for word in words[1:]))
    assert all(line.isprintable() for line in outcome.text.replace("\u3000", "").split("\n")), outcome.text
    assert HARMLESS in outcome.text or words[0] == "query"
    if words[0] in ("dump", "log", "query"):
        assert f"  a·b                   {HARMLESS}·ゴ\u3000ゴ\n" in outcome.text
    (tmp_path / f"no store{OBEYED}").touch()
    assert HARMLESS in gantrymq("store", words[0], tmp_path / f"no store{OBEYED}", *words[1:]).err


def test_names_with_control_characters_are_escaped_on_terminal(odd_store: Path) -> None:
    shown = _at_a_terminal("store", "info", odd_store)
    assert (OBEYED[:8] in shown, HARMLESS in shown) == (False, True)


def test_names_with_control_characters_are_escaped_in_log() -> None:
    """A broker chooses the name that it registers under."""
    code = (
        "import sys\nfrom gantrymq.cli.serving import _log_to_stderr\nfrom gantrymq.logs import get_logger\n"
        "_log_to_stderr(verbose=True)\nget_logger().info('a broker registered', broker=sys.argv[1], id=0)"
    )
    done = subprocess.run([sys.executable, "-c", code, OBEYED], capture_output=True, check=True, text=True)
    assert done.stderr.rstrip().isprintable()
    assert f"broker={HARMLESS} id=0" in done.stderr


def test_store_log_lines_have_format_of_server_lines() -> None:
    code = (
        "import logging\nfrom gantrymq.cli.serving import _log_to_stderr\nfrom gantrymq.logs import get_logger\n"
        "_log_to_stderr(verbose=False)\nget_logger().warning('a line')\n"
        "logging.getLogger('gantrymq.store.x').warning('a line')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    of_server, of_store = (line.split("[", 1)[1].rstrip() for line in done.stderr.splitlines())
    assert of_server == of_store == "warning  ] a line"


def test_export_formats_match_writers() -> None:
    """The command has its own list, so that its help does not load Arrow."""
    from gantrymq.cli.export import Format
    from gantrymq.tools.export_files import _WRITERS, ExportFormat

    assert [one.value for one in Format] == [one.value for one in ExportFormat]
    assert set(_WRITERS) == set(ExportFormat)


def test_table_wider_than_terminal_has_block_for_each_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = ["cluster", "broker", ">id", "address", ">in today", ">out today", "active"]
    rows = [
        ["DefaultCluster", name, "0", "127.0.0.1:10911", "1,000", "2", "yes"] for name in ("broker-a", "broker\x1b")
    ]
    for width in (60, 90):
        monkeypatch.setattr(terminal, "console", lambda width=width: Console(width=width))
        terminal.print_table(columns, rows)
        shown = capsys.readouterr().out
        assert all(
            word in shown.split() for word in ("DefaultCluster", "broker-a", "broker·", "127.0.0.1:10911", "1,000")
        )
        assert ("in today   1,000\n" in shown) is (width == 60)
