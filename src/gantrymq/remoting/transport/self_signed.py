"""Makes a self-signed certificate for a server, for clients that use TLS without authenticating the server.

RocketMQ does so in its default test mode (``tls.test.mode.enable``). The certificate is X.509 version 1 with a new key
on the curve P-256, signed by that key.

Source: TlsHelper, which uses Netty's SelfSignedCertificate; RFC 5280 (certificate), RFC 5915 (key), SEC 1 (curve,
signature).
"""

import base64
import hashlib
import secrets
import ssl
import tempfile

_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_GENERATOR = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_SEQUENCE, _SET, _INTEGER, _BITS, _OCTETS, _TEXT, _UTC, _TIME = 0x30, 0x31, 0x02, 0x03, 0x04, 0x0C, 0x17, 0x18
_COMMON_NAME = bytes.fromhex("0603550403")
_EC_PUBLIC_KEY = bytes.fromhex("06072a8648ce3d0201")
_P256 = bytes.fromhex("06082a8648ce3d030107")
_ECDSA_SHA256 = bytes.fromhex("06082a8648ce3d040302")

_Point = tuple[int, int]


def self_signed_context(name: str = "gantrymq") -> ssl.SSLContext:
    """A server's SSL context with a new certificate that ``name`` issues to itself. Takes about 20 ms."""
    secret = 1 + secrets.randbelow(_ORDER - 1)
    public = _times(secret, _GENERATOR)
    point = b"\x00\x04" + _bytes(public[0]) + _bytes(public[1])
    key = _der(_SEQUENCE, _integer(1), _der(_OCTETS, _bytes(secret)), _der(0xA0, _P256), _der(0xA1, _der(_BITS, point)))
    issuer = _der(_SEQUENCE, _der(_SET, _der(_SEQUENCE, _COMMON_NAME, _der(_TEXT, name.encode()))))
    years = _der(_SEQUENCE, _der(_UTC, b"000101000000Z"), _der(_TIME, b"99991231235959Z"))
    algorithm = _der(_SEQUENCE, _ECDSA_SHA256)
    subject_key = _der(_SEQUENCE, _der(_SEQUENCE, _EC_PUBLIC_KEY, _P256), _der(_BITS, point))
    signed = _der(_SEQUENCE, _integer(secrets.randbits(63)), algorithm, issuer, years, issuer, subject_key)
    certificate = _der(_SEQUENCE, signed, algorithm, _der(_BITS, b"\x00" + _signature(signed, secret)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile(prefix="gantrymq-tls-") as file:  # OpenSSL reads certificates only from files
        file.write(_pem("CERTIFICATE", certificate) + _pem("EC PRIVATE KEY", key))
        file.flush()
        context.load_cert_chain(file.name)
    return context


def _signature(signed: bytes, secret: int) -> bytes:
    digest = int.from_bytes(hashlib.sha256(signed).digest())
    r = s = 0
    while not (r and s):
        nonce = 1 + secrets.randbelow(_ORDER - 1)
        r = _times(nonce, _GENERATOR)[0] % _ORDER
        s = (digest + r * secret) * pow(nonce, -1, _ORDER) % _ORDER
    return _der(_SEQUENCE, _integer(r), _integer(s))


def _times(factor: int, point: _Point) -> _Point:
    """Multiply a point by ``factor``, 1 to the order minus 1."""
    product: _Point | None = None
    for bit in f"{factor:b}":
        if product is not None:
            product = _sum(product, product)
        if bit == "1":
            product = point if product is None else _sum(product, point)
    assert product is not None
    return product


def _sum(one: _Point, other: _Point) -> _Point:
    if one == other:
        slope = 3 * (one[0] * one[0] - 1) * pow(2 * one[1], -1, _P)
    else:
        slope = (other[1] - one[1]) * pow(other[0] - one[0], -1, _P)
    x = (slope * slope - one[0] - other[0]) % _P
    return x, (slope * (one[0] - x) - one[1]) % _P


def _bytes(number: int) -> bytes:
    return number.to_bytes(32)


def _integer(number: int) -> bytes:
    return _der(_INTEGER, number.to_bytes(number.bit_length() // 8 + 1))


def _der(tag: int, *parts: bytes) -> bytes:
    inner = b"".join(parts)
    size = len(inner)
    if size < 128:
        return bytes((tag, size)) + inner
    digits = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(digits))) + digits + inner


def _pem(label: str, der: bytes) -> bytes:
    return f"-----BEGIN {label}-----\n".encode() + base64.encodebytes(der) + f"-----END {label}-----\n".encode()
