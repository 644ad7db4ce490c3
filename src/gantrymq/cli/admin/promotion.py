"""``gantrymq admin ha promote``: a person makes a slave its group's master.

==========================  =========================================================================================
what is checked             when it is refused
==========================  =========================================================================================
each name server            it does not answer, or knows a master of this name
the slave's copy            it still has its master, or differs from it, or cannot append
the ends of both logs       the slave lacks bytes that the master is known to have had, or another slave has more
topics, groups, offsets     they had followed the master's more than 30 s before its last sign of life, or never
==========================  =========================================================================================

With --force each of them is named as what is given up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.admin.session import Session, Target, admin_command
from gantrymq.cli.terminal import FINDINGS, warn
from gantrymq.errors import GantrymqError, MQClientError

if TYPE_CHECKING:
    from gantrymq.remoting.bodies.broker import HAClientRuntimeInfo, HARuntimeInfo

_OLDEST_TABLES_MS = 30_000
_LOOK_S, _LONGEST_S = 0.2, 120.0
_NO_MASTER = ("no master", "disconnected", "connecting")


@admin_command
def promote(
    session: Session,
    broker: Annotated[str, typer.Option("-b", "--broker", metavar="BROKER", help="The slave: host:port, or its name.")],
    force: Annotated[bool, typer.Option("--force", help="Do it in spite of the reasons against it.")] = False,
) -> None:
    """Make a slave the master, because its master is lost for good.

    It is refused, with the numbers, if a name server still knows the master or
    does not answer, if the slave lacks messages that the master is known to
    have had, or if its offsets are old. With --force those reasons are what is
    given up. The slave then starts again as brokerId 0, goes on with the queue
    offsets, and delivers what waits. Write brokerId=0 and
    brokerRole=ASYNC_MASTER into its broker.conf afterwards.

    Examples of use:

        gantrymq admin ha promote -b 10.0.0.2:10911
        gantrymq admin ha promote -b broker-a --force
    """
    target, others = _slave(session, broker)
    info = session.admin.ha_status(target.address)
    own = info.ha_client_runtime_info
    if info.master:
        raise MQClientError(f"{target.address} is a master already")
    if own.state is None:
        raise MQClientError(
            f"{target.address} is a slave of RocketMQ: start it with brokerId=0, brokerRole=ASYNC_MASTER"
        )
    reasons = [*_masters(session, target), *_copy(own), *_offsets(own), *_better(session, own, others)]
    row = {**target.fields(), "promoted": False, **_numbers(own), "reasons": reasons}
    if reasons and not force:
        for reason in reasons:
            session.finding(reason)
        _print(session, row)
        return
    for reason in reasons:
        warn(f"given up: {reason}")
    session.admin.promote(target.address, broker_id=target.broker_id, force=force)
    is_master = _wait(session, target)
    _print(session, {**row, "promoted": is_master, "brokerId": 0 if is_master else target.broker_id})
    if not is_master:
        session.finding(f"{target.address} does not answer as a master yet; see its log")
    else:
        warn("set brokerId=0 and brokerRole=ASYNC_MASTER in its broker.conf, and the lost master's to brokerRole=SLAVE")


def _slave(session: Session, broker: str) -> tuple[Target, list[Target]]:
    """The slave that is meant, and the other slaves of its name. Raises MQClientError."""
    targets = session.brokers(broker)
    slaves = [target for target in targets if target.broker_id or target.address == broker]
    if not slaves:
        raise MQClientError(f"no slave of {broker} is registered; give its host:port")
    if len(slaves) > 1:
        addresses = ", ".join(slave.address for slave in slaves)
        raise MQClientError(f"{broker} has {len(slaves)} slaves, {addresses}: give the address of one")
    known = session.brokers(slaves[0].name) if slaves[0].cluster else []
    return slaves[0], [other for other in known if other.broker_id and other.address != slaves[0].address]


def _masters(session: Session, target: Target) -> Iterator[str]:
    """The name servers that know a master of this name, or do not answer."""
    missing: dict[str, str] = {}
    session.admin.when_missing = lambda name, error: missing.update({name: str(error)})
    try:
        answers = session.admin.registered_brokers()
    except GantrymqError as error:
        answers, missing = {}, dict.fromkeys(session.config.name_server_list, str(error))
    session.admin.when_missing = session.missing
    for name_server, reason in missing.items():
        yield f"the name server {name_server} cannot say whether the master is gone: {reason}"
    for name_server, info in answers.items():
        data = info.broker_addr_table.get(target.name)
        master = data.broker_addrs.get(0) if data is not None else None
        if master is not None and master != target.address:
            yield f"the name server {name_server} still knows the master {master}: stop it, or wait"


def _copy(own: HAClientRuntimeInfo) -> Iterator[str]:
    if own.state not in _NO_MASTER:
        why = f": {own.reason}" if own.reason else ", so its master is alive"
        yield f"the copy is {own.state}{why}"
    numbers = _numbers(own)
    if numbers["lagBytes"]:
        messages = numbers["lagMessages"]
        about = f", about {messages:,} messages" if messages is not None else ""
        yield f"the slave lacks the last {numbers['lagBytes']:,} bytes of the master's log{about}"


def _offsets(own: HAClientRuntimeInfo) -> Iterator[str]:
    if not own.tables_timestamp:
        yield "topics, groups and committed offsets have never followed the master's"
    elif own.last_read_timestamp - own.tables_timestamp > _OLDEST_TABLES_MS:
        age_s = (own.last_read_timestamp - own.tables_timestamp) / 1000
        yield f"topics, groups and committed offsets are {age_s:,.0f} s older than the log"


def _better(session: Session, own: HAClientRuntimeInfo, others: list[Target]) -> Iterator[str]:
    """The other slaves with more of the log. RocketMQ's are asked as well."""
    for other in others:
        try:
            end = session.admin.ha_status(other.address).ha_client_runtime_info.max_offset
        except GantrymqError as error:
            yield f"the slave {other.address} cannot say how much it has: {error}"
            continue
        if end > own.max_offset:
            yield f"the slave {other.address} has {end - own.max_offset:,} bytes more of the log: promote that one"


def _numbers(own: HAClientRuntimeInfo) -> dict[str, int | None]:
    lag = max((own.master_max_offset or 0) - own.max_offset, 0)
    size = own.record_bytes or 0
    tables, read = own.tables_timestamp or 0, own.last_read_timestamp
    return {
        "maxOffset": own.max_offset,
        "masterMaxOffset": own.master_max_offset,
        "lagBytes": lag,
        "lagMessages": 0 if not lag else -(-lag // size) if size else None,
        "lastReadTimestamp": read,
        "tablesAgeMs": max(read - tables, 0) if tables else None,
    }


def _wait(session: Session, target: Target) -> bool:
    """Whether the broker answers as a master, within two minutes."""
    deadline = time.monotonic() + _LONGEST_S
    while time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        try:
            info: HARuntimeInfo = session.admin.ha_status(target.address)
        except GantrymqError:
            continue
        if info.master:
            return True
    return False


def _print(session: Session, row: dict[str, object]) -> None:
    columns = {
        "brokerName": "broker",
        "brokerId": ">id",
        "address": "address",
        "promoted": "promoted",
        "maxOffset": ">end of log",
        "lagBytes": ">bytes behind",
        "lagMessages": ">messages behind",
        "lastReadTimestamp": "last sign of the master",
        "tablesAgeMs": ">age of the offsets, ms",
    }
    session.rows([row], columns)
    if not row["promoted"]:
        session.code = max(session.code, FINDINGS)
