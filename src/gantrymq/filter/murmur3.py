"""The low half of the 128-bit MurmurHash3 (x64, seed 0), which RocketMQ's Bloom filter uses.

Source: com.google.common.hash.Hashing.murmur3_128, HashCode.asLong.
"""

_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def murmur3_128_low(data: bytes) -> int:
    """The first 64 bits of the hash, unsigned."""
    first = second = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        first ^= _mix1(int.from_bytes(data[at : at + 8], "little"))
        first = (_rotate_left(first, 27) + second) * 5 + 0x52DCE729 & _MASK
        second ^= _mix2(int.from_bytes(data[at + 8 : at + 16], "little"))
        second = (_rotate_left(second, 31) + first) * 5 + 0x38495AB5 & _MASK
    first ^= _mix1(int.from_bytes(data[whole : whole + 8], "little"))
    second ^= _mix2(int.from_bytes(data[whole + 8 :], "little"))
    first ^= len(data)
    second ^= len(data)
    first = first + second & _MASK
    second = second + first & _MASK
    return _finalize(first) + _finalize(second) & _MASK


def _rotate_left(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _mix1(value: int) -> int:
    return _rotate_left(value * _C1 & _MASK, 31) * _C2 & _MASK


def _mix2(value: int) -> int:
    return _rotate_left(value * _C2 & _MASK, 33) * _C1 & _MASK


def _finalize(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
