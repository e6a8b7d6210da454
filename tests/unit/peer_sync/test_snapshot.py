"""cpp/peer_sync/snapshot.h: what a router that starts knows of the caches of its fleet. Its twin:
tests/models/coarse_index.py."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.block_cache_tracker import BlockCacheTracker
from tests.models.coarse_index import CoarseIndex, strides_of
from vllm_router import _core_testing as testing
from vllm_router import hash_blocks

A, B, C = "http://a:8000", "http://b:8000", "http://c:8000"
HEAD = 40
STRIDE = 4


def prompt(first, blocks=8):
    return hash_blocks([first] * blocks, 1).tolist()


class Router(testing.PeerRouter):
    def __init__(self, number, **options):
        super().__init__(number, **options)
        self.asked = 0

    def choose(self, blocks):
        self.asked += 1
        return super().choose(blocks)

    def look(self, blocks):
        """What a prompt would find; a request that was not sent leaves nothing."""
        found = self.choose(blocks)
        self.end(self.asked - 1, "not_sent")
        return found


def router(number, workers=(A, B), **options):
    made = Router(number, **options)
    made.declare([worker if isinstance(worker, tuple) else (worker, "") for worker in workers])
    return made


def test_what_one_router_knows_another_knows_after_it():
    one, other = router(1), router(2)
    prompts = [prompt(first, 3 + first) for first in range(20)]
    sent = [one.choose(blocks)[0] for blocks in prompts]
    assert other.read_snapshot(one.write_snapshot(1234)) == 1234
    strides = [len(blocks) // STRIDE * STRIDE for blocks in prompts]
    found = [other.look(blocks) for blocks in prompts]
    for place, (url, matched) in enumerate(found):
        assert matched == strides[place]
        if strides[place]:
            assert url == sent[place]


def test_it_may_be_read_twice_and_by_the_one_that_wrote_it():
    one, other = router(1), router(2)
    url, _ = one.choose(prompt(1))
    data = one.write_snapshot()
    for reader in (other, other, one):
        reader.read_snapshot(data)
    assert other.choose(prompt(1)) == (url, 8)
    assert one.choose(prompt(1)) == (url, 8)


def test_what_the_reader_knew_it_still_knows():
    one, other = router(1), router(2)
    mine, _ = other.choose(prompt(1))
    theirs, _ = one.choose(prompt(2))
    other.read_snapshot(one.write_snapshot())
    assert [other.look(prompt(1)), other.look(prompt(2))] == [(mine, 8), (theirs, 8)]


@given(st.lists(st.integers(0, 9), max_size=30), st.lists(st.integers(0, 9), max_size=20), st.integers(1, 8))
def test_the_order_of_use_outlives_it(before, after, strides):
    """Under a capacity of a few strides, what follows evicts the same as if one router had seen it all."""
    capacity = strides * STRIDE
    seen, own = CoarseIndex(STRIDE, capacity), BlockCacheTracker(capacity)
    seen.add(A)
    own.used[A], own.lasting[A] = {}, set()
    one, other = (router(number, [A], max_blocks=capacity) for number in (1, 2))
    for first in before:
        one.choose(prompt(first, STRIDE))
        seen.record(A, strides_of(prompt(first, STRIDE), STRIDE))
    other.read_snapshot(one.write_snapshot())
    for first in after:
        blocks = prompt(first, STRIDE)
        expected = seen.refine(blocks, own.match(blocks)).get(A, 0)
        assert other.choose(blocks) == (A, expected)
        seen.record(A, strides_of(blocks, STRIDE))
        own.record(A, blocks)


def test_workers_that_are_unknown_here_are_left_out():
    one, other = router(1, [A, B, C]), router(2, [C, A])
    sent = {}
    for first in range(30):
        sent[first] = one.choose(prompt(first))[0]
    assert set(sent.values()) == {A, B, C}
    other.read_snapshot(one.write_snapshot())
    found = [other.look(prompt(first)) for first in sent]
    for (url, matched), holder in zip(found, sent.values(), strict=True):
        assert (url, matched) == (holder, 8) if holder != B else matched == 0


def test_an_engine_that_started_anew_is_another_worker_to_those_who_know():
    one = router(1, [(A, "pod-1")])
    one.choose(prompt(1))
    data = one.write_snapshot()
    for incarnation, matched in (("pod-1", 8), ("pod-2", 0), ("", 8)):
        other = router(2, [(A, incarnation)])
        other.read_snapshot(data)
        assert other.choose(prompt(1)) == (A, matched), incarnation


def test_with_a_secret_only_those_who_have_it_read_it():
    one = router(1, key="secret")
    url, _ = one.choose(prompt(1))
    data = one.write_snapshot()
    assert b"http" not in data
    assert struct.pack("<Q", prompt(1)[3]) not in data
    same, none, wrong = router(2, key="secret"), router(3), router(4, key="wrong")
    same.read_snapshot(data)
    assert same.choose(prompt(1)) == (url, 8)
    for other in (none, wrong):
        with pytest.raises(PermissionError, match="secret"):
            other.read_snapshot(data)
        assert other.choose(prompt(1))[1] == 0


def test_a_snapshot_is_not_sealed_twice_with_one_number():
    one = router(1, key="secret")
    first, second = one.write_snapshot(), one.write_snapshot()
    assert first[24:32] != second[24:32]
    assert first[HEAD:] != second[HEAD:]


@pytest.mark.parametrize(
    "options", [{"stride_tokens": 8}, {"block_size": 2}, {"block_size": 2, "stride_tokens": 8}]
)
def test_a_router_with_other_strides_does_not_read_it(options):
    one, other = router(1), router(2, **options)
    one.choose(prompt(1))
    with pytest.raises(ValueError, match="another block size, stride or hash than this one's"):
        other.read_snapshot(one.write_snapshot())


def test_without_an_index_there_is_none():
    one = router(1, policy="least_load")
    assert one.write_snapshot() is None
    with pytest.raises(ValueError, match="the policy has no index of blocks"):
        one.read_snapshot(router(2).write_snapshot())


def taught():
    one = router(1)
    for first in range(4):
        one.choose(prompt(first))
    return one.write_snapshot(1)


def stays_as_it_was(other, data, errors=(ValueError,)):
    with pytest.raises(errors):
        other.read_snapshot(data)


@pytest.mark.parametrize("key", ["", "secret"])
def test_it_is_refused_cut_at_any_byte_and_changes_nothing(key):
    one, other = router(1, key=key), router(2, key=key)
    for first in range(4):
        one.choose(prompt(first))
    data = one.write_snapshot()
    for length in range(len(data)):
        stays_as_it_was(other, data[:length], (ValueError, PermissionError))
    stays_as_it_was(other, data + b"\0", (ValueError, PermissionError))
    assert [other.look(prompt(first))[1] for first in range(4)] == [0] * 4


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_each_changed_byte_of_a_sealed_one_is_refused(mask):
    one, other = router(1, key="secret"), router(2, key="secret")
    one.choose(prompt(1))
    data = one.write_snapshot()
    for place in range(len(data)):
        changed = data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :]
        stays_as_it_was(other, changed, (ValueError, PermissionError))
    assert other.choose(prompt(1))[1] == 0


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_changed_bytes_of_an_open_one_harm_nothing(mask):
    data, other = taught(), router(2)
    refused = []
    for place in range(len(data)):
        changed = data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :]
        try:
            other.read_snapshot(changed)
        except (ValueError, PermissionError) as error:
            refused.append(str(error))
    assert all(refused)
    assert len(refused) > HEAD - 28  # all of the head but what it is named by
    other.read_snapshot(data)
    assert other.choose(prompt(1))[1] == 8


@pytest.mark.parametrize("count", [2**63, 2**64 - 1, 2**32, 4097, 1 << 20])
def test_hostile_counts_take_no_memory(count):
    data = taught()
    other = router(2)
    begins = data[:HEAD] + struct.pack("<Q", count)
    for changed in (begins + data[HEAD + 8 :], begins + bytes(1 << 21)):
        with pytest.raises(ValueError, match=r"\w+ \w+"):
            other.read_snapshot(changed)
    refused = 0
    for place in range(HEAD + 8, len(data) - 8):
        try:
            other.read_snapshot(data[:place] + struct.pack("<Q", count) + data[place + 8 :])
        except ValueError:
            refused += 1
    assert refused > 0


def test_it_begins_like_one():
    with pytest.raises(ValueError, match="begins like no snapshot"):
        router(1).read_snapshot(b"VRP1" + taught()[4:])
