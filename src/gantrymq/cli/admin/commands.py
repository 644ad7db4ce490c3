"""The table of the commands of ``gantrymq admin``: the words of each, and its function.

A new command is a function in a module of this package, decorated with ``admin_command`` or ``watched``, and a
row here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from typing import Any

import typer

from gantrymq.cli.help_texts import help_text

# Words of the command: module of this package and function.
COMMANDS = {
    "cluster": ("servers", "cluster"),
    "broker status": ("servers", "broker_status"),
    "broker config get": ("servers", "config_get"),
    "broker config set": ("servers", "config_set"),
    "broker consume-stats": ("servers", "consume_stats"),
    "broker write-perm": ("servers", "write_perm"),
    "broker clean": ("servers", "clean"),
    "broker cold-data get": ("java_broker.engines", "cold_data_get"),
    "broker cold-data set": ("java_broker.engines", "cold_data_set"),
    "broker cold-data remove": ("java_broker.engines", "cold_data_remove"),
    "broker read-ahead": ("java_broker.engines", "read_ahead"),
    "broker timer-engine": ("java_broker.engines", "timer_engine"),
    "broker epoch": ("java_broker.engines", "epoch"),
    "broker flush-offset": ("java_broker.engines", "flush_offset"),
    "broker export-pop": ("java_broker.engines", "export_pop"),
    "broker rocksdb check": ("java_broker.engines", "rocksdb_check"),
    "broker rocksdb export": ("java_broker.engines", "rocksdb_export"),
    "topic list": ("topics", "topic_list"),
    "topic create": ("topics", "topic_create"),
    "topic delete": ("topics", "topic_delete"),
    "topic route": ("topics", "topic_route"),
    "topic status": ("topics", "topic_status"),
    "topic perm": ("topics", "topic_perm"),
    "topic consumers": ("topics", "topic_consumers"),
    "topic allocate": ("topics", "topic_allocate"),
    "group list": ("groups", "group_list"),
    "group config": ("groups", "group_config"),
    "group create": ("groups", "group_create"),
    "group delete": ("groups", "group_delete"),
    "group progress": ("groups", "group_progress"),
    "group members": ("clients", "group_members"),
    "group state": ("clients", "group_state"),
    "group reset": ("groups", "group_reset"),
    "group clone": ("groups", "group_clone"),
    "group mode": ("groups", "group_mode"),
    "message by-id": ("messages", "by_id"),
    "message by-key": ("messages", "by_key"),
    "message by-unique-key": ("messages", "by_unique_key"),
    "message by-offset": ("messages", "by_offset"),
    "message trace": ("trace", "trace"),
    "message track": ("messages", "track"),
    "message print": ("messages", "print_messages"),
    "message units": ("messages", "units"),
    "message send": ("sending", "send"),
    "message resend": ("sending", "resend"),
    "message deliver": ("sending", "deliver"),
    "message probe": ("sending", "probe"),
    "producer list": ("clients", "producer_list"),
    "connection consumers": ("clients", "group_members"),
    "connection producers": ("clients", "connection_producers"),
    "kv get": ("servers", "kv_get"),
    "kv list": ("servers", "kv_list"),
    "kv put": ("servers", "kv_put"),
    "kv delete": ("servers", "kv_delete"),
    "namesrv get": ("servers", "namesrv_get"),
    "namesrv set": ("servers", "namesrv_set"),
    **{
        f"{kind} {verb}": (f"{kind}s", f"{kind}_{verb}")
        for kind in ("user", "acl")
        for verb in ("list", "get", "create", "update", "delete", "copy")
    },
    "acl check": ("access_check", "acl_check"),
    "acl import": ("access_import", "acl_import"),
    **{
        f"lite {what}": ("java_broker.lite", f"lite_{what}")
        for what in ("broker", "parent", "topic", "client", "group")
    },
    "lite dispatch": ("java_broker.lite", "lite_dispatch"),
    "dlq list": ("dlq", "dlq_list"),
    "dlq export": ("dlq", "dlq_export"),
    "dlq resend": ("dlq", "dlq_resend"),
    "export": ("transfer", "export"),
    "import": ("transfer", "import_"),
    "report configs": ("reports", "report_configs"),
    "report metrics": ("reports", "report_metrics"),
    "report metadata": ("reports", "report_metadata"),
    "monitor": ("monitor", "monitor"),
    "stats": ("topics", "stats"),
    "ha": ("servers", "ha"),  # also a group: without one of its commands it is this one
    "ha promote": ("promotion", "promote"),
}
_GROUPS = {
    "": "Administer a running cluster, gantrymq's or RocketMQ's.",
    "broker": "Brokers: statistics, settings, write permission, clean-up.",
    "broker config": "Settings of running brokers.",
    "broker cold-data": "RocketMQ's limits for reads of cold data.",
    "broker rocksdb": "Queues and tables that RocketMQ keeps in RocksDB.",
    "topic": "Topics: create, change, delete, look into.",
    "group": "Consumer groups: settings, progress, members, offsets.",
    "message": "Single messages: find, print, send.",
    "producer": "Producers that are connected.",
    "connection": "Connections of consumers and producers.",
    "user": "Users (authenticationEnabled).",
    "acl": "What users may do (authorizationEnabled): policies, a check, imports.",
    "lite": "Lite topics of RocketMQ's brokers.",
    "report": "The files of mqadmin's exportConfigs, exportMetrics and exportMetadata.",
    "dlq": "Dead letters: list, export, send again.",
    "kv": "Values that name servers store.",
    "namesrv": "Settings of name servers.",
}


def admin_application(words: Sequence[str]) -> typer.Typer:
    """The commands that begin with ``words``: one if they name it; all if there are no words, for the help."""
    app = _group("")
    groups, chosen = {"": app}, _chosen(words)
    for name, (module, function) in chosen.items():
        *parents, last = name.split(" ")
        for depth in range(1, len(parents) + 1):
            path = " ".join(parents[:depth])
            if path not in groups:
                groups[path] = _group(path)
                groups[" ".join(parents[: depth - 1])].add_typer(groups[path], name=parents[depth - 1])
        command: Any = getattr(import_module(f"gantrymq.cli.admin.{module}"), function)
        if any(other.startswith(f"{name} ") for other in chosen):
            groups[name] = group = typer.Typer(invoke_without_command=True, help=help_text(command))
            group.callback()(_without_subcommand(command))
            groups[" ".join(parents)].add_typer(group, name=last)
        else:
            groups[" ".join(parents)].command(last, help=help_text(command))(command)
    return app


def _without_subcommand(command: Callable[..., None]) -> Callable[..., None]:
    """The callback of a group that is ``command`` unless one of its commands is given."""

    @wraps(command)
    def run(context: typer.Context, **given: Any) -> None:
        if context.invoked_subcommand is None:
            command(**given)

    own = inspect.signature(command)
    kind = inspect.Parameter.KEYWORD_ONLY
    parameter = inspect.Parameter("context", kind, annotation=typer.Context)
    run.__signature__ = own.replace(parameters=[parameter, *own.parameters.values()])  # type: ignore[attr-defined]
    run.__annotations__ = {"context": typer.Context, **command.__annotations__}
    return run


def _chosen(words: Sequence[str]) -> dict[str, tuple[str, str]]:
    for depth in range(min(3, len(words)), 0, -1):
        path = " ".join(words[:depth])
        rows = [path] if path in COMMANDS else [name for name in COMMANDS if name.startswith(f"{path} ")]
        if rows:
            return {name: row for name, row in COMMANDS.items() if name in rows or path.startswith(f"{name} ")}
    return COMMANDS


def _group(path: str) -> typer.Typer:
    app = typer.Typer(no_args_is_help=True, help=_GROUPS[path])
    app.callback()(_nothing)  # otherwise typer would make a group of one command into that command
    return app


def _nothing() -> None:
    return None
