"""A batch made into records in one go is what its messages are, one by one."""

from __future__ import annotations

import random
import re

import pytest
from wire_files import file_of, written

from gantrymq.broker.appends.wire_messages import WireBatch, find_spans, measure_batch
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.errors import RemotingCommandError
from gantrymq.kernels import codes
from gantrymq.kernels.api import measure_wire_batch
from gantrymq.kernels.arrays import read_only
from gantrymq.model.host import Host
from gantrymq.model.message import message_id
from gantrymq.model.status import PutMessageStatus
from gantrymq.remoting.message_batch import BatchedMessage, decode_batch, encode_batch
from gantrymq.store.log.appendable import AppendableMessage
from gantrymq.store.put_result import PutMessageResult

HOSTS = ("127.0.0.1:10911", "[::1]:10911")


def batch_of(rng: random.Random, raw: bytes) -> WireBatch:
    return WireBatch(
        "topic" * rng.randint(1, 5), raw, rng.randrange(8), rng.choice([0, 1, 2]),
        rng.choice([0, 1_700_000_000_000]), Host.parse(rng.choice(HOSTS)), rng.randrange(3), True,
        measure_batch(raw)[0],
    )  # fmt: skip


def wire(rng: random.Random, count: int) -> bytes:
    return encode_batch(
        BatchedMessage(rng.randint(-5, 5), rng.randbytes(rng.randrange(300)), rng.choice([b"", b"a\x01b\x02"]))
        for _ in range(count)
    )


@pytest.mark.parametrize("store", HOSTS)
def test_records_of_batch_equal_records_of_its_messages(rng: random.Random, store: str) -> None:
    host, now_ms = Host.parse(store), 1_800_000_000_000
    for _ in range(50):
        batch = batch_of(rng, wire(rng, rng.randint(1, 20)))
        queue_offset, file = rng.randrange(1 << 40), file_of(rng)
        begin = file.wrote_position
        places = batch.write(file, queue_offset, now_ms, host)
        wanted, begins = b"", []
        for message in batch.messages():
            alone = AppendableMessage(message)
            assert alone.check(MessageStoreConfig(), host) is PutMessageStatus.PUT_OK
            begins.append(file.file_from_offset + begin + len(wanted))
            wanted += alone.encode(queue_offset + len(begins) - 1, begins[-1], now_ms)
        assert (written(file, begin), list(places)) == (wanted, begins)
        assert len(wanted) == batch.measure(host)


@pytest.mark.parametrize("store", HOSTS)
def test_message_ids_of_batch_equal_ids_of_its_messages(rng: random.Random, store: str) -> None:
    host = Host.parse(store)
    for count in (1, 2, 300):
        places = [rng.randrange(1 << 63) for _ in range(count)]
        result = PutMessageResult(PutMessageStatus.PUT_OK, phy_offset=places[0], store_host=host, phy_offsets=places)
        assert result.msg_id == ",".join(message_id(host, place) for place in places)


def test_kernel_and_reference_accept_the_same_batches(rng: random.Random) -> None:
    for _ in range(2000):
        raw = bytearray(wire(rng, rng.randrange(4)))
        for _ in range(rng.randrange(3) if raw else 0):
            raw[rng.randrange(len(raw))] = rng.choice([0, 1, 20, 22, 255, rng.randrange(256)])
        cut = bytes(raw[: rng.randrange(len(raw) + 1)] if rng.random() < 0.3 else raw)
        try:
            spans = find_spans(cut)
        except RemotingCommandError as error:
            with pytest.raises(RemotingCommandError, match=re.escape(str(error))):
                measure_batch(cut)
        else:
            has_zeros = any(0 in cut[body_end + 2 : end] for _, _, body_end, end in spans)
            code = codes.STOP_ZEROS if has_zeros else codes.STOP_DONE
            assert measure_wire_batch(read_only(cut)) == (len(spans), code, len(cut))
            assert measure_batch(cut) == (len(spans), not has_zeros)


def test_invalid_batch_is_refused(rng: random.Random) -> None:
    for _ in range(300):
        raw = bytearray(wire(rng, 3))
        for _ in range(rng.randint(1, 3)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        changed = bytes(raw[: rng.randint(1, len(raw))])
        try:
            wanted = len(decode_batch(changed))
        except RemotingCommandError:
            with pytest.raises(RemotingCommandError):
                find_spans(changed)
        else:
            assert len(find_spans(changed)) == wanted
