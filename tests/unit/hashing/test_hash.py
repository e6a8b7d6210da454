"""cpp/hashing/hash.h against published vectors and its slow twin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models import hashing as slow
from tests.rows import for_each_row
from vllm_router import _core_testing as testing

FURC, XXH3 = testing.HashFunction.furc, testing.HashFunction.xxh3

# string, furc, H: docs/reference/policies.md, the tables of consistent_hash.
VECTORS = [
    ("", 6173600, "c0663e029346e424"),
    ("a", 7695180, "29d1ab12ec5fea11"),
    ("hello", 4189030, "cf31517d75d7ac16"),
    ("header:x-session-id:abc", 1770962, "543d9eea8d6f5317"),
    ("http://w1:8000:0", 2343105, "33f2d09e5831d9e2"),
    ("http://w1:8000:159", 389731, "47f6163f2919e23c"),
    ("http://127.0.0.1:8000@0:0", 3535715, "f94c3c22c5465489"),
    ("header:x-session-id:conversation-12345", 427258, "70213e269ee10eb2"),
    ("header:x-request-id:req-789", 5735937, "4f8e98b2f70e0524"),
    ("header:x-correlation-id:corr-001", 7095979, "75ca81747ea5991e"),
    ("session:conversation-12345", 3492762, "392628d52028defd"),
    ("request:conversation-12345", 4535462, "1b29273bb9f9db89"),
    ("user:user-67890", 2841289, "0bf0e4e297f556d0"),
    ("header:x-user-id:user-456", 2244113, "671c72bf1a57461f"),
    ("header:x-tenant-id:tenant-xyz", 7054215, "417e59d50a0b64b6"),
    ("request_hash:45341b7a824b0d89", 1014237, "a761052e59e947b8"),
]


@for_each_row(("text", "place", "point"), VECTORS)
def test_furc_and_its_ring_point_are_the_reference_routers(text, place, point):
    assert testing.furc_hash(text) == place
    assert f"{testing.ring_hash(FURC, text):016x}" == point


def test_the_digest_of_a_body_is_its_ring_hash():
    body = '{"model":"llama-3","messages":[{"role":"user","content":"Hello!"}]}'
    assert len(body) == 67
    assert f"{testing.ring_hash(FURC, body):016x}" == "45341b7a824b0d89"


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"", "2d06800538d394c2"),  # the value that xxHash documents for no input
        (b"\x1esystem\x1fYou are helpful.\x1euser\x1fHello!", "b55ae666a363aa9e"),
        (b"".join(i.to_bytes(4, "little") for i in range(256)), "d12ba3ba3964c7ed"),
        (bytes(8) + b"".join(i.to_bytes(4, "little") for i in range(16)), "24becc5361303c06"),
    ],
)
def test_xxh3_is_pinned_by_golden_values(data, digest):
    assert f"{testing.xxh3(data):016x}" == digest
    assert testing.ring_hash(XXH3, data) == testing.xxh3(data)


# Every branch of XXH3 by length: 0, 1-3, 4-8, 9-16, 17-128, 129-240, and stripes and blocks beyond.
@for_each_row("size", [*range(260), 1023, 1024, 1025, 1088, 1089, 2048, 2049, 5000])
def test_xxh3_agrees_with_the_slow_twin_at_every_branch(size):
    data = bytes((7 * i * i + 3 * i) % 251 for i in range(size))
    assert testing.xxh3(data) == slow.xxh3(data)


@given(st.binary(max_size=100), st.integers(0, 2**23))
def test_furc_agrees_with_the_slow_twin_and_stays_below_m(data, m):
    place = testing.furc_hash(data, m)
    assert place == slow.furc_hash(data, m)
    assert 0 <= place < max(m, 1)


@given(st.binary(max_size=100))
def test_ring_hashes_agree_with_the_slow_twin(data):
    assert testing.ring_hash(FURC, data) == slow.ring_hash("furc", data)
    assert testing.ring_hash(XXH3, data) == slow.ring_hash("xxh3", data)


def test_nul_bytes_and_bytes_that_are_not_utf8_count():
    assert len({testing.ring_hash(FURC, data) for data in (b"", b"\0", b"\0\0", b"a\0b", b"a\xff")}) == 5


def test_one_more_place_moves_keys_only_to_it():
    keys = [f"key-{i}" for i in range(2000)]
    for m in (2, 7, 8, 100):
        moved = [key for key in keys if testing.furc_hash(key, m) != testing.furc_hash(key, m + 1)]
        assert all(testing.furc_hash(key, m + 1) == m for key in moved)
        assert len(moved) == pytest.approx(len(keys) / (m + 1), rel=0.5, abs=20)


def test_hash_functions_have_names():
    for function in (FURC, XXH3):
        assert testing.hash_function_by_name(testing.hash_function_name(function)) == function
    assert testing.hash_function_by_name("md5") is None
