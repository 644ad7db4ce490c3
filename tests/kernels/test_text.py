"""Lenient UTF-8 and Java's string hash against Python's strings."""

import itertools
import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from kernel_cases import MALFORMED, seeds

from gantrymq.kernels.arrays import read_only
from gantrymq.kernels.text import ascii_end, copy_repaired, hash_text, is_well_formed, signed_hash
from gantrymq.model.java import decode_utf8, string_hash


def assert_same(raw: bytes, before: bytes = b"", after: bytes = b"") -> None:
    buf, start, stop = read_only(before + raw + after), len(before), len(before) + len(raw)
    text = decode_utf8(raw)
    out = np.full(3 * len(raw) + 2, 0x7E, np.uint8)
    end = copy_repaired(buf, start, stop, out, 1)
    assert out[1:end].tobytes().decode() == text
    assert out[0] == 0x7E
    assert (out[end:] == 0x7E).all()
    assert signed_hash(hash_text(np.uint64(0), buf, start, stop)) == string_hash(text)
    assert is_well_formed(buf, start, stop) == (text.encode("utf-8") == raw)
    plain = next((i for i, byte in enumerate(raw) if byte > 0x7F), len(raw))
    assert ascii_end(buf, start, stop) == start + plain


@given(st.binary(max_size=200), st.binary(max_size=80), st.binary(max_size=80))
def test_decoding_of_arbitrary_bytes_equals_reference(raw: bytes, before: bytes, after: bytes) -> None:
    assert_same(raw, before, after)


@given(st.text(max_size=150), st.binary(max_size=70))
def test_decoding_of_arbitrary_text_equals_reference(text: str, before: bytes) -> None:
    assert_same(text.encode("utf-8", "replace"), before)


def test_decoding_of_pairs_and_triples_of_special_bytes_equals_reference() -> None:
    telling = [0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED]
    telling += [0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF]
    for pair in itertools.product(range(256), repeat=2):
        assert_same(bytes(pair))
    for triple in itertools.product(telling, repeat=3):
        assert_same(bytes(triple))


def test_decoding_of_quadruples_of_special_bytes_equals_reference() -> None:
    leads, tails = [0xE0, 0xED, 0xF0, 0xF1, 0xF4, 0xF5], [0x41, 0x80, 0x8F, 0x90, 0xA0, 0xBF, 0xC2, 0xED]
    for lead, *rest in itertools.product(leads, tails, tails, tails):
        assert_same(bytes([lead, *rest]))


@seeds(20)
def test_decoding_of_mixed_text_equals_reference(rng: random.Random) -> None:
    parts = [*MALFORMED, b"a" * 20, b"plain", "é".encode(), "支付".encode(), "🔑".encode()]
    for _ in range(50):
        assert_same(b"".join(rng.choices(parts, k=rng.randrange(12))), rng.randbytes(rng.randrange(70)))


def test_decoding_at_block_borders_equals_reference() -> None:
    rng = random.Random(1)
    for length in range(150):
        raw = bytes(rng.randrange(128) for _ in range(length))
        for before in (0, 1, 5, 15, 16, 17, 64):
            assert_same(raw, bytes(before), b"z" * rng.randrange(70))
