"""The pages that the site makes from the code have all of it, and committed pages reach them."""

from __future__ import annotations

import json
import re
import runpy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

import gantrymq
from gantrymq.broker.metrics import catalog
from gantrymq.cli.application import application
from gantrymq.config import grpc_settings
from gantrymq.config.broker_settings import BrokerConfig
from gantrymq.config.keys import fields_by_key
from gantrymq.config.known_keys import WITHOUT_EFFECT
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.grpc import metrics as grpc_metrics
from gantrymq.tables import metrics as table_metrics

ROOT = Path(__file__).resolve().parents[2]
HOOKS = runpy.run_path(str(ROOT / "scripts" / "site_hooks.py"))


@cache
def generated_pages() -> dict[str, str]:
    """The texts by path: made by the first test, because each worker imports this module to collect its tests."""
    pages: dict[str, str] = HOOKS["generated_pages"]()
    return pages


def in_site(text: str) -> str:
    """A page as the site has it."""
    page: str = HOOKS["on_page_markdown"](text)
    return page


def first_cells(text: str) -> list[str]:
    """The first cell of each row of tables, without its backticks."""
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def test_generated_pages_are_not_in_tree() -> None:
    assert [path for path in generated_pages() if (ROOT / "docs" / path).exists()] == []


def test_page_of_public_names_has_every_name() -> None:
    page = generated_pages()["api.md"]
    assert {name for name in gantrymq._HOME if f"### {name}\n" not in page and f"- `{name}`: " not in page} == set()
    assert len(page.splitlines()) > len(gantrymq._HOME)


def test_pages_of_commands_have_every_command_and_option() -> None:
    missing = []

    def look_at(command: Any, words: list[str]) -> None:
        if hasattr(command, "commands"):
            for name, below in command.commands.items():
                if name != "mqadmin":
                    look_at(below, [*words, name])
            return
        title = " ".join(["## gantrymq", *words])
        [section] = re.findall(rf"^{title}\n(.*?)(?=^## |\Z)", texts, re.MULTILINE | re.DOTALL) or [None]
        options = [one.opts[0] for one in command.params if one.opts[0].startswith("--") and not one.hidden]
        missing.extend(
            f"{title} {option}" for option in options if option != "--help" and f"`{option}`" not in (section or "")
        )
        if section is None or f"[`{title[3:]}`]" not in generated_pages()["commands/index.md"]:
            missing.append(title)

    texts = "".join(text for path, text in generated_pages().items() if path.startswith("commands/"))
    look_at(typer.main.get_command(application([])), [])
    assert missing == []


def test_pages_of_keys_have_every_key_once() -> None:
    names = json.loads((ROOT / "tests" / "compatibility" / "proxy-5.5.0.json").read_text())
    table = generated_pages()["compatibility/broker-keys.md"].partition("## A broker's keys")[2].partition("\n## ")[0]
    keys = first_cells(table)
    assert len(keys) == len(set(keys))
    own = {
        *first_cells(
            generated_pages()["compatibility/broker-keys.md"].partition("## Keys that RocketMQ does not have")[2]
        )
    }
    ours = {*fields_by_key(MessageStoreConfig), *fields_by_key(BrokerConfig), *WITHOUT_EFFECT}
    assert ours - own == set(keys)
    keys = first_cells(generated_pages()["compatibility/proxy-keys.md"])
    assert len(keys) == len(set(keys))
    assert {*names, *grpc_settings.WITHOUT_EFFECT} <= set(keys)


def test_page_of_metrics_has_every_metric() -> None:
    page = in_site((ROOT / "docs" / "metrics.md").read_text("utf-8"))
    names = {metric.prometheus_name for metric in (*catalog.ALL, *grpc_metrics.ALL, *table_metrics.ALL)}
    assert names - set(first_cells(page)) == set()


def test_page_with_drawings_has_each_one() -> None:
    page = (ROOT / "docs" / "explanation" / "store-life.md").read_text("utf-8")
    html = HOOKS["on_page_content"](page)
    drawings = runpy.run_path(str(ROOT / "scripts" / "drawings.py"))["DRAWINGS"]
    assert html.count("<svg ") == html.count("</svg>") == len(drawings)
    assert "<!-- drawing" not in html


def test_link_to_unknown_drawing_fails() -> None:
    with pytest.raises(KeyError):
        HOOKS["on_page_content"]("<!-- drawing: nothing -->")


def test_link_to_generated_page_resolves_in_site() -> None:
    link = '[names](../reference.md#generated-pages\n"../api.md#the-store")'
    assert in_site(link) == "[names](../api.md#the-store)"
    texts = [path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md")]
    linked = {target for text in texts for target in re.findall(r'reference\.md#generated-pages\s+"([^"]+)"', text)}
    assert {target.partition("#")[0].removeprefix("../") for target in linked} >= {
        "api.md", "commands/index.md", "compatibility/broker-keys.md", "compatibility/proxy-keys.md"
    }  # fmt: skip
