"""The reasons for which records end: their words, which command line and errors print."""

from __future__ import annotations

import json
import pickle

from gantrymq.format.stop_reason import StopReason
from gantrymq.kernels import codes
from gantrymq.store.log.record_chain import stop_reason


def test_json_stop_reasons_have_documented_words() -> None:
    assert [json.loads(json.dumps(reason)) for reason in StopReason] == [
        *("", "blank", "zeros", "half a record", "magic code", "size", "crc", "end of file without a blank"),
        *("unreadable", "missing files", "no room for filler before it", "no room for a blank after it"),
    ]


def test_only_stop_reason_none_is_false() -> None:
    assert [reason for reason in StopReason if not reason] == [StopReason.NONE]


def test_every_scan_stop_code_has_reason_with_error() -> None:
    for code in range(codes.STOP_BLANK, codes.STOP_NO_BLANK + 1):
        assert stop_reason(code).error
    for code in (codes.STOP_DONE, codes.STOP_RANGE, codes.STOP_FULL, codes.STOP_TABLE_FULL):
        assert stop_reason(code) is StopReason.NONE


def test_unpickled_stop_reason_is_same_member() -> None:
    assert all(pickle.loads(pickle.dumps(reason)) is reason for reason in StopReason)
