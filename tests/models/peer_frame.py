"""The slow twin of cpp/peer_sync/frame.h: a frame as a dictionary, written byte by byte."""

import hashlib
import hmac
import struct
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SEALED, FULL, BYE = 1, 2, 4


def empty(**members: Any) -> dict[str, Any]:
    """A frame without entries, but for the members given."""
    frame: dict[str, Any] = dict.fromkeys(
        (
            "names",
            "loads",
            "decisions",
            "forgotten",
            "suspects",
            "seen",
            "about",
            "facts",
            "staged",
            "topics",
        ),
        (),
    )
    frame = {name: list(value) for name, value in frame.items()}
    frame |= {"full": False, "bye": False, "fingerprint": 0, "router": 1, "sequence": 1, "sent_ms": 0}
    return frame | {"interval_ms": 250} | members


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def section(kind: int, entries: list[bytes]) -> bytes:
    payload = varint(len(entries)) + b"".join(entries)
    return bytes([kind]) + struct.pack("<I", len(payload))[:3] + payload


def seal(secret: bytes, magic: bytes, router: int, number: int, head: bytes, text: bytes) -> bytes:
    key = hmac.new(secret, magic + u64(router), hashlib.sha256).digest()
    return head + AESGCM(key).encrypt(bytes(4) + u64(number), text, head)


def fact_of(
    kind: int, holds: bool, key: bool, weight: int, timeout_ms: int, at_ms: int, router: int, url: bytes
) -> bytes:
    numbers = (kind, holds + 2 * key, weight, timeout_ms, at_ms)
    return b"".join(map(varint, numbers)) + u64(router) + varint(len(url)) + url


def write(frame: dict[str, Any], secret: bytes = b"") -> bytes:
    sections = [
        (1, [varint(i) + u64(life) + varint(len(url)) + url.encode() for i, life, url in frame["names"]]),
        (2, [varint(i) + b"".join(map(varint, counts)) for i, counts in frame["loads"]]),
        (
            3,
            [
                varint(i) + varint(tokens) + varint(kind) + varint(len(strides)) + b"".join(map(u64, strides))
                for i, tokens, kind, strides in frame["decisions"]
            ],
        ),
        (4, [varint(i) + u64(life) for i, life in frame["forgotten"]]),
        (5, [varint(i) + varint(cause) for i, cause in frame["suspects"]]),
        (6, [u64(router) + varint(sequence) for router, sequence in frame["seen"]]),
        (
            7,
            [varint(len(name)) + name + varint(len(version)) + version for name, version in frame["about"]],
        ),
        (8, [fact_of(*fact) for fact in frame["facts"]]),
        (
            9,
            [
                fact_of(*fact[:8]) + varint(fact[8]) + varint(fact[9]) + varint(len(fact[10])) + fact[10]
                for fact in frame["staged"]
            ],
        ),
    ]
    filled = [section(kind, entries) for kind, entries in sections if entries]
    filled += [bytes([kind]) + struct.pack("<I", len(told))[:3] + told for kind, told in frame["topics"]]
    body = b"".join(filled)
    flags = (SEALED if secret else 0) | (FULL if frame["full"] else 0) | (BYE if frame["bye"] else 0)
    head = b"VRP1" + struct.pack(
        "<HHQQQQII",
        flags,
        len(filled),
        frame["fingerprint"],
        frame["router"],
        frame["sequence"],
        frame["sent_ms"],
        frame["interval_ms"],
        len(body),
    )
    if not secret:
        return head + body
    return seal(secret, b"VRP1", frame["router"], frame["sequence"], head, body)
