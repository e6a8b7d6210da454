"""cpp/index/block_index.h: every case that once went wrong, or looks as if it could.

Chains are written as token lists with blocks of one token; the random histories are in tests/property.
"""

import numpy as np
import pytest

from vllm_router import _core_testing as testing
from vllm_router import hash_blocks

MAX_RUN = testing.MAX_RUN_BLOCKS
GPU, HOST, EXTERNAL = 0, 1, 2


def chain(tokens):
    return hash_blocks(np.array(tokens, dtype=np.uint32), 1)


class Index:
    """A BlockIndex with some owners; remembers refs by block."""

    def __init__(self, owners=1, **options):
        self.core = testing.BlockIndex(**options)
        self.refs = {}
        for _ in range(owners):
            self.core.add_owner()

    def store(self, owner, tokens, skip=0, tier=GPU):
        """Stores the blocks of `tokens` from number `skip` on, behind block `skip - 1`."""
        blocks = chain(tokens)
        parent = self.refs[int(blocks[skip - 1])] if skip else 0
        status, refs = self.core.insert(owner, tier, parent, blocks[skip:])
        self.refs.update(zip(blocks[skip : skip + len(refs)].tolist(), refs.tolist(), strict=True))
        return status

    def refs_of(self, tokens, numbers):
        blocks = chain(tokens)
        return np.array([self.refs[int(blocks[i])] for i in numbers], dtype=np.uint64)

    def remove(self, owner, tokens, numbers, tier=GPU):
        self.core.remove(owner, tier, self.refs_of(tokens, numbers))

    def match(self, tokens):
        """Depth on the GPU, by owner."""
        assert self.core.check() == ""
        return {owner: depths[GPU] for owner, depths in self.core.match(chain(tokens)).items()}

    def depths(self, tokens, owner=0):
        return self.core.match(chain(tokens)).get(owner)

    def stats(self, *names):
        stats = self.core.stats()
        return tuple(stats[name] for name in names)

    def is_empty(self):
        while self.core.sweep(1000):
            pass
        assert self.core.check() == ""
        return self.stats("runs", "blocks", "pairs", "irregular", "block_bytes") == (0, 0, 0, 0, 0)


# ---- Empty and tiny


def test_a_hundred_thousand_roots_of_one_block(rng):
    index = testing.BlockIndex()
    owner = index.add_owner()
    roots = np.array([rng.getrandbits(64) for _ in range(100_000)], dtype=np.uint64)
    refs = [index.insert(owner, GPU, 0, roots[i : i + 1])[1] for i in range(len(roots))]
    for i in rng.sample(range(len(roots)), 200):
        assert index.match(roots[i : i + 1]) == {owner: (1, 1, 1)}
    assert index.stats()["runs"] == len(roots)
    # Every run one block long is the worst that can be: what does it cost?
    assert index.stats()["bytes_per_pair"] < 250
    index.remove(owner, GPU, np.concatenate(refs))
    assert index.stats()["runs"] == index.stats()["blocks"] == 0
    assert index.check() == ""


def test_a_block_hash_of_zero_is_a_hash_like_others():
    index = testing.BlockIndex()
    owner = index.add_owner()
    for blocks in ([0], [0, 5], [7, 0, 8]):
        blocks = np.array(blocks, dtype=np.uint64)
        status, refs = index.insert(owner, GPU, 0, blocks)
        assert status == "inserted"
        assert index.match(blocks)[owner][GPU] == len(blocks)
        index.remove(owner, GPU, refs)
        assert index.match(blocks) == {}
    assert index.stats()["runs"] == 0


# ---- Storing


def test_the_drawing_of_the_header():
    index = Index(3)
    index.store(1, [*b"abcdefgh"])
    index.store(2, [*b"abcde"])
    index.store(2, [*b"abcxy"])
    assert index.stats("runs", "blocks", "pairs") == (2, 10, 15)
    assert index.match([*b"abcxz"]) == {1: 3, 2: 4}
    assert index.match([*b"abcdefgh"]) == {1: 8, 2: 5}
    assert index.match([*b"ab"]) == {1: 2, 2: 2}
    assert index.match([*b"xab"]) == {}


