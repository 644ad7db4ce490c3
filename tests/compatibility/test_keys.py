"""The page compatibility/broker-keys.md: every key of both releases is there, and does what the page says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from gantrymq.config.auth_settings import CLASSES
from gantrymq.config.broker_settings import BrokerConfig
from gantrymq.config.keys import fields_by_key, write_fields
from gantrymq.config.known_keys import WITHOUT_EFFECT
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.namesrv import settings as namesrv
from interop.java import RELEASES, java_available, java_required, run_java

ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "broker_keys_page.py"))
NAMES: dict[str, Any] = SCRIPT["java_names"]()
OF_BROKER = fields_by_key(MessageStoreConfig) | fields_by_key(BrokerConfig)
OF_NAMESRV = fields_by_key(namesrv.NamesrvConfig)
# Where our default is another one than RocketMQ's.
OWN_DEFAULTS = {
    "bindAddress", "commitLogRecoverMaxNum", "haListenPort", "listenPort", "maxTransferCountOnMessageInMemory",
}  # fmt: skip


def java_keys(classes: tuple[str, ...]) -> dict[str, str | None]:
    """The keys of RocketMQ's classes with their defaults."""
    found: dict[str, str | None] = SCRIPT["java_defaults"](NAMES, classes)
    return found


BROKER_KEYS = java_keys(SCRIPT["BROKER_CLASSES"]) | dict.fromkeys(NAMES["startup"])
NAMESRV_KEYS = java_keys(SCRIPT["NAMESRV_CLASSES"])


def test_every_key_of_broker_is_in_one_table() -> None:
    wrong = [f"{key} is in no table" for key in BROKER_KEYS if key not in OF_BROKER and key not in WITHOUT_EFFECT]
    wrong += [f"{key} has an effect: take it out of known_keys.py" for key in WITHOUT_EFFECT if key in OF_BROKER]
    wrong += [f"{key} is no key of RocketMQ" for key in WITHOUT_EFFECT if key not in BROKER_KEYS]
    assert not wrong, "\n".join(wrong)


def test_every_key_of_name_server_is_in_one_table() -> None:
    without = set(namesrv.WITHOUT_EFFECT)
    assert set(NAMESRV_KEYS) - set(OF_NAMESRV) - without == {"rocketmqHome"}
    assert without & set(OF_NAMESRV) == set()
    assert {key: text for key, text in namesrv.WITHOUT_EFFECT.items() if NAMESRV_KEYS[key] not in (text, None)} == {}


@pytest.mark.parametrize("config", [BrokerConfig(), MessageStoreConfig(), namesrv.NamesrvConfig()])
def test_defaults_are_rocketmqs_but_for_a_few(config: object) -> None:
    java = NAMESRV_KEYS if isinstance(config, namesrv.NamesrvConfig) else BROKER_KEYS
    known = {key: text for key, text in java.items() if text not in (None, SCRIPT["NO_SETTER"])}
    ours = write_fields(config)
    assert {key for key in ours if known.get(key, ours[key]) != ours[key]} <= OWN_DEFAULTS


def test_defaults_compared_for_warnings_equal_rocketmq() -> None:
    wrong = {
        key: row.default
        for key, row in WITHOUT_EFFECT.items()
        if row.default is not None and BROKER_KEYS[key] not in (row.default, None)
    }
    assert wrong == {}


def test_each_key_with_effect_is_read_in_code() -> None:
    """A field that no code reads would be a key without effect that is shown as one with."""
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    for specs in (OF_BROKER, OF_NAMESRV):
        unread = [key for key, spec in specs.items() if not re.search(rf"\.{spec.name}\b", source)]
        assert set(unread) <= CLASSES.keys()  # these are compared by their key


def test_key_of_single_release_names_release_on_page() -> None:
    assert SCRIPT["RELEASES"] == RELEASES
    rows = {line.split("`")[1]: line for line in SCRIPT["broker_rows"](NAMES)}
    assert {key for key, row in rows.items() if row.endswith("(not in 5.5.1) |")} == {"enableLiteEventMode"}
    since = {key for key, row in rows.items() if row.endswith("(since 5.5.1) |")}
    assert (len(since), "batchDeleteTopicMaxRate" in since, "storeType" in since) == (14, True, False)


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_key_names_equal_those_of_java_classes(release: str) -> None:
    """By reflection. A default that depends on the machine (null in the file) may be anything."""
    names = SCRIPT["names_of"](release)
    if not java_required() and (reason := java_available()):
        pytest.skip(reason)
    lines = run_java("configs", None, of=release)
    configs = {line["name"]: line["values"] for line in lines if line["kind"] == "config"}
    assert {name: set(keys) for name, keys in configs.items()} == {
        name: set(keys) for name, keys in names["keys"].items()
    }
    wrong = [
        (name, key, default)
        for name, keys in names["keys"].items()
        for key, default in keys.items()
        if default not in (None, configs[name][key])
    ]
    assert wrong == []
    attributes = {line["name"]: sorted(line["values"]) for line in lines if line["kind"] == "attributes"}
    assert attributes == {
        "TopicAttributes": names["topicAttributes"],
        "SubscriptionGroupAttributes": names["groupAttributes"],
    }
    codes = {line["name"]: line["values"] for line in run_java("protocol", None, of=release) if line["kind"] == "codes"}
    assert codes["RequestCode"] == names["requestCodes"]
