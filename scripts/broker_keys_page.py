"""The pages compatibility/broker-keys.md and proxy-keys.md of the site: every key and its effect here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gantrymq.config import grpc_settings
from gantrymq.config.auth_settings import AuthConfig
from gantrymq.config.broker_settings import BrokerConfig
from gantrymq.config.keys import fields_by_key, write_fields
from gantrymq.config.known_keys import AUTH_KEYS_OF_PROXY, OF_NAMESRV, THREADS, WITHOUT_EFFECT, KeyWithoutEffect
from gantrymq.config.proxy_settings import ProxyConfig
from gantrymq.config.refused_keys import REFUSALS, ServerKind
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.namesrv import settings as namesrv

ROOT = Path(__file__).resolve().parents[1]
PROXY_NAMES = ROOT / "tests" / "compatibility" / "proxy-5.5.0.json"
FIRST, LAST = RELEASES = ("5.5.0", "5.5.1")
BROKER_CLASSES = ("BrokerConfig", "MessageStoreConfig", "NettyServerConfig", "NettyClientConfig", "AuthConfig")
NAMESRV_CLASSES = ("NamesrvConfig", "NettyServerConfig")
NO_SETTER = "–"
WORKS, REFUSED, WARNS, HARMLESS = "works", "refused", "warning", "no effect"

INTRODUCTION = f"""\
# Every key of broker.conf and namesrv.conf

These are the keys of RocketMQ 5.5.0 and 5.5.1, with their defaults, and what each one does here. If only one of the two
releases has a key, its row names it.

- **{WORKS}**: as in RocketMQ, apart from what [COMPATIBILITY.md](../COMPATIBILITY.md) says. *At the start* means that
  `updateBrokerConfig` refuses another value. Where our default is another one, it is named.