@pytest.mark.parametrize("length", [MAX_RUN - 1, MAX_RUN, MAX_RUN + 1, 3 * MAX_RUN + 5])
def test_a_chain_longer_than_the_longest_run_goes_on_in_another(length):
    index = Index(2)
    tokens = np.arange(length)
    index.store(0, tokens)
    index.store(1, tokens[: length // 2])
    assert index.match(tokens) == {0: length, 1: length // 2}
    assert index.stats("blocks", "runs") == (length, -(-length // MAX_RUN))
    # growing block by block over the edge
    grown = np.arange(length + 3)
    for end in range(length, length + 3):
        assert index.store(0, grown[: end + 1], skip=end) == "inserted"
    assert index.match(grown) == {0: length + 3, 1: length // 2}
    index.remove(0, grown, range(length + 3))
    index.remove(1, grown, range(length // 2))
    assert index.is_empty()


def test_a_growing_sequence_stays_one_run():
    index = Index()
    tokens = np.arange(2000)
    for end in range(2000):
        index.store(0, tokens[: end + 1], skip=end)
    assert index.stats("runs", "blocks", "irregular") == (1, 2000, 0)
    assert index.match(tokens) == {0: 2000}


def test_a_tail_that_comes_back_stays_in_its_run_and_at_its_place():
    index = Index()
    tokens = list(range(40))
    index.store(0, tokens)
    refs = dict(index.refs)
    index.remove(0, tokens, range(39, 9, -1))
    index.store(0, tokens)
    assert index.refs == refs
    assert index.stats("runs") == (1,)
    # another tail does not get those places
    index.remove(0, tokens, range(39, 9, -1))
    index.store(0, [*tokens[:10], 99, 98])
    assert index.core.hash_at(int(index.refs_of([*tokens[:10], 99], [10])[0])) == int(
        chain([*tokens[:10], 99])[10]
    )
    assert index.core.hash_at(refs[int(chain(tokens)[10])]) is None
    assert index.match([*tokens[:10], 99, 98]) == {0: 12}


# ---- Removing


def test_removing_what_is_not_held_is_counted_and_ignored():
    index = Index(2)
    index.store(0, [1, 2, 3])
    index.remove(1, [1, 2, 3], [0, 1, 2])
    assert index.stats("not_held", "stale_refs", "pairs") == (3, 0, 3)
    index.remove(0, [1, 2, 3], [2, 2])  # twice in one event: by the second time nobody holds it
    assert index.stats("not_held", "stale_refs", "pairs") == (3, 1, 2)
    index.core.remove(0, GPU, np.array([0, 1, 2**60 - 1, 2**64 - 1], dtype=np.uint64))
    assert index.stats("stale_refs", "pairs") == (5, 2)
    index.remove(0, [1, 2, 3], [0], tier=HOST)
    assert index.stats("not_held") == (4,)
    assert index.match([1, 2, 3]) == {0: 2}


def test_neighbours_in_either_direction_are_one_change():
    # Seen from outside by what never came to be: gaps.
    index = Index()
    tokens = list(range(100))
    index.store(0, tokens)
    index.remove(0, tokens, [*range(50, 100), *range(49, 10, -1)])
    assert index.match(tokens) == {0: 11}
    assert index.stats("irregular") == (0,)
    index.store(0, tokens)
    index.core.remove_span(0, GPU, int(index.refs_of(tokens, [30])[0]), 500)  # reaches behind the end
    assert index.match(tokens) == {0: 30}
    assert index.stats("stale_refs") == (430,)


def test_every_second_block_of_4096_by_16_owners_then_healed_from_the_middle():
    index = Index(16)
    tokens = np.arange(4096)
    blocks = chain(tokens)
    for owner in range(16):
        index.store(owner, tokens)
    for owner in range(16):
        index.remove(owner, tokens, range(1, 4096, 2))
    assert index.match(tokens) == dict.fromkeys(range(16), 1)
    assert index.stats("pairs", "irregular") == (16 * 2048, 16)
    assert index.stats("irregular_bytes")[0] < 16 * 4096 * 8
    refs = index.refs_of(tokens, range(4096))
    for owner in range(16):
        for number in sorted(range(1, 4096, 2), key=lambda n: abs(n - 2048)):
            index.core.insert(owner, GPU, int(refs[number - 1]), blocks[number : number + 1])
    assert index.match(tokens) == dict.fromkeys(range(16), 4096)
    assert index.stats("pairs", "irregular", "irregular_bytes") == (16 * 4096, 0, 0)


# ---- Shape


def test_a_prefix_held_by_1024_owners_with_all_cuts_equal_all_different_and_moving(rng):
    index = Index(1024)
    tokens = np.arange(1100)
    for owner in range(1024):
        index.store(owner, tokens[:1024])
    assert index.match(tokens) == dict.fromkeys(range(1024), 1024)
    for owner in range(1024):  # all different
        index.remove(owner, tokens, range(1023, owner, -1))
    assert index.match(tokens) == {owner: owner + 1 for owner in range(1024)}
    assert index.match(tokens[:500]) == {owner: min(owner + 1, 500) for owner in range(1024)}
    for owner in rng.sample(range(1024), 600):  # and some equal again
        index.store(owner, tokens[:700])
    found = index.match(tokens)
    assert all(found[owner] in (owner + 1, max(owner + 1, 700)) for owner in range(1024))
    for owner in range(1024):
        index.core.remove_owner(owner)
    assert index.match(tokens) == {}
    assert index.is_empty()


def test_a_hundred_thousand_children_of_one_block():
    index = Index()
    index.store(0, [5])
    parent = int(index.refs_of([5], [0])[0])
    children = (np.arange(1, 100_001, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
    for i in range(len(children)):
        index.core.insert(0, GPU, parent, children[i : i + 1])
    for i in range(0, len(children), 997):
        asked = np.array([int(chain([5])[0]), int(children[i])], dtype=np.uint64)
        assert index.core.match(asked) == {0: (2, 2, 2)}
    assert index.stats("blocks") == (100_001,)


def test_a_child_at_every_offset_of_a_run():
    index = Index(2)
    trunk = list(range(200))
    index.store(0, trunk)
    for offset in range(200):
        index.store(1, [*trunk[: offset + 1], 1000 + offset])
    for offset in range(200):
        assert index.match([*trunk[: offset + 1], 1000 + offset]) == {0: offset + 1, 1: offset + 2}
    # The first child found the trunk's last block in owner 0's hands only, the last one in its own.
    assert index.stats("blocks") == (400,)
    assert index.match(trunk) == {0: 200, 1: 200}


def test_coming_and_going_with_a_constant_live_set_takes_no_more_memory(rng):
    index = testing.BlockIndex()
    owner = index.add_owner()
    live, bytes_ = [], []
    for step in range(60_000):
        blocks = np.array([rng.getrandbits(64) for _ in range(rng.choice([1, 5, 20]))], dtype=np.uint64)
        live.append(index.insert(owner, GPU, 0, blocks)[1])
        if len(live) > 500:
            index.remove(owner, GPU, live.pop(rng.randrange(len(live))))
        if step % 5000 == 4999:
            bytes_.append(index.stats()["bytes"])
    assert max(bytes_[1:]) < 1.5 * min(bytes_[1:])
    assert index.check() == ""


def test_a_run_number_is_not_used_again_when_its_generations_are_used_up():
    # One run made and freed 65,540 times; the very first ref must not name the newest block.
    index = testing.BlockIndex()
    owner = index.add_owner()
    first = index.insert(owner, GPU, 0, np.array([7], dtype=np.uint64))[1]
    index.remove(owner, GPU, first)
    for step in range(65_540):
        _, refs = index.insert(owner, GPU, 0, np.array([100 + step], dtype=np.uint64))
        assert refs[0] != first[0]
        index.remove(owner, GPU, refs)
    assert index.hash_at(int(first[0])) is None


# ---- Owners


def test_events_of_a_removed_owner_are_ignored():
    index = Index(2)
    index.store(0, list(range(20)))
    index.core.remove_owner(0)
    assert index.store(0, [1, 2]) == "unknown_owner"
    assert index.store(7, [1, 2]) == "unknown_owner"
    index.core.remove(0, GPU, index.refs_of(list(range(20)), [3, 4]))
    assert index.match(list(range(20))) == {}
    assert index.is_empty()


def test_an_id_is_used_again_only_when_nothing_of_its_former_owner_is_left(rng):
    index = Index(3)
    tokens = [[rng.randrange(3) for _ in range(12)] for _ in range(200)]
    for each in tokens:
        index.store(0, each)
        index.store(1, each[:7])
    index.core.remove_owner(0)
    assert index.core.sweep(3)  # half swept
    assert index.core.add_owner() == 3
    while index.core.sweep(3):
        assert all(0 not in index.match(each) for each in tokens[::50])
    assert index.core.add_owner() == 0
    assert all(index.match(each) == {1: 7} or len(each) < 7 for each in tokens)
    index.store(0, tokens[0])
    assert index.match(tokens[0])[0] == 12


def test_a_removed_owner_is_swept_by_what_others_store():
    index = Index(2)
    for i in range(100):
        index.store(0, [i, 1])
    index.core.remove_owner(0)
    for i in range(20):
        index.store(1, [i, 1])
    assert index.stats("pairs") == (40,)
    assert not index.core.sweep(1000)


def test_owners_removed_during_a_sweep_wait_for_the_next():
    index = Index(3)
    for i in range(50):
        index.store(0, [i])
        index.store(1, [i])
        index.store(2, [i, i])
    index.core.remove_owner(0)
    assert index.core.sweep(10)
    index.core.remove_owner(1)
    while index.core.sweep(10):
        pass
    assert index.match([1, 1]) == {2: 2}
    assert index.stats("pairs") == (100,)


def test_more_workers_than_there_are_places_are_refused_in_a_sentence():
    index = Index(4096)
    index.store(4095, [1])
    assert index.match([1]) == {4095: 1}
    with pytest.raises(Exception, match="all 4096 places for workers are taken"):
        index.core.add_owner()
    index.core.remove_owner(17)
    while index.core.sweep(10):
        pass
    assert index.core.add_owner() == 17


# ---- Tiers


def test_two_copies_stored_and_one_removed_leaves_the_other():
    index = Index()
    index.store(0, [1, 2, 3])
    index.store(0, [1, 2, 3], tier=HOST)
    index.remove(0, [1, 2, 3], [2, 1, 0])
    assert index.depths([1, 2, 3]) == (0, 3, 3)
    index.remove(0, [1, 2, 3], [0, 1, 2], tier=HOST)
    assert index.is_empty()


def test_tiers_go_on_over_runs():
    #   run [1 2 3] on GPU and host, run [8 9] hangs off 3, of owner 1, on the host
    index = Index(2)
    index.store(0, [1, 2, 3, 4])
    index.store(1, [1, 2])
    index.store(1, [1, 2, 3], skip=2, tier=HOST)
    index.store(1, [1, 2, 3, 8, 9], skip=3)
    assert index.depths([1, 2, 3, 8, 9], 1) == (2, 5, 5)
    assert index.depths([1, 2, 3, 8, 9], 0) == (3, 3, 3)
    index.store(1, [1, 2, 3])
    assert index.depths([1, 2, 3, 8, 9], 1) == (5, 5, 5)


# ---- Bounds


def test_beyond_max_blocks_new_blocks_are_refused_and_known_ones_are_not():
    index = Index(2, max_blocks=10)
    assert index.store(0, list(range(8))) == "inserted"
    assert index.store(0, [*range(8), 100, 101, 102, 103]) == "full"
    assert index.match([*range(8), 100, 101, 102]) == {0: 10}
    assert index.stats("blocks", "refused_blocks") == (10, 2)
    assert index.store(1, list(range(8))) == "inserted"
    assert index.store(1, [5]) == "full"
    index.remove(0, [*range(8), 100], [8])
    assert index.stats("blocks") == (10,)  # block 101 is behind it
    index.remove(0, [*range(8), 100, 101], [9])
    assert index.store(1, [5]) == "inserted"
    assert index.match([5]) == {1: 1}


def test_memory_is_given_back_when_the_tail_of_a_long_run_goes():
    index = Index()
    tokens = np.arange(10_000)
    index.store(0, tokens)
    full = index.stats("block_bytes")[0]
    index.remove(0, tokens, range(9_999, 9, -1))
    assert index.stats("block_bytes")[0] < full / 100
    assert index.match(tokens) == {0: 10}
    index.store(0, tokens)
    assert index.match(tokens) == {0: 10_000}
    assert index.core.check() == ""


def test_memory_is_given_back_when_most_holders_of_a_run_go():
    index = Index(1000)
    for owner in range(1000):
        index.store(owner, [1, 2, 3])
    full = index.stats("run_bytes")[0]
    for owner in range(995):
        index.remove(owner, [1, 2, 3], [2, 1, 0])
    assert full - index.stats("run_bytes")[0] > 5000
    assert index.match([1, 2, 3]) == dict.fromkeys(range(995, 1000), 3)


def test_the_bytes_reported_are_those_of_their_parts():
    index = Index(2)
    for i in range(300):
        index.store(i % 2, [i, *range(30)])
    parts = index.stats("directory_bytes", "run_bytes", "block_bytes", "irregular_bytes", "backlog_bytes")
    bytes_, per_pair, pairs = index.stats("bytes", "bytes_per_pair", "pairs")
    assert sum(parts) == bytes_
    assert per_pair == bytes_ / pairs
    assert index.stats("block_bytes")[0] >= 8 * 300 * 31


# ---- Which one


def test_the_best_is_the_deepest_under_those_that_may_be_chosen():
    index = Index(4)
    index.store(0, [1, 2, 3, 4])
    index.store(1, [1, 2, 3])
    index.store(2, [1, 2, 3])
    assert index.core.best(chain([1, 2, 3, 4, 5])) == (0, 4)
    assert index.core.best(chain([1, 2, 3, 4, 5]), [1, 2, 3]) == (1, 3)
    assert index.core.best(chain([1, 2, 3, 4, 5]), [3]) is None
    assert index.core.best(chain([9])) is None
