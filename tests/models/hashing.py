"""The slow twins of cpp/hashing/hash.h, written from the published descriptions of the hashes.

XXH3-64: the xxHash specification (doc/xxhash_spec.md of the xxHash project), its default secret.
MurmurHash64A: Austin Appleby's, on little-endian words. furc: mcrouter's, a walk over a stream of hash bits.
"""

import functools
from collections.abc import Iterator

MASK = (1 << 64) - 1

P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1, P64_2, P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P64_4, P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
PRIME_MX1, PRIME_MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)

FURC_SEED = 4193360111
FURC_M = (1 << 23) - 1


def u32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def u64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def rotate(x: int, by: int) -> int:
    return (x << by | x >> (64 - by)) & MASK


def swap(x: int) -> int:
    return int.from_bytes(x.to_bytes(8, "little"), "big")


def fold(a: int, b: int) -> int:
    product = a * b
    return (product ^ product >> 64) & MASK


def xxh64_avalanche(h: int) -> int:
    h = (h ^ h >> 33) * P64_2 & MASK
    h = (h ^ h >> 29) * P64_3 & MASK
    return h ^ h >> 32


def xxh3_avalanche(h: int) -> int:
    h = (h ^ h >> 37) * PRIME_MX1 & MASK
    return h ^ h >> 32


def mix16(data: bytes, at: int, secret: int, seed: int) -> int:
    low = u64(SECRET, secret) + seed & MASK
    high = u64(SECRET, secret + 8) - seed & MASK
    return fold(u64(data, at) ^ low, u64(data, at + 8) ^ high)


def xxh3_short(data: bytes, seed: int) -> int:
    n = len(data)
    if n == 0:
        return xxh64_avalanche(seed ^ u64(SECRET, 56) ^ u64(SECRET, 64))
    if n <= 3:
        combined = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        return xxh64_avalanche(combined ^ ((u32(SECRET, 0) ^ u32(SECRET, 4)) + seed & MASK))
    if n <= 8:
        seed ^= int.from_bytes((seed & 0xFFFFFFFF).to_bytes(4, "little"), "big") << 32
        flip = (u64(SECRET, 8) ^ u64(SECRET, 16)) - seed & MASK
        keyed = (u32(data, n - 4) + (u32(data, 0) << 32)) ^ flip
        h = (keyed ^ rotate(keyed, 49) ^ rotate(keyed, 24)) * PRIME_MX2 & MASK
        h = (h ^ (h >> 35) + n) * PRIME_MX2 & MASK
        return h ^ h >> 28
    low = u64(data, 0) ^ ((u64(SECRET, 24) ^ u64(SECRET, 32)) + seed & MASK)
    high = u64(data, n - 8) ^ ((u64(SECRET, 40) ^ u64(SECRET, 48)) - seed & MASK)
    return xxh3_avalanche((n + swap(low) + high + fold(low, high)) & MASK)


def xxh3_medium(data: bytes, seed: int) -> int:
    n = len(data)
    h = n * P64_1
    if n <= 128:
        for i in reversed(range((n - 1) // 32 + 1)):
            h += mix16(data, 16 * i, 32 * i, seed) + mix16(data, n - 16 * (i + 1), 32 * i + 16, seed)
        return xxh3_avalanche(h & MASK)
    for i in range(8):
        h += mix16(data, 16 * i, 16 * i, seed)
    h = xxh3_avalanche(h & MASK)
    for i in range(8, n // 16):
        h += mix16(data, 16 * i, 16 * (i - 8) + 3, seed)
    h += mix16(data, n - 16, 136 - 17, seed)
    return xxh3_avalanche(h & MASK)


def xxh3_long(data: bytes, seed: int) -> int:
    n = len(data)
    lanes = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1]
    # Long inputs are hashed with a secret of the seed's own.
    words = [u64(SECRET, at) + (-seed if at % 16 else seed) & MASK for at in range(0, len(SECRET), 8)]
    own = b"".join(word.to_bytes(8, "little") for word in words)

    def accumulate(at: int, secret: int) -> None:
        for i in range(8):
            word = u64(data, at + 8 * i)
            key = word ^ u64(own, secret + 8 * i)
            lanes[i ^ 1] = lanes[i ^ 1] + word & MASK
            lanes[i] = lanes[i] + (key & 0xFFFFFFFF) * (key >> 32) & MASK

    stripes = (n - 1) // 64
    for stripe in range(stripes):
        accumulate(64 * stripe, 8 * (stripe % 16))
        if stripe % 16 == 15:
            for i in range(8):
                lanes[i] = (lanes[i] ^ lanes[i] >> 47 ^ u64(own, 128 + 8 * i)) * P32_1 & MASK
    accumulate(n - 64, 192 - 64 - 7)
    h = n * P64_1
    for i in range(4):
        h += fold(lanes[2 * i] ^ u64(own, 11 + 16 * i), lanes[2 * i + 1] ^ u64(own, 19 + 16 * i))
    return xxh3_avalanche(h & MASK)


def xxh3(data: bytes, seed: int = 0) -> int:
    """XXH3, 64 bits."""
    if len(data) <= 16:
        return xxh3_short(data, seed)
    return xxh3_medium(data, seed) if len(data) <= 240 else xxh3_long(data, seed)


def murmur64a(data: bytes, seed: int) -> int:
    """MurmurHash64A."""
    multiplier = 0xC6A4A7935BD1E995
    h = (seed ^ len(data) * multiplier) & MASK
    whole = len(data) // 8 * 8
    for at in range(0, whole, 8):
        word = u64(data, at) * multiplier & MASK
        word = (word ^ word >> 47) * multiplier & MASK
        h = (h ^ word) * multiplier & MASK
    if len(data) > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * multiplier & MASK
    h = (h ^ h >> 47) * multiplier & MASK
    return h ^ h >> 47


def furc_hash(key: bytes, m: int = FURC_M) -> int:
    """A number below m. From one m to the next only the keys that must move do."""
    if m <= 1:
        return 0

    def words() -> Iterator[int]:
        word = murmur64a(key, FURC_SEED)
        while True:
            yield word
            word = murmur64a(word.to_bytes(8, "little"), FURC_SEED)

    stream, made = words(), []

    def bit(i: int) -> int:
        while len(made) <= i // 64:
            made.append(next(stream))
        return made[i // 64] >> i % 64 & 1

    depth = (m - 1).bit_length()
    at = depth
    for _ in range(32):
        while bit(at) == 0:
            depth -= 1
            if depth == 0:
                return 0
            at = depth
        at += 23
        number = 1
        for _ in range(depth - 1):
            number = 2 * number + bit(at)
            at += 23
        if number < m:
            return number
    return 0


@functools.cache
def ring_hash(function: str, text: bytes) -> int:
    """The point of a key or of a virtual node; `function` is furc or xxh3."""
    if function == "xxh3":
        return xxh3(text)
    return murmur64a(furc_hash(text).to_bytes(4, "little"), FURC_SEED)
