"""cpp/index/block_index.h against its slow twin, over random histories."""

import random

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.models.block_index import BlockIndex as SlowIndex
from vllm_router import _core_testing as testing
from vllm_router import hash_blocks

# Prompts over two tokens, mostly the first: they share much and diverge everywhere.
PROMPTS = st.lists(st.sampled_from([0, 0, 0, 1]), max_size=24)
TIERS = st.sampled_from([0, 0, 0, 1, 2])


def chain(prompt):
    return hash_blocks(np.array(prompt, dtype=np.uint32), 1)


class Machine(RuleBasedStateMachine):
    """Owners are few, so that they meet in every run; `refs` remembers every ref that was ever given out."""

    def __init__(self):
        super().__init__()
        self.index, self.slow = testing.BlockIndex(), SlowIndex()
        self.refs: dict[int, set[int]] = {}  # block -> refs, newest in `newest`
        self.newest: dict[int, int] = {}
        self.owners: list[int] = []
        self.removed: list[int] = []

    @initialize(owners=st.integers(1, 4))
    def begin(self, owners):
        for _ in range(owners):
            self.add_owner()

    @rule()
    def add_owner(self):
        if len(self.owners) < 6:
            self.owners.append(self.index.add_owner())
            self.slow.add_owner(self.owners[-1])

    def pick(self, number):
        return self.owners[number % len(self.owners)]

    def store(self, owner, tier, parent, blocks):
        status, refs = self.index.insert(owner, tier, parent, blocks)
        if status != "inserted":
            return status
        assert len(refs) == len(blocks)
        for block, ref in zip(blocks.tolist(), refs.tolist(), strict=True):
            if self.slow.is_held(block):
                assert self.newest[block] == ref, "a block that is held keeps its place"
            self.refs.setdefault(block, set()).add(ref)
            self.newest[block] = ref
        self.slow.insert(owner, tier, blocks.tolist())
        return status

    @rule(number=st.integers(0, 5), tier=TIERS, prompt=PROMPTS)
    def store_from_the_root(self, number, tier, prompt):
        if self.owners:
            assert self.store(self.pick(number), tier, 0, chain(prompt)) == "inserted"

    @rule(number=st.integers(0, 5), tier=TIERS, prompt=PROMPTS, cut=st.integers(0, 24))
    def store_behind_any_parent(self, number, tier, prompt, cut):
        # Also one that this owner does not hold, that nobody holds, or that died.
        blocks = chain(prompt)
        cut = min(cut, len(prompt))
        parent = int(blocks[cut - 1]) if cut else 0
        if not self.owners or (cut and parent not in self.newest):
            return
        known = cut == 0 or self.slow.is_held(parent)
        status = self.store(self.pick(number), tier, self.newest[parent] if cut else 0, blocks[cut:])
        assert status == "inserted" or (status == "unknown_parent" and not known)

    @rule(
        number=st.integers(0, 5),
        tier=TIERS,
        prompt=PROMPTS,
        begin=st.integers(0, 24),
        size=st.integers(0, 24),
        order=st.sampled_from(["head first", "tail first", "shuffled", "twice"]),
        shuffle=st.randoms(use_true_random=False),
    )
    def remove(self, number, tier, prompt, begin, size, order, shuffle):
        if not self.owners:
            return
        owner = self.pick(number)
        blocks = [b for b in chain(prompt)[begin : begin + size].tolist() if b in self.newest]
        if order == "tail first":
            blocks.reverse()
        elif order == "shuffled":
            shuffle.shuffle(blocks)
        elif order == "twice":
            blocks = blocks * 2
        self.index.remove(owner, tier, np.array([self.newest[b] for b in blocks], dtype=np.uint64))
        self.slow.remove(owner, tier, blocks)

    @rule(number=st.integers(0, 5), block=st.integers(0, 200), pick=st.integers(0, 5))
    def remove_by_an_old_ref(self, number, block, pick):
        # A ref names one block for ever, however old it is.
        if not self.owners or not self.refs:
            return
        known = sorted(self.refs)[block % len(self.refs)]
        ref = sorted(self.refs[known])[pick % len(self.refs[known])]
        owner = self.pick(number)
        was_newest = ref == self.newest[known]
        before = 0 in self.slow.held[owner].get(known, set())
        self.index.remove(owner, 0, np.array([ref], dtype=np.uint64))
        if was_newest:
            self.slow.remove(owner, 0, [known])
        elif before:
            pass  # the block lives at another place now, which the old ref does not reach

    @rule(number=st.integers(0, 5))
    def remove_owner(self, number):
        if self.owners:
            owner = self.pick(number)
            self.owners.remove(owner)
            self.removed.append(owner)
            self.index.remove_owner(owner)
            self.slow.remove_owner(owner)

    @rule(runs=st.integers(0, 5))
    def sweep(self, runs):
        self.index.sweep(runs)

    @rule(prompt=PROMPTS)
    def match(self, prompt):
        blocks = chain(prompt)
        expected = self.slow.match(blocks.tolist())
        assert self.index.match(blocks) == expected
        best = self.index.best(blocks)
        assert (best[1] if best else 0) == max((depth[-1] for depth in expected.values()), default=0)
        for owner in self.owners:
            alone = self.index.best(blocks, [owner])
            assert (alone[1] if alone else 0) == expected.get(owner, (0, 0, 0))[-1]

    @invariant()
    def counts_agree_and_nothing_is_broken(self):
        assert self.index.check() == ""
        for owner in self.owners:
            assert self.index.block_count(owner) == len(self.slow.held[owner])
        for owner in self.removed:
            assert owner in self.owners or self.index.block_count(owner) == 0

    @invariant()
    def a_ref_names_one_block_for_ever(self):
        for block, refs in self.refs.items():
            for ref in refs:
                assert self.index.hash_at(ref) in (None, block)
            if self.slow.is_held(block):
                assert self.index.hash_at(self.newest[block]) == block

    def teardown(self):
        while self.index.sweep(100):
            pass
        stats = self.index.stats()
        assert stats["pairs"] == self.slow.pairs()
        assert stats["pairs_on"] == self.slow.pairs_on()
        for owner in self.owners:
            for tier in range(3):
                refs = [self.newest[b] for b, tiers in self.slow.held[owner].items() if tier in tiers]
                self.index.remove(owner, tier, np.array(refs, dtype=np.uint64))
        stats = self.index.stats()
        empty = ("runs", "blocks", "pairs", "irregular", "block_bytes", "irregular_bytes")
        assert {name: stats[name] for name in empty} == dict.fromkeys(empty, 0)
        assert self.index.check() == ""


