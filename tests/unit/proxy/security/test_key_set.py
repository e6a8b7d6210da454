"""Keys in a file: which of them are there, and what a mistake is called."""

import hashlib
import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

KEY = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=40).filter(
    lambda key: not key.startswith(("#", "sha256:"))
)


def keys(text, **options):
    return testing.KeySet(text if isinstance(text, bytes) else text.encode(), "keys.txt", **options)


def test_one_key_per_line_and_comments_and_empty_lines_are_none():
    found = keys("# ours\nsk-one\n\n  sk-two\t\r\n#sk-three\nsk-one")
    assert len(found) == 2
    assert "sk-one" in found
    assert "sk-two" in found
    assert "sk-three" not in found
    assert "#sk-three" not in found
    assert "" not in found


def test_a_digest_stands_for_its_key():
    digest = hashlib.sha256(b"sk-one").hexdigest()
    for written in (digest, digest.upper()):
        found = keys(f"sha256:{written}\n")
        assert "sk-one" in found
        assert written not in found
        assert f"sha256:{written}" not in found
    assert len(keys(f"sk-one\nsha256:{digest}")) == 1


def test_a_byte_order_mark_is_no_part_of_the_first_key():
    assert "sk-one" in keys(b"\xef\xbb\xbfsk-one\n")


@for_each_row(
    ("text", "complaint"),
    [
        ("", "keys.txt has no key"),
        ("\n# nobody\n", "keys.txt has no key"),
        ("a\nb c\n", "keys.txt, line 2: attribute 1 behind the key is unknown; there are tenant=NAME"),
        ("a\nb\tc\n", "keys.txt, line 2: attribute 1 behind the key is unknown"),
        ("a\nb tenant=x clas=batch\n", "line 2: the attribute clas= is unknown; there are tenant=NAME"),
        ("a\n\nb\x00", "line 3: it has a character that is neither printable ASCII nor a blank"),
        ("a tenant=\x1b[0m", "line 1: it has a character that is neither"),
        ("schl\xfcssel", "line 1: it has a character that is neither"),
        ("sha256:abc", "line 1: 64 hexadecimal digits must follow sha256:"),
        ("sha256:" + "g" * 64, "line 1: 64 hexadecimal digits"),
        ("k" * 1025, "line 1: the key has 1025 bytes; a key has at most 1024"),
        ("x\n" * 10_001, "has more than 10000 keys"),
        ("#" * 1_048_577, "has 1048577 bytes; a file of keys has at most 1048576"),
    ],
)
def test_a_mistake_is_named_and_the_key_is_not(text, complaint):
    with pytest.raises(ValueError, match=r"keys\.txt") as refusal:
        keys(text)
    assert complaint in str(refusal.value)
    assert "schl" not in str(refusal.value)
    assert "b c" not in str(refusal.value)


def test_the_longest_key_and_the_most_of_them_fit():
    assert "k" * 1024 in keys("k" * 1024)
    assert len(keys("".join(f"key-{n}\n" for n in range(10_000)))) == 10_000


@given(st.sets(KEY, min_size=1, max_size=20), st.lists(KEY, max_size=20))
def test_what_is_in_the_file_is_in_the_set_and_nothing_else(inside, others):
    found = keys("\n".join(inside))
    assert len(found) == len(inside)
    assert all(key in found for key in inside)
    assert all((key in found) == (key in inside) for key in others)


def test_attributes_follow_the_key():
    digest = hashlib.sha256(b"sk-two").hexdigest()
    found = keys(f"sk-one\nsha256:{digest}\ttenant=chat  class=batch\r\nsk-three trusted\n")
    assert found.find("sk-one") == ("key:" + hashlib.sha256(b"sk-one").hexdigest()[:16], None)
    assert found.find("sk-two") == ("key:" + digest[:16], {"tenant": "chat", "class": "batch"})
    assert found.find("sk-three")[1] == {"trusted": True}
    assert found.find("sk-three trusted") is None
    assert found.has_attributes
    assert not keys("sk-one").has_attributes


def test_admins_keys_have_none():
    assert "sk-one" in keys("sk-one\n", takes_attributes=False)
    with pytest.raises(ValueError, match="line 2: something follows the key, and admins' keys have no"):
        keys("sk-one\nsk-two tenant=a", takes_attributes=False)


def test_a_key_that_is_there_twice_has_the_same_attributes():
    digest = hashlib.sha256(b"sk-one").hexdigest()
    assert len(keys(f"sk-one class=batch tenant=a\nsha256:{digest} tenant=a class=batch")) == 1
    for other in ("", " tenant=b", " class=batch", " trusted"):
        with pytest.raises(
            ValueError, match="line 3: the key is that of line 1 with other attributes"
        ) as told:
            keys(f"sk-one tenant=a\nsk-two\nsha256:{digest}{other}")
        assert digest not in str(told.value)


def test_sets_are_equal_by_their_keys_and_attributes():
    assert keys("a\nb tenant=x") == keys("b  tenant=x\n# again\na")
    assert keys("a\nb tenant=x") != keys("a\nb tenant=y")
    assert keys("a\nb") != keys("a\nb trusted")
    assert keys("a") != keys("a\nb")


def test_the_table_is_what_a_slow_twin_finds_in_all_small_files():
    """Each file of up to ten keys, and each of them looked for in it: the twin is a set of digests."""
    universe = [f"k{number}" for number in range(10)]
    for members in itertools.product([False, True], repeat=len(universe)):
        inside = [key for key, member in zip(universe, members, strict=True) if member]
        if not inside:
            continue
        table = keys("\n".join(inside))
        assert [key for key in universe if key in table] == inside


@for_each_row("size", [1, 2, 3, 5, 17, 100, 255, 256, 257, 1000, 4097, 9_999, 10_000])
def test_the_table_is_what_a_slow_twin_finds_in_large_files(size):
    dice = random.Random(size)
    inside = {f"sk-{dice.getrandbits(64):x}": f"t{number}" for number, _ in enumerate(range(size))}
    lines = [f"{key} tenant={tenant}" for key, tenant in inside.items()]
    table = keys("\n".join(lines))
    assert len(table) == size
    for key, tenant in inside.items():
        assert table.find(key)[1] == {"tenant": tenant}
    for key in inside:
        assert (key[:-1] in table) == (key[:-1] in inside)
        assert (key + "0" in table) == (key + "0" in inside)


def test_digests_that_begin_or_end_alike_are_all_kept():
    texts = [f"{number:04x}" for number in range(300)]
    for digests in ([text.rjust(64, "0") for text in texts], [text.ljust(64, "0") for text in texts]):
        assert len(keys("\n".join(f"sha256:{digest}" for digest in digests))) == 300


def test_a_digest_that_differs_in_one_bit_is_another_key():
    """One that stands in the file as its digest, so that a key with that digest need not be known."""
    digest = hashlib.sha256(b"sk-one").digest()
    for bit in range(256):
        other = bytearray(digest)
        other[bit // 8] ^= 1 << bit % 8
        assert "sk-one" not in keys(f"sha256:{other.hex()}")
    assert "sk-one" not in keys("sha256:" + "0" * 64)
