"""cpp/picker/endpoint_subset.h: endpoints as texts, and subsets as metadata has them."""

import pytest
from google.protobuf.struct_pb2 import Struct
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

KEY = "x-gateway-destination-endpoint-subset"


def subset(hint, *endpoints):
    """The size of the subset, and which endpoints are in it."""
    struct = Struct()
    struct.update({KEY: hint})
    return testing.endpoint_subset(struct.SerializeToString(), KEY, list(endpoints))


@for_each_row(
    ("text", "name"),
    [
        ("10.0.0.1:8000", ("10.0.0.1", 8000)),
        ("10.0.0.1", ("10.0.0.1", None)),
        (" \t10.0.0.1:1 ", ("10.0.0.1", 1)),
        ("[fd00::1]:65535", ("fd00::1", 65535)),
        ("[fd00::1]", ("fd00::1", None)),
        ("fd00::1", ("fd00::1", None)),
        ("::1", ("::1", None)),
        ("pod-0.pods:8000", ("pod-0.pods", 8000)),
        ("", None),
        (" ", None),
        (":8000", None),
        ("[]:8000", None),
        ("[fd00::1", None),
        ("[fd00::1]8000", None),
        ("10.0.0.1:", None),
        ("10.0.0.1:0", None),
        ("10.0.0.1:65536", None),
        ("10.0.0.1:+1", None),
        ("10.0.0.1:1x", None),
    ],
)
def test_an_endpoint_is_an_address_and_perhaps_a_port(text, name):
    assert testing.parse_endpoint_name(text) == name


@for_each_row(("host", "text"), [("10.0.0.1", "10.0.0.1:80"), ("fd00::1", "[fd00::1]:80"), ("pod", "pod:80")])
def test_an_endpoint_is_written_as_it_is_read(host, text):
    assert testing.endpoint_text(host, 80) == text
    assert testing.parse_endpoint_name(text) == (host, 80)


@pytest.mark.parametrize(
    "hint",
    [
        ["10.0.0.1:8000", "10.0.0.2"],
        "10.0.0.1:8000,10.0.0.2",
        "10.0.0.2 , 10.0.0.1:8000",
        ["10.0.0.1:8000,10.0.0.2"],
        ["10.0.0.2", 7.0, None, "10.0.0.1:8000"],
    ],
    ids=["list", "text", "blanks", "a comma in a list", "other values"],
)
def test_a_subset_is_a_list_or_a_text_with_commas(hint):
    endpoints = [
        ("10.0.0.1", 8000),
        ("10.0.0.1", 8001),
        ("10.0.0.2", 1),
        ("10.0.0.20", 1),
        ("10.0.0.3", 8000),
    ]
    assert subset(hint, *endpoints) == (2, [True, False, True, False, False])


@pytest.mark.parametrize("hint", ["", [], [""], "nonsense:", ",,", [1.0]])
def test_a_subset_without_an_endpoint_is_a_subset(hint):
    assert subset(hint, ("10.0.0.1", 8000)) == (0, [False])


@pytest.mark.parametrize(
    "hint", [None, 8000.0, True, {"a": "10.0.0.1"}], ids=["null", "number", "bool", "struct"]
)
def test_what_is_neither_list_nor_text_is_no_subset(hint):
    assert subset(hint, ("10.0.0.1", 8000)) is None


def test_without_the_key_there_is_no_subset():
    assert testing.endpoint_subset(b"", KEY, []) is None


def test_letters_may_be_of_either_case():
    assert subset("[FD00::A]:1,Pod:2", ("fd00::a", 1), ("pod", 2)) == (2, [True, True])


def test_a_subset_has_at_most_16384_endpoints():
    assert subset(",".join(["a"] * 16_384))[0] == 16_384
    assert subset(",".join(["a"] * 16_385)).startswith(
        "RESOURCE_EXHAUSTED: the subset of a request names more than 16384 endpoints"
    )


HOSTS = st.sampled_from(["a", "b", "ab", "10.0.0.1", "10.0.0.10", "fd00::1"])


@given(
    st.lists(st.tuples(HOSTS, st.none() | st.integers(1, 5)), max_size=8),
    st.lists(st.tuples(HOSTS, st.integers(1, 5)), max_size=8),
)
def test_a_subset_is_what_a_search_of_all_finds(members, endpoints):
    hint = [host if port is None else testing.endpoint_text(host, port) for host, port in members]
    wanted = [(host, port) in members or (host, None) in members for host, port in endpoints]
    assert subset(hint, *endpoints) == (len(members), wanted)
