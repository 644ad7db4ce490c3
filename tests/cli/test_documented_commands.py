"""README's five minutes, the examples of every --help, and the shapes that docs/cli.md shows are what happens."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from cli_cases import Outcome, Run

from gantrymq.cli.application import application
from gantrymq.model.message import Message
from gantrymq.store.queue.group_offsets import GroupAhead, GroupOffset
from gantrymq.tools import reports
from gantrymq.tools.findings import FindingKind
from store_cases import await_dispatch, open_store

ROOT = Path(__file__).resolve().parents[2]
# Sizes and places that only a large store has, and what stands for them in a small one.
SMALLER = {
    "1073741824": "0",
    "5000000": "500",
    "20000000": "2000",
    "0A00000100002A9F0000000040000000": "7F00000100002A9F0000000000000000",
}


def section(page: str, title: str) -> str:
    """The text below a heading, up to the next one of its level."""
    found = re.search(rf"^## {re.escape(title)}.*?\n(.*?)(?=^## |\Z)", (ROOT / page).read_text(), re.M | re.S)
    assert found, f"{page} has no section {title}"
    return found[1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("documented") / "store"
    with open_store(path=path) as store:
        body = b'{"id": 4711}'
        store.put_batch([Message("orders", body, tags="paid", keys=[str(4690 + number)]) for number in range(300)])
        await_dispatch(store)
    return path


@pytest.fixture
def data(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What /data is in the documentation, and the directory that the commands run in."""
    shutil.copytree(whole, tmp_path / "store")
    (tmp_path / "broker.conf").write_text("flushDiskType=SYNC_FLUSH\n")
    (tmp_path / "namesrv.conf").write_text("listenPort=9876\n")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "rmq-proxy.json").write_text("{}")
    lines = '{"topic":"t","body":"hi"}\n'
    for name in ("messages.jsonl", "x.jsonl", "stdin.jsonl"):
        (tmp_path / name).write_text(lines)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def words_of(command: str, data: Path) -> list[str]:
    """The arguments of a command as a shell would give them, with paths of a test; pipes end or begin outside of it."""
    command = command.removeprefix("source <(").rstrip(")")  # what a shell reads from a command
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|>")
    lexer.whitespace_split = True
    tokens, words = list(lexer), []
    is_fed = "|" in tokens and "gantrymq" in tokens[tokens.index("|") :]
    for token in tokens[tokens.index("gantrymq") + 1 :]:
        if token in ("|", ">"):
            break
        words.append(SMALLER.get(token, token).replace("/data/", f"{data}/").replace("/lake/", f"{data}/lake/"))
    words = [re.sub(r"=(\d+)$", lambda found: "=" + SMALLER.get(found[1], found[1]), word) for word in words]
    return [*words[:3], "stdin.jsonl", *words[3:]] if is_fed else words


def readme_commands() -> list[str]:
    text = section("README.md", "An operator's five minutes")
    return re.findall(r"^(gantrymq .*)$", text, re.M)


def without_comment(command: str) -> str:
    return re.sub(r"\s+# .*", "", command)


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_commands_of_readme_run(data: Path, gantrymq: Run, more: tuple[str, ...]) -> None:
    commands = readme_commands()
    assert len(commands) > 8
    assert commands[0].startswith("gantrymq store verify ")  # the decision comes first
    for command in commands:
        outcome = gantrymq(*words_of(without_comment(command), data), *more)
        assert (command, outcome.code, outcome.err) == (command, 0, "")
        assert outcome.out
        if more:
            assert all(isinstance(line, dict) for line in outcome.lines), command
    [one] = gantrymq(*words_of("gantrymq store show /data/store orders 4711", data), "--json").lines
    assert one["body"] == '{"id": 4711}'


def examples() -> Iterator[str]:
    """The examples of every command's --help."""
    for path in sorted((ROOT / "src/gantrymq/cli").rglob("*.py")):
        for block in re.findall(r"Examples of use:\n\n(.*?)(?:\n    \"\"\"|\n\n)", path.read_text(), re.S):
            yield from (line.strip() for line in block.splitlines() if line.strip())


