"""Both prefix trees against tests/models/prefix_tree.py, in all six orders of eviction."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.models.prefix_tree import ORDERS
from tests.models.prefix_tree import PrefixTree as SlowTree
from vllm_router import _core_testing as testing

WORKERS = st.integers(0, 2)
# Characters of one to four bytes, some that begin alike, and bytes that are no UTF-8.
BYTES = [
    b"a",
    b"b",
    "é".encode(),
    "è".encode(),
    "€".encode(),
    "🙂".encode(),
    b"\x80",
    b"\xc3",
    b"\xff",
    b"\0",
]
TEXTS = {
    "string": st.lists(st.sampled_from(BYTES), max_size=8).map(b"".join),
    "token": st.lists(st.integers(0, 1), max_size=13).map(tuple),
}


class Trees(RuleBasedStateMachine):
    """One history told to both."""

    kind = "string"

    @initialize(order=st.sampled_from(sorted(ORDERS)), max_size=st.sampled_from([12, 40, 1 << 20]))
    def begin(self, order, max_size):
        unit, self.page = (1, 1) if self.kind == "string" else (4, 2)
        self.unit = unit
        max_size *= unit
        self.slow = SlowTree(order, max_size, self.page, unit)
        make = testing.StringTree if self.kind == "string" else testing.TokenTree
        self.fast = make(
            max_size=max_size, eviction=getattr(testing.EvictionOrder, order), page_size=self.page
        )
        self.ids = [self.fast.add_worker() for _ in range(3)]
        self.matches = testing.PrefixMatches()
        self.claims = []

    def text(self, drawn):
        return drawn if self.kind == "string" else list(drawn)

    def compare(self, text):
        self.fast.match(self.text(text), self.matches)
        expected = {self.ids[worker]: depth for worker, depth in self.slow.match(text).items()}
        entries = self.matches.entries()
        assert dict(entries) == expected
        assert len(entries) == len(expected)
        assert [depth for _, depth in entries] == sorted(expected.values(), reverse=True)
        assert self.matches.best == max(expected.values(), default=0)
        assert self.matches.total == len(text)
        assert self.matches.ends() == self.slow.ends(text)
        for depth in range(0, self.matches.best + 1, self.page):
            assert self.matches.starts_at(depth) == self.slow.starts_at(text, depth)

    @rule(
        data=st.data(),
        worker=WORKERS,
        is_start=st.booleans(),
        priority=st.integers(-1, 1),
        walk=st.booleans(),
    )
    def insert(self, data, worker, is_start, priority, walk):
        text = data.draw(TEXTS[self.kind])
        walked = None
        if walk:
            walked = testing.PrefixMatches()
            self.fast.match(self.text(text), walked)
        self.fast.insert(
            self.text(text), self.ids[worker], is_start=is_start, priority=priority, walked=walked
        )
        self.slow.insert(text, worker, is_start=is_start, priority=priority)
        self.compare(text)

    @rule(data=st.data(), worker=WORKERS, between=st.data())
    def insert_after_others(self, data, worker, between):
        """What was walked may have been split, given up, made anew."""
        text, walked = data.draw(TEXTS[self.kind]), testing.PrefixMatches()
        self.fast.match(self.text(text), walked)
        for other in between.draw(st.lists(st.tuples(TEXTS[self.kind], WORKERS), max_size=4)):
            self.fast.insert(self.text(other[0]), self.ids[other[1]])
            self.slow.insert(*other)
        self.fast.insert(self.text(text), self.ids[worker], walked=walked)
        self.slow.insert(text, worker)

    @rule(data=st.data(), worker=WORKERS)
    def insert_open(self, data, worker):
        text = data.draw(TEXTS[self.kind])
        claim = self.fast.insert(self.text(text), self.ids[worker], is_open=True)
        self.slow.insert(text, worker, claim=(len(self.claims), claim))
        self.claims.append((len(self.claims), claim))
        self.compare(text)

    @rule(which=st.integers(0, 1000), end=st.sampled_from(["confirm", "withdraw"]))
    def end_claim(self, which, end):
        if self.claims:
            claim = self.claims[which % len(self.claims)]  # one that has ended already changes nothing
            getattr(self.fast, end)(claim[1])
            getattr(self.slow, end)(claim)

    @rule()
    def reload(self):
        """mending row 47: from here on the history goes on with what was loaded; open claims are for good."""
        self.fast = self.fast.reloaded()
        for claim in self.claims:
            self.slow.confirm(claim)
        self.claims = []

    @rule(data=st.data())
    def match(self, data):
        self.compare(data.draw(TEXTS[self.kind]))

    @rule(worker=WORKERS, keep=st.integers(0, 12))
    def evict_worker(self, worker, keep):
        keep *= self.unit
        assert self.fast.evict_worker(self.ids[worker], keep) == self.slow.evict_worker(worker, keep)

    @rule(worker=WORKERS)
    def replace_worker(self, worker):
        self.fast.remove_worker(self.ids[worker])
        while self.fast.trim(1):
            pass
        self.slow.remove_worker(worker)
        self.ids[worker] = self.fast.add_worker()

    @rule(keep=st.integers(0, 20))
    def trim(self, keep):
        keep *= self.unit
        while self.fast.trim(2, keep):
            pass
        while self.slow.size() > keep:
            self.slow.evict_one()

    @invariant()
    def counts_agree(self):
        if not hasattr(self, "fast"):
            return
        stats = self.fast.stats()
        assert stats["size"] == self.slow.size() <= self.slow.max_size
        assert stats["nodes"] == len(self.slow.nodes)
        assert stats["owners"] == self.slow.pairs()
        assert stats["starts"] == self.slow.starts
        for worker, number in enumerate(self.ids):
            assert self.fast.size(number) == self.slow.size_of(worker)

    def teardown(self):
        if not hasattr(self, "fast"):
            return
        for number in self.ids:
            self.fast.remove_worker(number)
        while self.fast.trim(3):
            pass
        stats = self.fast.stats()
        assert [stats[name] for name in ("workers", "nodes", "owners", "size", "removing")] == [0] * 5


class TokenTrees(Trees):
    kind = "token"


TestStringTree = Trees.TestCase
TestTokenTree = TokenTrees.TestCase
TestStringTree.settings = TestTokenTree.settings = settings(
    max_examples=settings.default.max_examples * 3 // 2, stateful_step_count=30
)


@pytest.mark.parametrize("order", sorted(ORDERS))
@given(history=st.lists(st.tuples(TEXTS["string"], WORKERS, st.integers(-1, 1)), min_size=5, max_size=40))
def test_what_is_given_up_goes_in_order(order, history):
    """Every insert of a long history at a tight limit, so that each order is exercised each time."""
    slow = SlowTree(order, max_size=10)
    fast = testing.StringTree(max_size=10, eviction=getattr(testing.EvictionOrder, order))
    ids = [fast.add_worker() for _ in range(3)]
    matches = testing.PrefixMatches()
    for text, worker, priority in history:
        fast.insert(text, ids[worker], priority=priority)
        slow.insert(text, worker, priority=priority)
        assert fast.stats()["evicted"] == slow.evicted
    for text, _, _ in history:
        fast.match(text, matches)
        assert dict(matches.entries()) == {ids[worker]: depth for worker, depth in slow.match(text).items()}


@pytest.mark.parametrize("kind", ["string", "token"])
@given(data=st.data(), random=st.randoms(use_true_random=False))
def test_what_is_left_is_what_the_others_put_there(kind, data, random):
    """mending row 38: whatever order requests end in, failed ones leave and take nothing."""
    requests = data.draw(st.lists(st.tuples(TEXTS[kind], st.booleans()), max_size=12))
    make = testing.StringTree if kind == "string" else testing.TokenTree
    tree, others = make(page_size=2), make(page_size=2)
    worker = tree.add_worker()
    assert others.add_worker() == worker

    def text(drawn):
        return drawn if kind == "string" else list(drawn)

    claims = [(tree.insert(text(drawn), worker, is_open=True), failed) for drawn, failed in requests]
    random.shuffle(claims)
    for claim, failed in claims:
        (tree.withdraw if failed else tree.confirm)(claim)
    for drawn, failed in requests:
        if not failed:
            others.insert(text(drawn), worker)
    mine, theirs = testing.PrefixMatches(), testing.PrefixMatches()
    for drawn, _ in requests:
        tree.match(text(drawn), mine)
        others.match(text(drawn), theirs)
        assert mine.entries() == theirs.entries()
    assert tree.size(worker) == others.size(worker)
