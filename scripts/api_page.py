"""The page api.md of the site: every public name of gantrymq, with its signature and its docstring's first sentence."""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Iterator
from typing import Any

import gantrymq

INTRODUCTION = """\
# Public API

Import every name of this page from `gantrymq`: `from gantrymq import Producer`. A name is loaded on first use, so
importing the clients loads neither numpy nor the compiled kernels. `dir(gantrymq)` lists the names. Other names and
modules are internal and may change in any release.

`scripts/api_page.py` makes this page from the docstrings.
"""

# Each group: its heading, its introduction, and its names.
GROUPS = [
    ("Messages", "", "Message StoredMessage ReceivedMessage MessageQueue"),
    (
        "The store",
        "See [ARCHITECTURE.md](ARCHITECTURE.md) and the [example](index.md#a-store-in-your-program).",
        "MessageStore StoreReader MessageStoreConfig FlushDiskType PutMessageResult PutMessageStatus GetMessageResult "
        "GetMessageStatus",
    ),
    (
        "Store tools",
        "The functions behind `gantrymq store verify | rebuild | salvage | export`; [cli.md](cli.md) describes their "
        "reports. Exports need the extra `arrow`.",
        "verify_store rebuild_store salvage_store export_store ExportFormat ExportSelection",
    ),
    (
        "Producers",
        "[client.md](client.md) has examples and settings.",
        "Producer AsyncProducer TransactionProducer AsyncTransactionProducer LocalTransactionState "
        "TransactionSendResult ProducerConfig ProducerSettings SendResult SendStatus CompressionType "
        "create_reply_message",
    ),
    (
        "Consumers",
        "",
        "PushConsumer AsyncPushConsumer PushConsumerConfig PushConsumerSettings LitePullConsumer AsyncLitePullConsumer "
        "LitePullConsumerConfig LitePullConsumerSettings SimpleConsumer AsyncSimpleConsumer SimpleConsumerConfig "
        "SimpleConsumerSettings ConsumerSettings MessageModel ConsumeFromWhere "
        "ConsumeConcurrentlyContext ConsumeConcurrentlyStatus ConsumeOrderlyContext ConsumeOrderlyStatus "
        "AllocateMessageQueueStrategy AllocateMessageQueueAveragely AllocateMessageQueueAveragelyByCircle "
        "AllocateMessageQueueByConfig AllocateMessageQueueByMachineRoom AllocateMachineRoomNearby "
        "AllocateMessageQueueConsistentHash",
    ),
    (
        "Reading without a group, and administration",
        "",
        "PullClient PullResult PullStatus PulledRecords decode_records AdminClient TopicConfig SubscriptionGroupConfig "
        "ClientConfig ClientSettings SerializeType",
    ),
    (
        "Hooks and traces",
        "[client.md](client.md#hooks-and-traces) has an example.",
        "SendMessageHook SendMessageContext ConsumeMessageHook ConsumeMessageContext ConsumeReturnType "
        "EndTransactionHook EndTransactionContext TraceRecord TraceType MessageType decode_traces",
    ),
    ("RocketMQ in a test or a program", "See [embedded.md](embedded.md).", "EmbeddedBroker AsyncEmbeddedBroker"),
    (
        "Servers",
        "See [broker.md](broker.md) and [namesrv.md](namesrv.md).",
        "BrokerServer BrokerConfig LiveConfig NamesrvServer NamesrvConfig",
    ),
    (
        "Spark",
        "These need the extra `spark`. See [spark.md](spark.md) and [pipelines.md](pipelines.md).",
        "RocketMQDataSource offsets_behind verify_on_spark rebuild_on_spark salvage_on_spark export_on_spark analyze "
        "write_analysis StoreAnalysis",
    ),
]
FIXTURES = "rocketmq async_rocketmq rocketmq_session rocketmq_topic"
MANY_FIELDS = 20
NOT_PUBLIC = {"gantrymq.remoting.body"}  # how bodies are encoded


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for title, text, names in GROUPS:
        parts.append(f"## {title}\n")
        if text:
            parts.append(f"{text}\n")
        parts += [entry(name, getattr(gantrymq, name)) for name in names.split()]
    return "\n".join([*parts, errors(), fixtures()])