Machine.TestCase.settings = settings(
    max_examples=settings.default.max_examples * 3 // 5, stateful_step_count=60
)
test_random_histories_agree_with_the_slow_twin = Machine.TestCase


@pytest.mark.parametrize("owners", [3, 10, 70, 300])
def test_any_number_of_owners_agrees_with_the_slow_twin(owners, seed):
    # From one cache line of holders to several kilobytes: 3, 10, 70 and 300 cross every size.
    rng = random.Random(seed + owners)
    index, slow = testing.BlockIndex(), SlowIndex()
    newest = {}
    for _ in range(owners):
        slow.add_owner(index.add_owner())
    prompts = [[rng.choice([0, 0, 0, 0, 1]) for _ in range(rng.randrange(1, 40))] for _ in range(40)]
    chains = [chain(prompt) for prompt in prompts]
    for step in range(1500):
        owner, blocks = rng.randrange(owners), rng.choice(chains)
        if rng.random() < 0.6:
            status, refs = index.insert(owner, 0, 0, blocks)
            assert status == "inserted"
            newest.update(zip(blocks.tolist(), refs.tolist(), strict=True))
            slow.insert(owner, 0, blocks.tolist())
        else:
            begin = rng.randrange(len(blocks))
            gone = [b for b in blocks[begin : begin + rng.choice([1, 3, 40])].tolist() if b in newest]
            if rng.random() < 0.5:
                gone.reverse()
            index.remove(owner, 0, np.array([newest[b] for b in gone], dtype=np.uint64))
            slow.remove(owner, 0, gone)
        if step % 10 == 0:
            asked = rng.choice(chains)
            assert index.match(asked) == slow.match(asked.tolist())
    assert index.check() == ""


def test_hashes_of_twelve_bits_may_answer_wrong_but_nothing_breaks(rng):
    # Collisions everywhere: blocks of different chains share names, and one chain has a name twice.
    index = testing.BlockIndex()
    owners = [index.add_owner() for _ in range(4)]
    given = []
    for _ in range(3000):
        blocks = np.array([rng.randrange(4096) for _ in range(rng.randrange(1, 30))], dtype=np.uint64)
        owner, tier = rng.choice(owners), rng.choice([0, 0, 1])
        if given and rng.random() < 0.4:
            index.remove(owner, tier, np.array(rng.sample(given, min(20, len(given))), dtype=np.uint64))
        else:
            parent = rng.choice(given) if given and rng.random() < 0.5 else 0
            given = (given + index.insert(owner, tier, parent, blocks)[1].tolist())[-500:]
        for depths in index.match(blocks).values():
            assert 0 <= depths[0] <= depths[1] <= depths[2] <= len(blocks)
