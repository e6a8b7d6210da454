"""cpp/index/index_image.h: the container of saved indexes, as docs/reference/index_file.md describes it."""

import struct

import pytest
import xxhash

from vllm_router import _core_testing as testing


def image(payload, kind=1, version=2, magic=b"VLLMRIDX", size=None):
    """The slow twin of SealIndexImage."""
    head = struct.pack("<8sIIQ", magic, version, kind, len(payload) if size is None else size)
    return head + payload + struct.pack("<Q", xxhash.xxh3_64_intdigest(head + payload))


def refused(kind, content):
    with pytest.raises(ValueError, match="DATA_LOSS") as error:
        testing.open_image(kind, content)
    return str(error.value)


def test_an_image_is_what_the_page_says():
    """mending row 47: the bytes are the format, whatever the compiler."""
    numbers = [(8, 1), (16, 2), (32, 3), (64, 2**64 - 1)]
    payload = struct.pack("<BHIQ", 1, 2, 3, 2**64 - 1) + struct.pack("<I", 3) + b"abc"
    assert testing.seal_image(2, numbers, "abc") == image(payload, kind=2)
    assert testing.open_image(2, image(payload, kind=2)) == payload
    assert testing.open_image(1, image(b"")) == b""
    assert testing.open_image(1, image(payload, version=1)) == payload


def test_what_is_no_image_is_refused_with_the_value_and_what_it_should_be():
    whole = image(b"payload", kind=3)
    assert "it has 0 bytes; an index has at least 32, so it was truncated" in refused(3, b"")
    assert "does not start with VLLMRIDX" in refused(3, image(b"payload", magic=b"VLLMRIDY"))
    for version in (0, 3):
        other = image(b"payload", 3, version=version)
        assert f"its version is {version}; this vllm-router reads versions 1 to 2" in refused(3, other)
    assert "its kind is 3 (TokenTree); here a BlockCacheTracker is loaded" in refused(1, whole)
    assert "its kind is 9 (unknown); here a StringTree is loaded" in refused(2, image(b"", kind=9))
    assert "has 6 bytes and its header says 7; it was truncated" in refused(3, whole[:-1])
    assert "has 8 bytes and its header says 7; something follows its end" in refused(3, whole + b"x")
    endless = image(b"payload", 3, size=2**64 - 1)
    assert "header says 18446744073709551615; it was truncated" in refused(3, endless)
    changed = whole[:26] + b"X" + whole[27:]
    assert "; it was changed after it was saved" in refused(3, changed)


def test_a_reader_never_reads_beyond_the_end():
    """mending row 47: and no size is believed that cannot be."""
    reader = testing.ImageReader(struct.pack("<IQ", 7, 3) + b"abc")
    assert (reader.u32(), reader.count(1)) == (7, 3)
    assert reader.end().startswith("DATA_LOSS: its payload goes on for 3 bytes")
    assert (reader.u64(), reader.ok) == (0, False)
    assert (reader.u8(), reader.text()) == (0, b"")
    assert "a length in it exceeds the data" in reader.end()
    for least, count in ((8, 2), (1, 17), (1, 2**64 - 1)):
        reader = testing.ImageReader(struct.pack("<Q", count) + b"x" * 15)
        assert (reader.count(least), reader.ok) == (0, False)
    reader = testing.ImageReader(struct.pack("<I", 3) + b"abc")
    assert (reader.text(), reader.end()) == (b"abc", "OK")
    assert not testing.ImageReader(struct.pack("<I", 4) + b"abc").text()