- **{REFUSED}**: with this value no broker or name server starts (an embedded one neither), and `updateBrokerConfig`
  and `updateNamesrvConfig` refuse it, unless [acceptWithoutEffect](../broker.md#keys-that-are-refused) names the key.
  With other values the key is a warning, or works.
- **{WARNS}**: RocketMQ acts on it, and here it has no effect, but no message and no access depends on it. If its value
  is not RocketMQ's default, a start, a store command and `updateBrokerConfig` log a warning that names it.
- **{HARMLESS}**: it tunes Java's own machinery, or does nothing in RocketMQ either. No warning.

A key that is in none of the tables is a warning in a file, and an error in `--set` and in the settings of an embedded
broker. A default "…" depends on the machine. The default "{NO_SETTER}" is that of a field of RocketMQ without a setter:
no file sets it there.

`scripts/broker_keys_page.py` makes this page from `config/refused_keys.py`, `config/known_keys.py` and the settings
classes. Tests compare all names and defaults with RocketMQ's classes.
"""
PROXY_INTRODUCTION = f"""\
# Every key of rmq-proxy.json

These are the keys of RocketMQ 5.5.0's proxy, with its defaults, and what each one does here:

- **{WORKS}**: as in RocketMQ. Where our default is another one, it is named. A key "of a broker, too" may stand in the
  broker.conf of a broker that speaks gRPC itself (`grpcServerPort`). All are read only at the start.
- **{REFUSED}**: with this value no proxy starts, unless `acceptWithoutEffect` names the key.
- **{WARNS}**: RocketMQ acts on it, and here it has no effect, but no message and no access depends on it. If its value
  is not RocketMQ's default, the start of a proxy or broker warns of it.
- **{HARMLESS}**: it tunes Java's own machinery, or does nothing in RocketMQ either. No warning.

`gantrymq proxy -pc FILE` reads an rmq-proxy.json. In a broker.conf, keys that RocketMQ's broker has as well, such as
`maxMessageSize`, `metricsExporterType` and `traceOn`, are the [broker's](broker-keys.md).

The keys of users and policies are those of RocketMQ's AuthConfig, which its proxy reads from the same file.

`scripts/broker_keys_page.py` makes this page from the settings classes. Tests compare all names and defaults with
RocketMQ's class.
"""
TLS = """\
The keys `tls.*` of RocketMQ's `tls.properties` may stand in a broker.conf or namesrv.conf here, for example
`tls.server.mode=enforcing`.
"""


def names_of(release: str) -> dict[str, Any]:
    """What scripts/java_names.py has found in a release."""
    file = ROOT / "tests" / "compatibility" / f"rocketmq-{release}.json"
    return dict(json.loads(file.read_text()))


def java_names() -> dict[str, Any]:
    """The names of both releases; for a key of both the default of the last."""
    first, last = map(names_of, RELEASES)
    return last | {
        "keys": {name: first["keys"][name] | keys for name, keys in last["keys"].items()},
        "withoutSetter": {
            name: sorted({*first["withoutSetter"][name], *fields}) for name, fields in last["withoutSetter"].items()
        },
    }


def only_in(key: str) -> str:
    """The words for a key that one of the releases does not have."""
    has = [release for release in RELEASES if any(key in keys for keys in names_of(release)["keys"].values())]
    return {(LAST,): f" (since {LAST})", (FIRST,): f" (not in {LAST})"}.get(tuple(has), "")


def java_defaults(names: Mapping[str, Any], classes: Iterable[str]) -> dict[str, str | None]:
    """The keys of RocketMQ's ``classes`` with their defaults; None where one depends on the machine."""
    found: dict[str, str | None] = {}
    for name in classes:
        found |= {key: default for key, default in names["keys"][name].items() if key not in found}
        found |= dict.fromkeys(names["withoutSetter"][name], NO_SETTER)
    return found


def _row(key: str, default: str | None, here: str) -> str:
    shown = "…" if default is None else f"`{default}`" if default not in ("", NO_SETTER) else default
    return f"| `{key}` | {shown} | {here} |"


def _working(key: str, default: str | None, ours: str, *, at_start: bool) -> str:
    parts = [WORKS]
    if at_start:
        parts.append("at the start")
    if ours != default:
        parts.append(f"default `{ours}`" if ours else "default empty")
    return ", ".join(parts)


def _without_effect(key: str, row: KeyWithoutEffect, kind: ServerKind) -> str:
    """What a key without effect does here: its refusal, and its warning for other values."""
    here = f"{HARMLESS if row.default is None else WARNS}: {row.reason}"
    return f"{_refusal(key, kind)}; else {here}" if key in REFUSALS[kind] else here


def _refusal(key: str, kind: ServerKind) -> str:
    row = REFUSALS[kind][key]
    return f"**{REFUSED}** if {row.values}: {row.consequence}"


def broker_rows(names: Mapping[str, Any]) -> list[str]:
    """The table of a broker's keys."""
    specs = fields_by_key(MessageStoreConfig) | fields_by_key(BrokerConfig)
    ours = write_fields(MessageStoreConfig()) | write_fields(BrokerConfig())
    java = java_defaults(names, BROKER_CLASSES) | dict.fromkeys(names["startup"])
    java |= {"listenPort": "10911"}  # BrokerStartup sets it
    ours["haListenPort"] = java["haListenPort"] or ""  # listenPort + 1 in both
    java |= {key: row.default for key, row in WITHOUT_EFFECT.items() if row.default is not None}
    rows = []
    for key in sorted(java, key=str.lower):
        if key in specs:
            here = _working(key, java[key], ours[key], at_start=specs[key].metadata["at_start"])
            if key in REFUSALS[ServerKind.BROKER]:
                here = f"{_refusal(key, ServerKind.BROKER)}; else {here}"
        else:
            here = _without_effect(key, WITHOUT_EFFECT[key], ServerKind.BROKER)
        rows.append(_row(key, java[key], here + only_in(key)))
    return rows


def namesrv_rows(names: Mapping[str, Any]) -> list[str]:
    """The table of a name server's keys."""
    specs, ours = fields_by_key(namesrv.NamesrvConfig), write_fields(namesrv.NamesrvConfig())
    java = java_defaults(names, NAMESRV_CLASSES) | {"listenPort": "9876"}  # NamesrvStartup sets it
    rows = []
    for key in sorted(java, key=str.lower):
        if key in specs:
            here = _working(key, java[key], ours[key], at_start=specs[key].metadata["at_start"])
        elif key in OF_NAMESRV:
            here = _without_effect(key, OF_NAMESRV[key], ServerKind.NAMESRV)
        else:
            reason = WITHOUT_EFFECT[key].reason if key in WITHOUT_EFFECT else THREADS
            here = f"{HARMLESS}: {reason}"
        rows.append(_row(key, java[key], here))
    return rows


def proxy_rows(names: Mapping[str, str | None]) -> list[str]:
    """The table of a proxy's keys."""
    ours, of_broker = write_fields(ProxyConfig()), fields_by_key(grpc_settings.GrpcConfig)
    rows = []
    for key in sorted(names, key=str.lower):
        if key in ours:
            here = _working(key, names[key], ours[key], at_start=False)
            here += ", of a broker, too" if key in of_broker else ""
        else:
            here = _without_effect(key, grpc_settings.WITHOUT_EFFECT[key], ServerKind.PROXY)
        rows.append(_row(key, names[key], here))
    return rows


def auth_rows() -> list[str]:
    """The table of the keys of AuthConfig, in an rmq-proxy.json."""
    rows, ours = [], write_fields(AuthConfig())
    for key in sorted(AUTH_KEYS_OF_PROXY.keys() | ours.keys(), key=str.lower):
        row = AUTH_KEYS_OF_PROXY.get(key)
        if row is None:
            rows.append(_row(key, ours[key], _working(key, ours[key], ours[key], at_start=False)))
        else:
            rows.append(_row(key, row.default, _without_effect(key, row, ServerKind.PROXY)))
    return rows


def own_rows(names: Mapping[str, Any]) -> list[str]:
    """The table of keys that RocketMQ does not have."""
    java = {key for keys in names["keys"].values() for key in keys} | set(names["withoutSetter"]["MessageStoreConfig"])
    rows: dict[str, None] = {}  # a broker and its store share one of them
    for title, config in (
        ("broker", MessageStoreConfig()), ("broker", BrokerConfig()), ("name server", namesrv.NamesrvConfig()),
    ):  # fmt: skip
        values, specs = write_fields(config), fields_by_key(config)
        for key in sorted(set(values) - java, key=str.lower):
            at_start = ", at the start" if specs[key].metadata["at_start"] else ""
            rows[f"| `{key}` | {f'`{values[key]}`' if values[key] else ''} | {title}{at_start} |"] = None
    return list(rows)


def page() -> str:
    """The page's text."""
    names = java_names()
    head = "| key | default in RocketMQ | here |\n|---|---|---|"
    return "\n".join([
        INTRODUCTION,
        "## A broker's keys\n", head, *broker_rows(names), "",
        "## A name server's keys\n", head, *namesrv_rows(names), "",
        "## Keys that RocketMQ does not have\n", "| key | default | of a |\n|---|---|---|", *own_rows(names), "",
        TLS,
    ]).rstrip() + "\n"  # fmt: skip


def proxy_page() -> str:
    """The text of the page of the proxy's keys."""
    names = json.loads(PROXY_NAMES.read_text())
    own = sorted(set(write_fields(ProxyConfig())) - set(names), key=str.lower)
    return "\n".join([
        PROXY_INTRODUCTION,
        "| key | default in RocketMQ | here |\n|---|---|---|", *proxy_rows(names), *auth_rows(), "",
        f"Besides them a proxy here has {', '.join(f'`{key}`' for key in own)}, and the keys `tls.*`.",
    ]).rstrip() + "\n"  # fmt: skip
