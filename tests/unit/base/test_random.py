"""cpp/base/random.h against its twin and against published numbers."""

from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from tests.models.random import Random as SlowDice
from vllm_router import _core_testing as testing

SEEDS = st.integers(0, 2**64 - 1)


def test_the_stream_is_splitmix64():
    # Vigna's reference splitmix64.c from seed 1234567.
    dice = testing.Random(1234567)
    assert [dice.next() for _ in range(5)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_below_is_pinned_by_golden_values():
    dice = testing.Random(42)
    slow = SlowDice(42)
    throws = [dice.below(6) for _ in range(12)]
    assert throws == [slow.below(6) for _ in range(12)]
    assert throws == [4, 0, 1, 2, 0, 5, 1, 4, 2, 3, 1, 2]


@given(SEEDS, st.integers(1, 64))
def test_next_agrees_with_the_slow_twin(seed, throws):
    dice, slow = testing.Random(seed), SlowDice(seed)
    assert [dice.next() for _ in range(throws)] == [slow.next() for _ in range(throws)]


@given(SEEDS, st.integers(1, 2**64 - 1))
def test_below_agrees_with_the_slow_twin_and_stays_below(seed, bound):
    dice, slow = testing.Random(seed), SlowDice(seed)
    throws = [dice.below(bound) for _ in range(8)]
    assert throws == [slow.below(bound) for _ in range(8)]
    assert max(throws) < bound


@given(SEEDS)
def test_below_takes_exactly_one_draw(seed):
    dice, slow = testing.Random(seed), SlowDice(seed)
    dice.below(3)
    slow.next()
    assert dice.next() == slow.next()


def test_threads_that_throw_at_once_share_one_stream_without_loss(seed):
    dice, slow = testing.Random(seed), SlowDice(seed)
    with ThreadPoolExecutor(4) as pool:
        parts = pool.map(lambda _: [dice.next() for _ in range(500)], range(4))
        thrown = sorted(number for part in parts for number in part)
    assert thrown == sorted(slow.next() for _ in range(2000))


def test_entropy_seeds_differ():
    assert len({testing.entropy_seed() for _ in range(8)}) == 8
