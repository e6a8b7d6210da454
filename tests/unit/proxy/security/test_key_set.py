"""Keys in a file: which of them are there, and what a mistake is called."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

KEY = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=40).filter(
    lambda key: not key.startswith(("#", "sha256:"))
)


def keys(text):
    return testing.KeySet(text if isinstance(text, bytes) else text.encode(), "keys.txt")


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


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "keys.txt has no key"),
        ("\n# nobody\n", "keys.txt has no key"),
        ("a\nb c\n", "keys.txt, line 2: the key has a blank or a character that is not printable ASCII"),
        ("a\n\nb\x00", "line 3: the key has a blank or"),
        ("schl\xfcssel", "line 1: the key has a blank or"),
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
