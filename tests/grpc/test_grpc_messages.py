"""The private descriptors and the enums that are written out."""

from __future__ import annotations

import runpy
from enum import IntEnum
from pathlib import Path

import pytest

from gantrymq.grpc.protocol import codes, messages

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "compile_protos.py"))


def test_the_descriptors_are_what_the_script_writes() -> None:
    """Compared as messages: two versions of protoc may order options differently."""
    committed = messages.FileDescriptorSet.FromString(SCRIPT["DESCRIPTORS"].read_bytes())
    assert committed == messages.FileDescriptorSet.FromString(SCRIPT["descriptors"]())


@pytest.mark.parametrize("kind", [one for one in vars(codes).values() if isinstance(one, type) and one is not IntEnum])
def test_enums_are_those_of_the_descriptors(kind: type[IntEnum]) -> None:
    values = messages.POOL.FindEnumTypeByName(f"{messages.PACKAGE}.{kind.__name__}").values_by_name
    assert {one.name: one.value for one in kind} == {one.name: values[one.name].number for one in kind}


def test_times_are_milliseconds() -> None:
    settings = messages.Settings()
    messages.set_ms(settings.request_timeout, 3_250)
    assert (settings.request_timeout.seconds, settings.request_timeout.nanos) == (3, 250_000_000)
    assert messages.to_ms(settings.request_timeout) == 3_250