def entry(name: str, public: Any) -> str:
    """One public name: a heading, its first sentence, its signature, and its members if it is a class."""
    lines = [f"### {name}\n", f"{first_sentence(public)}\n"]
    if inspect.isclass(public) and issubclass(public, enum.Enum):
        return "\n".join([*lines, ", ".join(f"`{one.name}`" for one in public) + "\n"])
    if getattr(public, "__total__", None) is not None:  # a TypedDict
        return "\n".join([*lines, ", ".join(f"`{key}`" for key in public.__annotations__) + "\n"])
    # A class with open() is made by it, and a protocol is not made.
    if not hasattr(public, "open") and not getattr(public, "_is_protocol", False):
        lines.append(f"    {name}{signature(public)}\n")
    members = [f"- `{shown}`: {text}" for shown, text in members_of(public)]
    return "\n".join([*lines, *members, *([""] if members else [])])


def members_of(public: Any) -> Iterator[tuple[str, str]]:
    """(name with its signature, first sentence) of the public methods and properties of a class, inherited ones too."""
    if not inspect.isclass(public):
        return
    seen: set[str] = set()
    for kind in public.__mro__:
        if not kind.__module__.startswith("gantrymq") or kind.__module__ in NOT_PUBLIC:
            continue
        for name, member in vars(kind).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            plain = getattr(member, "__func__", member)
            if isinstance(member, property):
                yield name, first_sentence(member)
            elif inspect.isfunction(plain):
                before = "await " if inspect.iscoroutinefunction(plain) else ""
                yield (
                    f"{before}{name}{signature(plain, without_self=not isinstance(member, staticmethod))}",
                    (first_sentence(plain)),
                )


def signature(public: Any, *, without_self: bool = False) -> str:
    """A signature as in its source. A class with many fields is shown with the required ones."""
    try:
        found = inspect.signature(public)
    except ValueError:
        return "()"
    parameters = list(found.parameters.values())[1 if without_self else 0 :]
    shown, kind = [], None
    required = [one for one in parameters if one.default is one.empty]
    if inspect.isclass(public) and len(parameters) > MANY_FIELDS:
        return "(" + ", ".join([*(parameter(one) for one in required), "..."]) + ")"
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and kind not in (one.KEYWORD_ONLY, one.VAR_POSITIONAL):
            shown.append("*")
        shown.append(parameter(one))
        kind = one.kind
    given_back = "" if inspect.isclass(public) or found.return_annotation is found.empty else found.return_annotation
    return f"({', '.join(shown)})" + (f" -> {annotation(given_back)}" if given_back != "" else "")


def parameter(one: inspect.Parameter) -> str:
    """One parameter with its type and default."""
    stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
    text = stars + one.name + ("" if one.annotation is one.empty else f": {annotation(one.annotation)}")
    if one.default is one.empty:
        return text
    if isinstance(one.default, enum.Enum):
        return f"{text} = {type(one.default).__name__}.{one.default.name}"
    is_plain = isinstance(one.default, (int, str, bytes, tuple, frozenset, type(None)))
    return f"{text} = {one.default!r}" if is_plain else f"{text} = ..."


def annotation(given: Any) -> str:
    """A type without the modules of its names."""
    text = given if isinstance(given, str) else inspect.formatannotation(given)
    text = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])", "", text)
    return re.sub(r"Annotated\[(\w+), Meta\([^)]*\)\]", r"\1", text)


def first_sentence(public: Any) -> str:
    """The first sentence of a docstring, in Markdown, on one line."""
    paragraph = " ".join((inspect.getdoc(public) or "").split("\n\n")[0].split())
    found = re.match(r"(.*?[.!?])(?:\s|$)", paragraph)
    text = (found[1] if found else paragraph).replace("``", "`")
    text = re.sub(r":\w+:`~?(?:[\w]+\.)*(\w+)`", r"`\1`", text)
    return text[0].upper() + text[1:] if text[:1].islower() else text


def errors() -> str:
    """The exceptions, as a tree."""
    lines = [
        "## Errors\n",
        "The indentation shows which class an error inherits from.\n",
    ]

    def add(kind: type[BaseException], depth: int) -> None:
        lines.append(f"{'    ' * depth}- `{kind.__name__}`: {first_sentence(kind)}")
        for below in sorted(kind.__subclasses__(), key=lambda one: one.__name__):
            if below.__module__ == "gantrymq.errors":
                add(below, depth + 1)

    add(gantrymq.GantrymqError, 0)
    return "\n".join([*lines, ""])


def fixtures() -> str:
    """The fixtures of the pytest plugin."""
    from gantrymq import pytest_plugin

    lines = [
        "## Fixtures of pytest\n",
        "pytest finds them where gantrymq is installed. See [embedded.md](embedded.md).\n",
    ]
    for name in FIXTURES.split():
        fixture = getattr(pytest_plugin, name)
        plain = getattr(fixture, "__wrapped__", None) or fixture._get_wrapped_function()
        lines.append(f"- `{name}`: {first_sentence(plain)}")
    return "\n".join([*lines, ""])
