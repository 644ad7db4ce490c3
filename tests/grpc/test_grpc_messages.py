"""The private descriptors and the enums that are written out."""

from __future__ import annotations

import runpy
from enum import IntEnum
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from gantrymq.grpc.protocol import codes, messages
from gantrymq.grpc.protocol.convert import to_message
from gantrymq.model.host import Host
from gantrymq.model.message import StoredMessage

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "compile_protos.py"))


def test_descriptors_equal_output_of_script() -> None:
    """Compared as messages: two versions of protoc may order options differently."""
    committed = FileDescriptorSet.FromString(SCRIPT["DESCRIPTORS"].read_bytes())
    assert committed == FileDescriptorSet.FromString(SCRIPT["descriptors"]())


@pytest.mark.parametrize("kind", [one for one in vars(codes).values() if isinstance(one, type) and one is not IntEnum])
def test_enums_are_those_of_descriptors(kind: type[IntEnum]) -> None:
    name = kind.__name__.removeprefix("Grpc")
    values = messages.POOL.FindEnumTypeByName(f"{messages.PACKAGE}.{name}").values_by_name
    assert {one.name: one.value for one in kind} == {one.name: values[one.name].number for one in kind}


def test_times_are_milliseconds() -> None:
    settings = messages.Settings()
    messages.set_ms(settings.request_timeout, 3_250)
    assert (settings.request_timeout.seconds, settings.request_timeout.nanos) == (3, 250_000_000)
    assert messages.to_ms(settings.request_timeout) == 3_250


@pytest.mark.parametrize(("born_ms", "seconds"), [(1 << 62, 253_402_300_799), (-(1 << 62), -62_135_596_800)])
def test_time_out_of_range_becomes_nearest_timestamp(born_ms: int, seconds: int) -> None:
    host, properties = Host(bytes(4), 1), {"TIMER_DELIVER_MS": str(1 << 62)}
    stored = StoredMessage("t", 0, 0, 0, 0, 0, 0, born_ms, host, 0, host, 0, 0, 0, b"x", properties)
    system = to_message(stored, 0).system_properties
    assert (system.born_timestamp.seconds, system.delivery_timestamp.seconds) == (seconds, 253_402_300_799)
