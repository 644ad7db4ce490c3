"""The keys with which no server starts here: which values, what would be lost or opened, and what to do instead.

RocketMQ acts on them, and here they have no effect, or another one. :data:`REFUSALS` is the one table of these
decisions. A key without effect that has no row here is a warning or harmless (``config/known_keys.py``,
``config/grpc_settings.py``, ``namesrv/settings.py``). docs/compatibility/ shows all of them.

A row goes when its key is implemented.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum

from gantrymq.config.auth_settings import CLASSES, CLASSES_OF_PROXY, CREDENTIALS, read_credentials
from gantrymq.config.grpc_settings import WITHOUT_EFFECT as OF_PROXY
from gantrymq.config.guards import Level, Reason, Subject
from gantrymq.config.keys import MASK
from gantrymq.config.known_keys import AUTH_KEYS_OF_PROXY, OF_NAMESRV, KeyWithoutEffect, is_acting
from gantrymq.config.known_keys import WITHOUT_EFFECT as OF_BROKER

_KEEP_JAVA = "keep this store on RocketMQ's broker"
_SYNC_SET = "a send would wait for inSyncReplicas copies, because only a controller knows which slaves are in sync"
_NOT_SIGNED = "the proxy could not sign its requests, so brokers would refuse all of them"
_UNSIGNED = "a request would have the permissions of any user that it names, because nothing checks signatures"
_TWO_GUARDS = "access is controlled by users or by the accounts of plain_acl.yml, not by both"
_OTHER_CLASS = "it is a class of its own, which could let in other users, and only those of RocketMQ are known here"
_NO_USER = "the super user could not be created, so no client could create the others"
_QUEUES = "consume queues in RocksDB are not read here, so their messages would not be delivered"
_TABLES = "topics, groups and committed offsets in RocksDB are not read here, so groups would begin again"
_INDEX = "the index in RocksDB is not read here, so queries by key would miss messages"
_TRANSACTIONS = "open transactions in RocksDB are not read here, so their producers would not be asked for the outcome"
_TIMERS = "timer messages in RocksDB are not read here, so they would not be delivered"
_POP = "POP records in RocksDB are not read here, so messages in work would come again, or never"
_LIGHT = "messages are not dispatched to light queues (LMQ) here, so their consumers would get none"
_DLEDGER = "the DLedger log is not read here, so none of its messages would be there"
_PLUG_IN = "store plug-ins are Java classes, so what they keep elsewhere would be neither read nor written"
_SLAVE = "the log would have messages that its master does not have, so the copy would end"
_ID = "the broker would register as a slave, but take sends and deliver delayed messages as a master"
_CONTROLLER = "no controller would be asked for the master, so two brokers of one name could take sends"
_NOT_ENCRYPTED = "the broker's own connections would not be encrypted"
_NOWHERE = "address servers are not asked here, so the broker would register nowhere and its messages not be consumed"
_CLUSTER_TEST = "routes of the cluster productEnvName are not looked up here, so clients would not find its topics"
_NO_CONTROLLER = "there is no controller here, so brokers in controller mode would get no master"
_LOCAL = "no broker would start in this process, so messages would go to other brokers"
_CERTIFICATE = "clients would be answered with a self-signed certificate instead of that of tlsCertPath"
_ON, _ROCKSDB, _SYNC = "true", "defaultRocksDB", "with brokerRole=SYNC_MASTER"
# Keys of a proxy that are a broker's as well, with an effect.
_OF_BROKER_TOO = {"messageDelayLevel", "regionId", "traceOn"}


class ServerKind(Enum):
    """The server whose settings are examined: that of a broker.conf, a namesrv.conf or an rmq-proxy.json."""

    BROKER = "broker"
    NAMESRV = "name server"
    PROXY = "proxy"


class Work(IntEnum):
    """What is about to be done with a configuration. A row refuses its own work and every larger one.

    ``WRITE`` changes files of a store (recover, rebuild, salvage), ``APPEND`` adds messages to one (ingest), ``SERVE``
    answers clients. Reading a store is never refused because of a key.
    """

    WRITE = 1
    APPEND = 2
    SERVE = 3


@dataclass(frozen=True)
class Refusal:
    """One row. ``is_refused`` gets the value as Java compares it and all entries, which some rows have to combine.

    ``values`` names the refused values for people. ``remedy`` is what to do instead of accepting the key. Work that is
    smaller than ``min_work`` or larger than ``max_work`` is not refused. ``group`` is a second name for the acceptance.
    Without ``acceptable`` a row refuses whatever acceptWithoutEffect names. A value that ``is_secret`` is not shown.
    """

    kind: ServerKind
    key: str
    values: str
    is_refused: Callable[[str, Mapping[str, str]], bool]
    consequence: str
    remedy: str
    min_work: Work = Work.SERVE
    max_work: Work = Work.SERVE
    group: str = ""
    acceptable: bool = True
    is_secret: bool = False


def _is_true(text: str, entries: Mapping[str, str]) -> bool:
    return text.strip().lower() == "true"


def _is_false(text: str, entries: Mapping[str, str]) -> bool:
    """Java's parseBoolean takes every other text for false, so a key whose default is true is off with it."""
    return not _is_true(text, entries)


