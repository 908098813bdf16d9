"""A certificate for the loopback address, signed by itself, so that a stock kubectl sends its token.

kubectl leaves out whatever proves who it is unless the connection is TLS (client-go, clientcmd: "only try to read the
auth information if we are secure"), and Python can speak TLS but makes no certificates. It is ECDSA on P-256 (SEC 1,
FIPS 186) in X.509 (RFC 5280), written out: some 30 ms, once a folder. Whoever may read that has the token anyway.
"""

import base64
import hashlib
import secrets
from datetime import datetime, timedelta
from pathlib import Path

from paddle_operator.local.atomic_file import write_whole

FILE = "server.pem"
VALID_FOR = timedelta(days=3650)
NAME = "paddle-operator local cluster"

Point = tuple[int, int]

# The curve P-256: y² = x³ - 3x + b over the integers modulo P, with a point G of the prime order N.
P = 2**256 - 2**224 + 2**192 + 2**96 - 1
N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
G: Point = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
INFINITY: Point = (0, 0)

EC_KEY, P_256, ECDSA_SHA256 = "1.2.840.10045.2.1", "1.2.840.10045.3.1.7", "1.2.840.10045.4.3.2"
COMMON_NAME = "2.5.4.3"
SUBJECT_KEY, KEY_USAGE, OTHER_NAMES, CONSTRAINTS, AUTHORITY_KEY, USAGE = (
    f"2.5.29.{number}" for number in (14, 15, 17, 19, 35, 37)
)
SERVER = "1.3.6.1.5.5.7.3.1"


def kept(folder: Path, now: datetime) -> Path:
    """The file with certificate and key, made where it is missing; for its owner's eyes only. Raises OSError."""
    path = folder / FILE
    if not path.exists():
        write_whole(path, made(now))
    return path


def public_part(path: Path) -> str:
    """The certificate without its key, for a kubeconfig. Raises OSError."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----\n"
    text = path.read_text()
    return text[text.index(begin) : text.index(end) + len(end)]


def made(now: datetime) -> str:
    """A new certificate and its key, as PEM."""
    private = 1 + secrets.randbelow(N - 1)
    public = b"\x04" + b"".join(number.to_bytes(32, "big") for number in times(private, G))
    to_sign = certificate_body(public, now)
    signature = sequence(*(integer(number) for number in signed(private, to_sign)))
    certificate = sequence(to_sign, sequence(identifier(ECDSA_SHA256)), bits(signature))
    key = sequence(integer(1), octets(private.to_bytes(32, "big")), part(0, identifier(P_256)), part(1, bits(public)))
    return pem("CERTIFICATE", certificate) + pem("EC PRIVATE KEY", key)


def certificate_body(public: bytes, now: datetime) -> bytes:
    name = sequence(tagged(0x31, sequence(identifier(COMMON_NAME), tagged(0x0C, NAME.encode()))))
    key_mark = hashlib.sha256(public).digest()[:20]
    loopback = tagged(0x82, b"localhost") + tagged(0x87, bytes([127, 0, 0, 1]))
    extensions = (
        extension(SUBJECT_KEY, octets(key_mark)),
        extension(AUTHORITY_KEY, sequence(tagged(0x80, key_mark))),
        extension(CONSTRAINTS, sequence(TRUE), critical=True),  # it is its own authority
        extension(KEY_USAGE, tagged(0x03, bytes([2, 0b10000100])), critical=True),  # to sign, also certificates
        extension(USAGE, sequence(identifier(SERVER))),
        extension(OTHER_NAMES, sequence(loopback)),
    )
    return sequence(
        part(0, integer(2)),  # version 3
        integer(secrets.randbits(63)),
        sequence(identifier(ECDSA_SHA256)),
        name,
        sequence(time(now - timedelta(days=1)), time(now + VALID_FOR)),
        name,
        sequence(sequence(identifier(EC_KEY), identifier(P_256)), bits(public)),
        part(3, sequence(*extensions)),
    )


def signed(private: int, message: bytes) -> tuple[int, int]:
    """ECDSA: a nonce that nobody knows, its point's x, and a number that only the key's owner can find."""
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
    nonce = 1 + secrets.randbelow(N - 1)
    r = times(nonce, G)[0] % N
    s = pow(nonce, -1, N) * (digest + r * private) % N
    return (r, s) if r and s else signed(private, message)


def times(factor: int, point: Point) -> Point:
    found = INFINITY
    while factor:
        if factor & 1:
            found = plus(found, point)
        point = plus(point, point)
        factor >>= 1
    return found


def plus(one: Point, other: Point) -> Point:
    if INFINITY in (one, other):
        return other if one == INFINITY else one
    if one[0] == other[0] and (one[1] + other[1]) % P == 0:
        return INFINITY
    if one == other:
        slope = 3 * (one[0] ** 2 - 1) * pow(2 * one[1], -1, P)
    else:
        slope = (other[1] - one[1]) * pow(other[0] - one[0], -1, P)
    x = (slope**2 - one[0] - other[0]) % P
    return x, (slope * (one[0] - x) - one[1]) % P


# DER: a tag, a length, the content.


def tagged(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 128:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def sequence(*contents: bytes) -> bytes:
    return tagged(0x30, b"".join(contents))


def part(number: int, content: bytes) -> bytes:
    return tagged(0xA0 | number, content)


def integer(value: int) -> bytes:
    return tagged(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def octets(content: bytes) -> bytes:
    return tagged(0x04, content)


def bits(content: bytes) -> bytes:
    return tagged(0x03, b"\0" + content)


def time(at: datetime) -> bytes:
    """With two digits of the year up to 2049, with four from then on."""
    short = at.year < 2050
    return tagged(0x17 if short else 0x18, at.strftime("%y%m%d%H%M%SZ" if short else "%Y%m%d%H%M%SZ").encode())


def identifier(dotted: str) -> bytes:
    first, second, *rest = (int(number) for number in dotted.split("."))
    content = bytearray([40 * first + second])
    for number in rest:
        digits = [number & 0x7F]
        while number := number >> 7:
            digits.append(0x80 | number & 0x7F)
        content += bytes(reversed(digits))
    return tagged(0x06, bytes(content))


TRUE = tagged(0x01, b"\xff")


def extension(dotted: str, content: bytes, *, critical: bool = False) -> bytes:
    return sequence(identifier(dotted), TRUE if critical else b"", octets(content))


def pem(name: str, content: bytes) -> str:
    text = base64.encodebytes(content).decode()
    return f"-----BEGIN {name}-----\n{text}-----END {name}-----\n"
