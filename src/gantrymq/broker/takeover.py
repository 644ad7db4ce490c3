"""The start of a master whose store was a slave's: its role, and the transactions that its former master has ended.

Deliveries of delays and timers are found by the store (``store/former_deliveries.py``), those of POP by its revival.

A commit puts the final message, and the op message up to seconds later. A slave may have the first without the second:
then the half message would be committed again when its producer is asked. And a half message that was put back for a
check is there twice, if the committed offset of the check is older.

A master that comes back after a slave has acted for it takes over the offsets that were committed there.

Source: BrokerPreOnlineService.syncMetadataReverse. The rest has none: RocketMQ checks such half messages again, and
delivers them twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gantrymq.broker import names
from gantrymq.broker.acl.access_control import AccessControl
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.tables.tables import Tables
from gantrymq.broker.transactions.half_messages import check_times, first_offset, real_queue
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.config.replication_settings import BrokerRole
from gantrymq.errors import RemotingCommandError, RemotingError
from gantrymq.format.names import CONFIG
from gantrymq.format.op_message import decided_offsets
from gantrymq.fs.api import FileSystem
from gantrymq.logs import get_logger
from gantrymq.model.message import PROPERTY_UNIQ_KEY, StoredMessage
from gantrymq.model.texts import time_text
from gantrymq.remoting.bodies.group import ConsumerOffsetSerializeWrapper
from gantrymq.remoting.bodies.route import MASTER_ID
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.transport.client import RemotingClient
from gantrymq.store.former_deliveries import FormerDeliveries
from gantrymq.store.message_store import MessageStore
from gantrymq.store.role import RoleFile

_RECORDS_A_READ = 256
_TIMEOUT_MS = 5_000
_OPS_LATE_MS = 60_000  # an op message follows its final message within transactionOpBatchInterval, 3 s
_Chain = tuple[int, str, int]

log = get_logger("gantrymq.broker")


def take_promotion(config: LiveConfig, fs: FileSystem, path: Path) -> None:
    """Let a promoted store start as a master although its configuration says SLAVE.

    Once the configuration says otherwise, the promotion is forgotten, and a later brokerRole=SLAVE counts again.
    """
    file = RoleFile(fs, path / CONFIG)
    role = file.load()
    if not role.promoted_ms:
        return
    if not config.is_slave:
        file.save(role._replace(promoted_ms=0))
        return
    config.store = replace(config.store, broker_role=BrokerRole.ASYNC_MASTER)
    config.broker = replace(config.broker, broker_id=0)
    at = time_text(role.promoted_ms)
    log.warning(f"promoted to master at {at}: set brokerId=0 and brokerRole=ASYNC_MASTER in the configuration, too")


async def take_offsets_of_slaves(context: BrokerContext, client: RemotingClient, access: AccessControl | None) -> None:
    """Take the committed offsets of this master's slaves where they are larger, but none past a queue's end.

    A slave that does not answer is logged. Thread rule: the event loop's thread.
    """
    store, offsets = context.storage.store, context.tables.offsets
    for number, address in (await context.outer.members() or {}).items():
        if number == MASTER_ID or address == context.address:
            continue
        request = RemotingCommand(code=RequestCode.GET_ALL_CONSUMER_OFFSET)
        if access is not None:
            access.sign_as_administrator(request)
        try:
            answer = await client.invoke(address, request, _TIMEOUT_MS)
            if answer.code != ResponseCode.SUCCESS:
                raise RemotingError(f"code {answer.code}, {answer.remark}")
            table = decode_body(ConsumerOffsetSerializeWrapper, answer.body).offset_table
        except (RemotingError, RemotingCommandError) as error:
            log.warning("the offsets of a slave are not taken over", slave=address, reason=str(error))
            continue
        for key, queues in table.items():
            topic, _, group = key.partition("@")
            for queue_id, offset in queues.items():
                reached = min(offset, store.max_offset_in_queue(topic, queue_id))
                if group and reached > offsets.query(group, topic, queue_id):
                    offsets.commit(group, topic, queue_id, reached)


def decided_halves(store: MessageStore, tables: Tables) -> list[tuple[int, int]]:
    """The queue and offset of the half messages that no op message names, and that are decided all the same.

    Thread rule: before the broker serves requests.
    """
    former, topic = store.former_deliveries(), tables.topics.get(names.TRANS_HALF_TOPIC)
    if former is None or topic is None:
        return []
    decided: list[tuple[int, int]] = []
    for queue_id in range(topic.read_queue_nums):
        decided += [(queue_id, offset) for offset in _decided_in(store, tables, queue_id, former)]
    return decided


def _decided_in(store: MessageStore, tables: Tables, queue_id: int, former: FormerDeliveries) -> list[int]:
    named: set[int] = set()
    for op in _messages(store, tables, names.TRANS_OP_HALF_TOPIC, queue_id):
        named.update(decided_offsets(op.tags, op.body))
    chains: dict[_Chain, list[StoredMessage]] = {}
    for half in _messages(store, tables, names.TRANS_HALF_TOPIC, queue_id):
        chains.setdefault(_chain(half), []).append(half)
    decided: list[int] = []
    for halves in chains.values():
        is_final = any(_has_final(half, former) for half in halves)
        for number, half in enumerate(halves):
            later = halves[number + 1 :]
            is_replaced = any(check_times(other) > check_times(half) and first_offset(other) < 0 for other in later)
            if half.queue_offset not in named and (is_final or is_replaced):
                decided.append(half.queue_offset)
    return decided


def _chain(half: StoredMessage) -> _Chain:
    """What a half message has in common with those that were put back for it; nothing without a unique key."""
    unique_key = half.properties.get(PROPERTY_UNIQ_KEY, "")
    return half.born_timestamp_ms, unique_key, half.body_crc if unique_key else half.phy_offset


def _has_final(half: StoredMessage, former: FormerDeliveries) -> bool:
    queue = real_queue(half)
    return queue is not None and former.has_final(half, queue, since_ms=former.log_ms - _OPS_LATE_MS)


def _messages(store: MessageStore, tables: Tables, topic: str, queue_id: int) -> Iterator[StoredMessage]:
    """The messages of a queue from the offset on that the checks have committed."""
    offset = max(tables.offsets.query(names.TRANS_GROUP, topic, queue_id), 0)
    while True:
        read = store.get(topic, queue_id, offset, max_msgs=_RECORDS_A_READ)
        yield from read.messages
        if read.next_begin_offset <= offset:
            return
        offset = read.next_begin_offset