def _is_text(text: str, entries: Mapping[str, str]) -> bool:
    return bool(text.strip())


def _is_text_of(*words: str) -> Callable[[str, Mapping[str, str]], bool]:
    return lambda text, entries: text.strip().lower() in words


def _number(text: str) -> int:
    """Java's number of a text; 0 for a text that is none, with which Java keeps its default."""
    try:
        return int(text.strip())
    except ValueError:
        return 0


def _role(entries: Mapping[str, str]) -> str:
    """The broker's role. Java ignores a text that is not exactly one of the three."""
    return entries.get("brokerRole", "").strip()


def _is_slave(text: str, entries: Mapping[str, str]) -> bool:
    return text.strip() == "SLAVE"


def _is_id_of_a_slave(text: str, entries: Mapping[str, str]) -> bool:
    """Whether a broker has the id of a slave, and is none."""
    return _number(text) != 0 and _role(entries) != "SLAVE"


def _is_true_of_sync_master(text: str, entries: Mapping[str, str]) -> bool:
    return _is_true(text, entries) and _role(entries) == "SYNC_MASTER"


def _has_no_file_queues(text: str, entries: Mapping[str, str]) -> bool:
    return "default" not in [queue_type.strip().lower() for queue_type in text.split(";")]


def _has_no_name_server(text: str, entries: Mapping[str, str]) -> bool:
    return _is_true(text, entries) and not entries.get("namesrvAddr", "").strip()


def _has_plain_connections(text: str, entries: Mapping[str, str]) -> bool:
    return _is_true(text, entries) and not _is_true(entries.get("tls.enable", ""), entries)


def _has_another_certificate(text: str, entries: Mapping[str, str]) -> bool:
    return _is_false(text, entries) and not entries.get("tls.server.certPath", "").strip()


def _is_unsigned(text: str, entries: Mapping[str, str]) -> bool:
    return _is_true(text, entries) and not _is_true(entries.get("authenticationEnabled", ""), entries)


def _is_second_guard(text: str, entries: Mapping[str, str]) -> bool:
    return _is_true(text, entries) and _is_true(entries.get("aclEnable", ""), entries)


_BROKER, _NAMESRV, _PROXY = ServerKind.BROKER, ServerKind.NAMESRV, ServerKind.PROXY


def _unless_used(key: str, value: str, where: str = "in RocksDB") -> str:
    return f"set {key}={value} if there is no data {where}, or {_KEEP_JAVA}"


def _in_rocksdb(key: str, consequence: str) -> Refusal:
    """The row of a switch: with true a part of the store is in RocksDB."""
    return Refusal(_BROKER, key, _ON, _is_true, consequence, _unless_used(key, "false"), Work.WRITE)


def _with_queues(key: str) -> Refusal:
    """The row of a key that chooses the kind of consume queues."""
    wrong = _is_text_of(_ROCKSDB.lower())
    return Refusal(_BROKER, key, _ROCKSDB, wrong, _QUEUES, _unless_used(key, "default"), Work.WRITE)


