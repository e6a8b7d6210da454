"""Predicted blocks: they count for half a life to a whole one, of workers whose events tell all else."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from vllm_router import _core_testing as core

CHAIN = [11, 12, 13, 14]


@pytest.fixture
def predictions():
    made = core.Predictions(3)
    for worker in range(3):
        made.set_trust(worker, "exact")
    return made


def test_a_prediction_counts_until_the_second_rotation(predictions):
    predictions.add(1, CHAIN)
    assert predictions.match(CHAIN) == {1: 4}
    assert predictions.match([*CHAIN[:2], 99]) == {1: 2}
    predictions.rotate()
    assert predictions.match(CHAIN) == {1: 4}
    predictions.rotate()
    assert predictions.match(CHAIN) == {}


def test_the_deeper_of_both_halves_counts(predictions):
    predictions.add(0, CHAIN)
    predictions.rotate()
    predictions.add(0, CHAIN[:2])
    predictions.add(2, CHAIN[:3])
    assert predictions.match(CHAIN) == {0: 4, 2: 3}
    predictions.rotate()
    assert predictions.match(CHAIN) == {0: 2, 2: 3}


@pytest.mark.parametrize("trust", ["off", "waiting", "partial", "silent", "mismatch"])
def test_other_workers_have_what_was_learned_of_them(predictions, trust):
    predictions.add(1, CHAIN)
    predictions.set_trust(1, trust)
    assert predictions.match(CHAIN) == {}
    for complete in ("exact", "settled"):
        predictions.set_trust(1, complete)
        assert predictions.match(CHAIN) == {1: 4}


def test_a_prompt_that_waits_is_predicted_again_until_its_first_token(predictions):
    wait = predictions.add(1, CHAIN)
    other = predictions.add(2, CHAIN[:2])
    assert wait != 0 != other
    for now in range(5):
        predictions.rotate(now, 100)
        assert predictions.match(CHAIN) == {1: 4, 2: 2}
    predictions.end_wait(other)
    predictions.end_wait(0)
    predictions.rotate(5, 100)
    predictions.rotate(6, 100)
    assert predictions.match(CHAIN) == {1: 4}
    predictions.end_wait(wait)
    predictions.end_wait(wait)
    predictions.rotate(7, 100)
    predictions.rotate(8, 100)
    assert predictions.match(CHAIN) == {}


def test_a_prompt_that_waits_too_long_is_dropped(predictions):
    predictions.rotate(1000, 100)
    predictions.add(1, CHAIN)
    for now in (1050, 1099):
        predictions.rotate(now, 100)
        assert predictions.match(CHAIN) == {1: 4}
    predictions.rotate(1100, 100)
    assert predictions.match(CHAIN) == {}


def test_a_removed_worker_is_not_predicted_again(predictions):
    predictions.add(1, CHAIN)
    predictions.rotate(1, 100)
    predictions.remove(1)
    predictions.add(1, CHAIN[:1])
    for now in (2, 3, 4):
        predictions.rotate(now, 100)
        assert predictions.match(CHAIN) == {1: 1}


def test_more_waits_than_claims_are_predicted_as_before(predictions):
    """cpp/base/limits.h: kMaxClaims"""
    waits = [predictions.add(0, [number + 1]) for number in range(20_000)]
    assert waits.count(0) == 20_000 - 16_384
    predictions.rotate(1, 100)
    predictions.rotate(2, 100)
    matched = [predictions.match([number + 1]) for number in range(20_000)]
    assert matched.count({0: 1}) == 16_384
    for wait in waits:
        predictions.end_wait(wait)
    assert predictions.add(0, [7]) != 0


def test_a_removed_worker_has_none(predictions):
    predictions.add(0, CHAIN)
    predictions.rotate()
    predictions.add(0, CHAIN)
    predictions.add(1, CHAIN)
    predictions.remove(0)
    assert predictions.match(CHAIN) == {1: 4}
    predictions.add(0, CHAIN[:1])
    assert predictions.match(CHAIN) == {0: 1, 1: 4}


def test_an_empty_prompt_predicts_nothing(predictions):
    predictions.add(0, [])
    assert predictions.match([]) == {}


class Model(RuleBasedStateMachine):
    """Sets of chains per worker and half."""

    @initialize()
    def begin(self):
        self.real = core.Predictions(3)
        for worker in range(3):
            self.real.set_trust(worker, "exact")
        self.young = {}
        self.old = {}
        self.waits = {}  # worker, chain, when its half began, and which half
        self.now = 0

    # Chains of one tree: a block's hash names all blocks before it.
    chains = st.lists(st.integers(0, 1), max_size=5).map(
        lambda bits: [1 + int("1" + "".join(map(str, bits[: i + 1])), 2) for i in range(len(bits))]
    )

    @rule(worker=st.integers(0, 2), chain=chains)
    def add(self, worker, chain):
        wait = self.real.add(worker, chain)
        assert (wait != 0) == bool(chain)
        self.young.setdefault(worker, set()).update(chain)
        if chain:
            self.waits[wait] = [worker, chain, self.now, "young"]

    @rule(data=st.data())
    def end_wait(self, data):
        if self.waits:
            wait = data.draw(st.sampled_from(sorted(self.waits)))
            self.real.end_wait(wait)
            del self.waits[wait]

    @rule(worker=st.integers(0, 2))
    def remove(self, worker):
        self.real.remove(worker)
        self.young.pop(worker, None)
        self.old.pop(worker, None)
        self.waits = {wait: each for wait, each in self.waits.items() if each[0] != worker}

    @rule(seconds=st.integers(0, 4), limit=st.integers(0, 8))
    def rotate(self, seconds, limit):
        self.now += seconds
        self.real.rotate(self.now, limit)
        for wait, (worker, chain, since, half) in list(self.waits.items()):
            if half == "young":
                self.waits[wait][3] = "old"
            elif self.now - since < limit:
                self.young.setdefault(worker, set()).update(chain)
            else:
                del self.waits[wait]
        self.young, self.old = {}, self.young

    @rule(chain=chains)
    def match(self, chain):
        expected = {}
        for half in (self.young, self.old):
            for worker, held in half.items():
                depth = next((i for i, block in enumerate(chain) if block not in held), len(chain))
                if depth:
                    expected[worker] = max(depth, expected.get(worker, 0))
        assert self.real.match(chain) == expected


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=30)
