"""The slow twin of cpp/hashing/block_hash.h."""

from collections.abc import Mapping, Sequence

from tests.models.hashing import xxh3


def local_hash(block: bytes, seed: int = 0) -> int:
    return xxh3(block, seed)


def root(seed: int = 0, lora_name: bytes = b"", cache_salt: bytes = b"", is_text: bool = False) -> int:
    fields = b""
    for letter, value in ((b"L", lora_name), (b"S", cache_salt)):
        if value:
            fields += letter + len(value).to_bytes(4, "little") + value
    if is_text:
        fields += b"T" + bytes(4)
    return xxh3(fields, seed) if fields else seed


def blocks_of(prompt: Sequence[int] | bytes, block_size: int) -> list[bytes]:
    """The complete blocks, as bytes."""
    data = prompt if isinstance(prompt, bytes) else b"".join(t.to_bytes(4, "little") for t in prompt)
    size = 4 * block_size
    return [data[at : at + size] for at in range(0, len(data) - size + 1, size)]


def chained(
    prompt: Sequence[int] | bytes,
    block_size: int,
    *,
    seed: int = 0,
    lora_name: bytes = b"",
    cache_salt: bytes = b"",
    extra: Mapping[int, bytes] | None = None,
) -> list[int]:
    """The chained hashes of the complete blocks."""
    parent = root(seed, lora_name, cache_salt, isinstance(prompt, bytes))
    chain = []
    for i, block in enumerate(blocks_of(prompt, block_size)):
        local = local_hash(block + (extra or {}).get(i, b""), seed)
        parent = xxh3(parent.to_bytes(8, "little") + local.to_bytes(8, "little"), seed) or 1
        chain.append(parent)
    return chain


def positional(prompt: Sequence[int] | bytes, block_size: int) -> list[int]:
    """The positional hashes of the complete blocks."""
    return [xxh3(i.to_bytes(8, "little") + block) for i, block in enumerate(blocks_of(prompt, block_size))]
