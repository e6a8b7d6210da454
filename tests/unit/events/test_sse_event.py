"""cpp/events/sse_event.h: what an event about a prefix says, and what it does to the table."""

import json

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

HASH = "542e8d8551bb38da2f00b1ff6716b42cfc811b892fafb8d353ba167bc6ce4784"
DIGEST = bytes.fromhex(HASH)


def read(data, kind="cache_created"):
    return testing.read_prefix_event(
        kind.encode(), data if isinstance(data, bytes) else json.dumps(data).encode()
    )


@pytest.mark.parametrize("kind", ["created", "evicted", "offloaded", "reloaded", "purged"])
def test_the_field_names_the_kind_and_the_member_does_where_it_is_absent(kind):
    data = {"prefix_hash": HASH, "token_count": 2048}
    assert read({**data, "event": "cache_other"}, f"cache_{kind}") == (kind, DIGEST, 2048)
    assert read({**data, "event": f"cache_{kind}"}, "") == (kind, DIGEST, 2048)


def test_what_may_be_absent():
    assert read({"prefix_hash": HASH.upper()}) == ("created", DIGEST, None)
    assert read({"prefix_hash": HASH, "token_count": None, "more": [1]}) == ("created", DIGEST, None)
    assert read({}, "cache_purged") == ("purged", None, None)
    assert read({"prefix_hash": None}, "cache_purged") == ("purged", None, None)


@pytest.mark.parametrize("count", [0, 1, 2**32 - 1, 5.0])
def test_a_count_is_a_whole_number(count):
    assert read({"prefix_hash": HASH, "token_count": count})[2] == count


@for_each_row(
    ("kind", "data", "problem"),
    [
        ("cache_moved", {"prefix_hash": HASH}, "is of no known kind"),
        ("", {"prefix_hash": HASH}, "is of no known kind"),
        ("", {"prefix_hash": HASH, "event": 1}, "is of no known kind"),
        ("cache_created", b"", "is no JSON object"),
        ("cache_created", b"{", "is no JSON object"),
        ("cache_created", b"[1]", "is no JSON object"),
        ("cache_created", b"[" * 100_000, "is no JSON object"),
        ("cache_created", {}, "has no prefix_hash"),
        ("cache_created", {"prefix_hash": 1}, "has a prefix_hash that is not 64 hexadecimal digits"),
        ("cache_created", {"prefix_hash": HASH[:16]}, "has a prefix_hash that is not 64 hexadecimal digits"),
        ("cache_purged", {"prefix_hash": "x" * 64}, "has a prefix_hash that is not 64 hexadecimal digits"),
        *(
            (
                "cache_created",
                {"prefix_hash": HASH, "token_count": count},
                "has a token_count that is no whole",
            )
            for count in (-1, 1.5, 2**32, "7", [], True)
        ),
    ],
)
def test_an_event_that_cannot_be_used_has_a_problem(kind, data, problem):
    assert read(data, kind).startswith(problem)


@pytest.mark.parametrize(
    ("offloading", "after"),
    [
        ("off", ["gpu", "", "gpu", "", "gpu", ""]),
        ("offloads", ["gpu", "storage", "gpu", "", "gpu", ""]),
        ("evictions", ["gpu", "storage", "gpu", "storage", "gpu", ""]),
    ],
)
@pytest.mark.parametrize("purge", [{"prefix_hash": HASH}, {}])
def test_what_events_leave_in_the_table(offloading, after, purge):
    kinds = ["created", "offloaded", "reloaded", "evicted", "created"]
    steps = [(f"cache_{kind}", json.dumps({"prefix_hash": HASH})) for kind in kinds]
    steps.append(("cache_purged", json.dumps(purge)))
    assert testing.prefix_held_after(offloading, steps, DIGEST) == after
