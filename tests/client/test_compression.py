"""The compression of producers: each kind has a compressor, a reader and a choice of the command line."""

from __future__ import annotations

import pytest

from gantrymq.cli import produce
from gantrymq.client.producer.compression import CompressionType, compress
from gantrymq.format.packed_body import decompress
from gantrymq.model import flags

BODY = b"one whole body " * 500


@pytest.mark.parametrize("kind", CompressionType)
def test_compressed_body_is_decoded_by_its_flag_bits(kind: CompressionType) -> None:
    packed = compress(BODY, kind, 5)
    assert len(packed) < len(BODY) // 10
    assert decompress(packed, flags.COMPRESSED | kind.value, len(BODY)) == BODY


@pytest.mark.parametrize("kind", CompressionType)
def test_kinds_do_not_read_each_other(kind: CompressionType) -> None:
    for other in CompressionType:
        if other is not kind:
            with pytest.raises(ValueError, match=r".*"):
                decompress(compress(BODY, kind, 5), flags.COMPRESSED | other.value, len(BODY))


def test_command_line_offers_each_kind_and_none() -> None:
    assert {choice.value for choice in vars(produce)["Codec"]} == {kind.name.lower() for kind in CompressionType} | {
        "none"
    }
