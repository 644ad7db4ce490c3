"""Runs the blocks of a page one after the other, in an empty directory."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer
import yaml
from doc_blocks import Block

from gantrymq.cli.application import application

PROMPT = "$ "
_END_OF_BLOCK = "-- end of the block --"
_KILLED_JOB = re.compile(r"\S+: line \d+: +\d+ Killed\b")  # an interactive bash says it in other words
_WAIT_S = 30


class PageRun:
    """The state that the blocks of a page share: a directory, a Python namespace and a shell.

    ``replaced`` has the texts of the page, addresses and paths, for which a test has others.
    """

    def __init__(self, folder: Path, replaced: Callable[[str], str], environment: Mapping[str, str]) -> None:
        self.folder = folder
        self._replaced = replaced
        self._environment = environment
        self._shell: Shell | None = None
        self._names: dict[str, Any] = {"__name__": "__page__", "input": self._input}
        self._printed = io.StringIO()
        self._said = ""

    def run(self, block: Block) -> None:
        """Do with the block what its language says."""
        text = self._replaced(block.text)
        if block.title:
            path = self.shell.directory / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        elif block.language == "output":
            check_output(block.place, self._replaced(block.text), self._said)
        elif block.language == "bash":
            self._said, code = self.shell.run(text)
            assert code == block.exit_code, f"{block.place}: exit code {code}\n{self._said}"
        elif block.language == "console":
            self._run_console(block, text)
        else:
            self._run_python(block, text)

    @property
    def shell(self) -> Shell:
        """The shell of the page, in its directory."""
        if self._shell is None:
            self._shell = Shell(self.folder, self._environment)
        return self._shell

    def close(self) -> None:
        """End the shell and what runs in its background."""
        if self._shell is not None:
            self._shell.close()

    def _run_console(self, block: Block, text: str) -> None:
        for part in re.split(r"^(?=\$ )", text, flags=re.MULTILINE):
            if part.startswith(PROMPT):
                command, _, expected = part.removeprefix(PROMPT).partition("\n")
                said, code = self.shell.run(command + "\n")
                exit_line = f"[exit code {code}]\n" if code else ""
                check_output(f"{block.place}: {command}", expected, said + exit_line)

    def _run_python(self, block: Block, text: str) -> None:
        before, after = (self._replaced(block.markers.get(name, "")) for name in ("before", "after"))
        if any(takes_fixtures(one) for one in ast.parse(text).body):
            self._run_pytest(block, f"{before}\n\n{text}")
            return
        self._printed = io.StringIO()
        with contextlib.redirect_stdout(self._printed):
            self._execute(before, f"{block.place}, before")
            known = dict(self._names)
            # Lines of an error are those of the page.
            self._execute("\n" * block.line + text, block.page)
            for name, test in self._names.items():
                if name.startswith("test_") and known.get(name) is not test:
                    test()
            self._execute(after, f"{block.place}, after")
        self._said = self._printed.getvalue()

    def _execute(self, text: str, name: str) -> None:
        code = compile(text, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, self._names)
        if inspect.iscoroutine(result):
            asyncio.run(result)

    def _run_pytest(self, block: Block, text: str) -> None:
        path = self.folder / f"test_line_{block.line}.py"
        path.write_text(text, "utf-8")
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path.name]
        environment = {**self._environment, "PYTEST_ADDOPTS": "-o asyncio_default_fixture_loop_scope=function"}
        done = subprocess.run(
            words, cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0, f"{block.place}\n{done.stdout}{done.stderr}"

    def _input(self, prompt: str = "") -> str:
        """Press Enter when the program has printed something, as a reader would."""
        deadline = time.monotonic() + _WAIT_S
        while not self._printed.getvalue():
            assert time.monotonic() < deadline, "the program printed nothing"
            time.sleep(0.01)
        return ""


def takes_fixtures(node: ast.stmt) -> bool:
    """Whether this is a test that only pytest can call."""
    return (
        isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.name.startswith("test_")
        and bool(node.args.args or node.decorator_list)
    )


class Shell:
    """A bash that runs one text after the other and keeps its directory, its variables and its background jobs."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._script = folder.with_name(f"{folder.name}.sh")
        self._process = subprocess.Popen(
            ["bash", "--norc"], cwd=folder, env=dict(environment), text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._write("set -E; trap 'failed=$?' ERR\n")

    def run(self, text: str) -> tuple[str, int]:
        """What the text prints, and the exit code of its last command that failed, or 0."""
        self._script.write_text(text, "utf-8")
        self._write(
            f"failed=0; . {shlex.quote(str(self._script))} < /dev/null\n"
            f"printf '\\n%s %s\\n' '{_END_OF_BLOCK}' $failed\n"
        )
        lines: list[str] = []
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_END_OF_BLOCK):
                return "".join(lines).removesuffix("\n"), int(line.split()[-1])
            if not _KILLED_JOB.match(line):
                lines.append(line)
        raise AssertionError(f"bash ended: {''.join(lines)}")

    @property
    def directory(self) -> Path:
        """Where the commands so far have gone."""
        return Path(self.run("pwd")[0].strip())

    def close(self) -> None:
        """End bash and its background jobs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def _write(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()


def check_output(place: str, expected: str, said: str) -> None:
    """Compare line by line. ``…`` stands for any part of a line, and on a line of its own for any lines."""
    wanted, got = (
        "\n".join(line.rstrip() for line in text.splitlines()).strip("\n") + "\n" for text in (expected, said)
    )
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "…" else re.escape(line).replace("…", ".*?") + r"\n"
        for line in wanted.splitlines()
    )
    assert re.fullmatch(pattern, got), f"{place} shows\n{wanted}\nbut this is printed\n{got}"


def check_data(block: Block) -> None:
    """Parse a block of data."""
    if block.language == "json":
        for line in block.text.splitlines():
            json.loads(line)
    elif block.language == "toml":
        tomllib.loads(block.text)
    else:
        list(yaml.safe_load_all(block.text))


def commands_of(text: str) -> list[list[str]]:
    """The arguments of each call of gantrymq in lines of a shell."""
    found: list[list[str]] = []
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|>&;")
        lexer.whitespace_split = True
        words: list[str] | None = None
        for word in lexer:
            if word == "gantrymq":
                words = []
                found.append(words)
            elif word and not set(word) - set("|>&;"):
                words = None
            elif words is not None:
                words.append(word)
    return found


def check_command(words: list[str]) -> None:
    """Parse a call of gantrymq to its last option, without running it."""
    context, parsed = None, typer.main.get_command(application(words))
    while True:
        context = parsed.make_context(parsed.name or "gantrymq", words, parent=context)
        if not hasattr(parsed, "resolve_command"):
            return
        _, parsed, words = parsed.resolve_command(context, [*context._protected_args, *context.args])