@pytest.mark.parametrize("command", [one for one in examples() if "gantrymq store " in one and "spark" not in one])
def test_example_of_help_runs(command: str, data: Path, gantrymq: Run) -> None:
    if "/data/salvaged" in command and "salvage " not in command:
        shutil.copytree(data / "store", data / "salvaged")
    outcome = gantrymq(*words_of(command, data))
    assert (outcome.code, outcome.err) == (0, "")


@pytest.mark.parametrize("command", [one for one in examples() if "gantrymq store " not in one or "spark" in one])
def test_documented_long_running_command_parses(command: str, data: Path) -> None:
    words = words_of(command, data)
    context, parsed = None, typer.main.get_command(application(words))
    while True:
        context = parsed.make_context(parsed.name or "gantrymq", words, parent=context)
        if not hasattr(parsed, "resolve_command"):
            return
        _, parsed, words = parsed.resolve_command(context, [*context._protected_args, *context.args])


# The shapes of docs/cli.md


def shapes(text: str) -> list[list[str]]:
    """The keys of each object that the text shows as code, in their order."""
    return [keys_of(code) for code in re.findall(r'`\[?(\{"[^`]*\})\]?`', text)]


def keys_of(shape: str) -> list[str]:
    inner, before = shape[1:-1], ""
    while before != inner:  # what an object within holds
        before, inner = inner, re.sub(r"\{[^{}]*\}", "", inner)
    return re.findall(r'"(\w+)"(?=[,:]|$|\s)(?!\s*"?\w*"?\s*\})', re.sub(r":[^,]*", ":", inner))


def fields_of_section(text: str) -> list[str]:
    """The fields of the first table of fields and of the list after it, or of the first list.

    "…" in a cell is the rest of the account of loss.
    """
    table = re.search(r"^\| field \| \|\n\|---\|---\|\n((?:\|.*\n)+)\n?", text, re.M)
    items = re.compile(r"(?:^- `\w+`.*\n(?:  .*\n)*)+", re.M)
    found = items.match(text, table.end()) if table else items.search(text)
    first = [row.split("|")[1] for row in table[1].splitlines()] if table else []
    first += re.findall(r"^- (.*?): ", found[0], re.M) if found else []
    assert first
    return [field for one in first for field in (account_fields() if "…" in one else re.findall(r"`(\w+)`", one))]


def fields_of_sentence(text: str) -> list[str]:
    """The fields that follow "One object:"; what stands in parentheses explains them."""
    sentence = text[text.index("One object:") :].split(":", 1)[1]
    while re.search(r"\([^()]*\)", sentence):
        sentence = re.sub(r"\([^()]*\)", "", sentence)
    found = re.findall(r"`(\w+)`|(the account of loss)", re.split(r"\.(?:\s|$)", sentence)[0])
    return [field for name, account in found for field in (account_fields() if account else [name])]


def account_fields() -> list[str]:
    return fields_of_section(section("docs/cli.md", "The account of loss"))


def keys(outcome: Outcome) -> list[str]:
    [line] = outcome.lines
    return list(line)


@pytest.mark.parametrize("command", ["info", "recover", "rebuild", "salvage", "export"])
def test_fields_of_object_equal_documentation(command: str, data: Path, gantrymq: Run) -> None:
    text = section("docs/cli.md", f"`store {command} STORE")
    documented = fields_of_sentence(text) if "One object: `" in text else fields_of_section(text)
    out = ["out"] if command in ("salvage", "export") else []
    assert keys(gantrymq("store", command, "store", *out, "--json")) == documented