def _of_class(key: str, kind: ServerKind = ServerKind.BROKER) -> Refusal:
    """The row of a key with the name of a Java class."""
    known = CLASSES[key] + (CLASSES_OF_PROXY.get(key, ()) if kind is ServerKind.PROXY else ())

    def is_other(text: str, entries: Mapping[str, str]) -> bool:
        return text.strip() not in ("", *known)

    remedy = f"remove {key}, or set it to {' or '.join(known)}"
    return Refusal(kind, key, "any other class", is_other, _OTHER_CLASS, remedy, acceptable=False)


def _of_guard(kind: ServerKind) -> tuple[Refusal, Refusal]:
    """The rows of what switches users and policies on."""
    return (
        Refusal(
            kind, "authenticationEnabled", "true with aclEnable=true", _is_second_guard, _TWO_GUARDS,
            "set aclEnable=false", acceptable=False,
        ),
        Refusal(
            kind, "authorizationEnabled", "true without authenticationEnabled=true", _is_unsigned, _UNSIGNED,
            "set authenticationEnabled=true", acceptable=False,
        ),
    )  # fmt: skip


def _of_credentials(key: str, kind: ServerKind = ServerKind.BROKER, consequence: str = _NO_USER) -> Refusal:
    """The row of a key with a name and a password as JSON."""
    name, password = CREDENTIALS[key]

    def is_broken(text: str, entries: Mapping[str, str]) -> bool:
        try:
            read_credentials(key, text)
        except ValueError:
            return True
        return False

    remedy = f'set it to {{"{name}":"NAME","{password}":"PASSWORD"}}'
    return Refusal(kind, key, "no name and password", is_broken, consequence, remedy, acceptable=False, is_secret=True)


_ROWS = (
    # Access
    *_of_guard(_BROKER),
    *map(_of_class, CLASSES),
    *map(_of_credentials, CREDENTIALS),
    Refusal(
        _BROKER, "useTLS", "true without tls.enable=true", _has_plain_connections, _NOT_ENCRYPTED, "set tls.enable=true"
    ),
    # Copies
    Refusal(
        _BROKER, "brokerRole", "SLAVE", _is_slave, _SLAVE, "add messages at the master", Work.APPEND, Work.APPEND
    ),
    Refusal(_BROKER, "brokerId", "not 0", _is_id_of_a_slave, _ID, "set brokerId=0"),
    Refusal(
        _BROKER, "allAckInSyncStateSet", f"true {_SYNC}", _is_true_of_sync_master, _SYNC_SET,
        "set allAckInSyncStateSet=false",
    ),
    Refusal(
        _BROKER, "enableControllerMode", _ON, _is_true, _CONTROLLER, f"set enableControllerMode=false, or {_KEEP_JAVA}"
    ),
    # Data
    Refusal(
        _BROKER, "enableDLegerCommitLog", _ON, _is_true, _DLEDGER,
        _unless_used("enableDLegerCommitLog", "false", "in DLedger"), Work.WRITE,
    ),
    Refusal(
        _BROKER, "messageStorePlugIn", "any", _is_text, _PLUG_IN,
        f"remove the key if the plug-ins keep no data, or {_KEEP_JAVA}", Work.WRITE,
    ),
    _with_queues("storeType"),
    _in_rocksdb("rocksdbCQDoubleWriteEnable", _QUEUES),
    _in_rocksdb("useSeparateStorePathForRocksdbCQ", _QUEUES),
    _in_rocksdb("combineCQUseRocksdbForLmq", _QUEUES),
    _with_queues("combineCQPreferCQType"),
    _with_queues("combineAssignOffsetCQType"),
    Refusal(
        _BROKER, "combineCQLoadingCQTypes", "without default", _has_no_file_queues, _QUEUES,
        _unless_used("combineCQLoadingCQTypes", "default"), Work.WRITE,
    ),
    _in_rocksdb("indexRocksDBEnable", _INDEX),
    Refusal(
        _BROKER, "configManagerVersion", "v2", lambda text, entries: text.strip() == "v2", _TABLES,
        _unless_used("configManagerVersion", "v1"), Work.WRITE,
    ),
    _in_rocksdb("useSingleRocksDBForAllConfigs", _TABLES),
    _in_rocksdb("popConsumerKVServiceEnable", _POP),
    _in_rocksdb("popConsumerKVServiceInit", _POP),
    _in_rocksdb("transRocksDBEnable", _TRANSACTIONS),
    _in_rocksdb("timerRocksDBEnable", _TIMERS),
    Refusal(
        _BROKER, "enableLmq", _ON, _is_true, _LIGHT, _unless_used("enableLmq", "false", "in light queues"), Work.WRITE
    ),
    Refusal(
        _BROKER, "enableMultiDispatch", _ON, _is_true, _LIGHT,
        _unless_used("enableMultiDispatch", "false", "in light queues"), Work.WRITE,
    ),
    # Delivery
    Refusal(
        _BROKER, "fetchNamesrvAddrByAddressServer", "true without namesrvAddr", _has_no_name_server, _NOWHERE,
        "set namesrvAddr",
    ),
    Refusal(
        _NAMESRV, "enableControllerInNamesrv", _ON, _is_true, _NO_CONTROLLER,
        "set enableControllerInNamesrv=false, and run RocketMQ's controller if brokers need one",
    ),
    Refusal(_NAMESRV, "clusterTest", _ON, _is_true, _CLUSTER_TEST, "set clusterTest=false"),
    # A proxy
    *_of_guard(_PROXY),
    *(_of_class(key, _PROXY) for key in CLASSES),
    _of_credentials("innerClientAuthenticationCredentials", _PROXY, _NOT_SIGNED),
    Refusal(
        _PROXY, "proxyMode", "LOCAL", _is_text_of("local"), _LOCAL, "run `gantrymq serve --grpc-port` with the store"
    ),
    Refusal(
        _PROXY, "tlsTestModeEnable", "false without tls.server.certPath", _has_another_certificate, _CERTIFICATE,
        "set tls.server.certPath and tls.server.keyPath",
    ),
)  # fmt: skip
REFUSALS: Mapping[ServerKind, Mapping[str, Refusal]] = {
    kind: {row.key: row for row in _ROWS if row.kind is kind} for kind in ServerKind
}
# Keys that act in RocketMQ and have no effect here. A value other than RocketMQ's default is worth a warning.
_WARNED: Mapping[ServerKind, Mapping[str, KeyWithoutEffect]] = {
    # A broker that speaks gRPC has the proxy's keys, too.
    ServerKind.BROKER: {name: row for name, row in OF_PROXY.items() if name not in _OF_BROKER_TOO} | dict(OF_BROKER),
    ServerKind.NAMESRV: OF_NAMESRV,
    ServerKind.PROXY: {**AUTH_KEYS_OF_PROXY, **OF_PROXY},
}


