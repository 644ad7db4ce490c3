"""Names with a namespace as prefix: ``MQ_INST_1%TopicTest``, ``%RETRY%MQ_INST_1%GID``.

Source: NamespaceUtil, MixAll, TopicValidator.
"""

from gantrymq.model import system_names

SEPARATOR = "%"
RETRY_PREFIX = system_names.RETRY_PREFIX
DLQ_PREFIX = system_names.DLQ_PREFIX
SYSTEM_TOPICS = system_names.SYSTEM_TOPICS
_SYSTEM_PREFIXES = (system_names.SYSTEM_TOPIC_PREFIX, system_names.SYSTEM_GROUP_PREFIX)


def wrap_namespace(namespace: str, name: str) -> str:
    """The name of a topic or group within a namespace. System names and names that have the prefix stay unchanged."""
    if not namespace or not name or is_system_name(name):
        return name
    prefix, rest = _split_prefix(name)
    inside = f"{namespace}{SEPARATOR}"
    return name if rest.startswith(inside) else f"{prefix}{inside}{rest}"


def without_namespace(namespace: str, name: str) -> str:
    """The inverse of :func:`wrap_namespace`. A name of another namespace stays unchanged.

    A name whose short form would not be wrapped back to it, such as ``NS%TBW102`` or ``NS%NS%x``, stays unchanged too.
    RocketMQ shows the short form.
    """
    prefix, rest = _split_prefix(name)
    inside = f"{namespace}{SEPARATOR}"
    if not namespace or not rest.startswith(inside):
        return name
    short = f"{prefix}{rest.removeprefix(inside)}"
    return short if wrap_namespace(namespace, short) == name else name


def is_system_name(name: str) -> bool:
    """Whether a topic or a group is RocketMQ's own."""
    return name in SYSTEM_TOPICS or name.startswith(_SYSTEM_PREFIXES)


def _split_prefix(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name