def test_account_of_loss_equals_documentation() -> None:
    path, place = Path("/s/f"), ("t", 0)
    account = reports.LossAccount(
        [reports.LostRange(path, 0, 9, "why")],
        [reports.LostMessages(*place, 0, 1, -1, -1, "why")],
        [reports.RepairedRecord(*place, 0, 0, 9, "why")],
        [reports.Quarantined(*place, 0, 0, 9, "why", ("u", 1, 2))],
        [reports.ShortQueue(*place, 9, 8)],
        [reports.FilledSlots(*place, 0, 1)],
        [reports.FilledSlots(*place, 0, 1)],
        [reports.NotCompared(path, "why")],
        [GroupAhead(GroupOffset("g", *place, 9), 8)],
        [reports.MisfiledQueue(path, place, 1)],
    )
    printed = account.as_json(Path("/s"))
    text = section("docs/cli.md", "The account of loss")
    assert list(printed) == account_fields()
    for row in re.findall(r"^- `\w+`: (?:.*\n)(?:  .*\n)*", text, re.M):
        name = row.split("`")[1]
        shown = shapes(row)
        if "same fields as" in row:
            shown = shapes(next(one for one in text.splitlines() if one.startswith("- `filledSlots`")))
        # A lost place of one message has its queue too, by the page of export.
        assert [key for key in printed[name][0] if key != "queueOffset" or name != "lost"][: len(shown[0])] == shown[0]


def shape_of(text: str, kind: str) -> list[str]:
    """The keys of the object that the text shows for a kind."""
    return next(keys_of(code) for code in re.findall(r'`(\{"kind":"[^`]*\})`', text) if f'"kind":"{kind}"' in code)


def of_kind(lines: list[dict[str, Any]], kind: str) -> list[str]:
    return list(next(line for line in lines if line["kind"] == kind))


def test_lines_of_reading_commands_equal_documentation(data: Path, gantrymq: Run) -> None:
    text = section("docs/cli.md", "`store dump")
    message = shape_of(text, "message")
    record = [field for field in message if field != "tagsCode"]
    with (data / "store/consumequeue/orders/0/00000000000000000000").open("r+b") as file:
        file.write((17).to_bytes(8, "big"))  # its first unit points within a record
    lines = gantrymq("store", "dump", "store", "--json").lines
    for kind in ("store", "queue", "message", "unreadable"):
        assert of_kind(lines, kind) == shape_of(text, kind)
    assert keys(gantrymq("store", "show", "store", "orders", "4711", "--json")) == [
        *record,
        "crcOk",
        "body",
        "bodyBase64",
    ]
    assert list(gantrymq("store", "query", "store", "orders", "4711", "--json").lines[0]) == message
    assert keys(gantrymq("store", "at", "store", "orders", 0, 0, "--json")) == shapes_without_kind("`store at")[0]
    logged, log_text = gantrymq("store", "log", "store", "--json").lines, section("docs/cli.md", "`store log")
    at = message.index("tagsCode")
    assert of_kind(logged, "message") == [*message[:at], "version", "crcOk", *message[at + 1 :]]
    for kind in ("blank", "end"):
        assert of_kind(logged, kind) == shape_of(log_text, kind)


def shapes_without_kind(title: str) -> list[list[str]]:
    return shapes(section("docs/cli.md", title))


def test_lines_of_verify_equal_documentation(data: Path, gantrymq: Run) -> None:
    text = section("docs/cli.md", "`store verify")
    finding, summary, outlook = shapes(text)
    (data / "store/checkpoint").unlink()
    lines = gantrymq("store", "verify", "store", "--json").lines
    assert [list(lines[0]), list(lines[-1]), list(lines[-1]["outlook"])] == [finding, summary, outlook]
    documented = {
        kind
        for row in re.findall(r"^- ((?:`[\w-]+`(?:, )?)+): ", text, re.M)
        for kind in re.findall(r"`([\w-]+)`", row)
    }
    expected = {kind.value for kind in FindingKind}
    short = {kind for kind in documented if kind.startswith("-")}  # "`checkpoint-missing`, `-corrupt`"
    assert documented - short <= expected
    assert all(kind in documented or any(kind.endswith(one) for one in short) for kind in expected)


def test_answers_of_ingest_equal_documentation(data: Path, gantrymq: Run) -> None:
    stored, refused, illegal = shapes_without_kind("`store ingest")
    given = ['{"topic":"t","body":"hi"}', '{"topic":"a/b","body":""}', '{"body":1}']
    (data / "given.jsonl").write_text("".join(f"{line}\n" for line in given))
    outcome = gantrymq("store", "ingest", "store", "given.jsonl", "--json")
    assert [list(line) for line in outcome.lines] == [stored, refused, illegal]