def refused_keys(entries: Mapping[str, str], kind: ServerKind, work: Work = Work.SERVE) -> list[Reason]:
    """A refused reason for each of ``entries`` with which ``work`` is refused, in the order of the table."""
    return [
        Reason(
            Level.REFUSED,
            Subject.KEY,
            row.key,
            f"{row.key}={_shown(row, entries[row.key])} cannot be honoured: {row.consequence}",
            row.remedy,
            row.group,
            row.acceptable,
        )
        for row in REFUSALS[kind].values()
        if row.key in entries and row.min_work <= work <= row.max_work and row.is_refused(entries[row.key], entries)
    ]


def _shown(row: Refusal, text: str) -> str:
    return MASK if row.is_secret else text.strip()[:64]


def warned_keys(entries: Mapping[str, str], kind: ServerKind, work: Work = Work.SERVE) -> list[Reason]:
    """A warning for each of ``entries`` that acts in RocketMQ, has no effect here, and does not refuse ``work``.

    The texts have no values, because some are passwords. RocketMQ's defaults are no reason for a warning.
    """
    refused = {reason.name for reason in refused_keys(entries, kind, work)}
    return [
        Reason(Level.WARNING, Subject.KEY, name, f"{name} has no effect here: {row.reason}", f"remove {name}")
        for name, text in entries.items()
        if (row := _WARNED[kind].get(name)) is not None and name not in refused and is_acting(row, text)
    ]


def key_reasons(entries: Mapping[str, str], kind: ServerKind, work: Work = Work.SERVE) -> list[Reason]:
    """The refused reasons of a server's settings, then the warnings.

    ``entries`` are those of a broker.conf, a namesrv.conf or an rmq-proxy.json, as texts. Keys without a row in a table
    are ignored.
    """
    return [*refused_keys(entries, kind, work), *warned_keys(entries, kind, work)]
