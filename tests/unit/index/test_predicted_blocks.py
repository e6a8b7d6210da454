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

    # Chains of one tree: a block's hash names all blocks before it.
    chains = st.lists(st.integers(0, 1), max_size=5).map(
        lambda bits: [1 + int("1" + "".join(map(str, bits[: i + 1])), 2) for i in range(len(bits))]
    )

    @rule(worker=st.integers(0, 2), chain=chains)
    def add(self, worker, chain):
        self.real.add(worker, chain)
        self.young.setdefault(worker, set()).update(chain)

    @rule(worker=st.integers(0, 2))
    def remove(self, worker):
        self.real.remove(worker)
        self.young.pop(worker, None)
        self.old.pop(worker, None)

    @rule()
    def rotate(self):
        self.real.rotate()
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
