"""cpp/admission/evictables.h: which request makes room for one of the highest class, and how often.

tests/property/test_evictables.py compares it with a slow twin.
"""

import pytest

from vllm_router import _core_testing as testing

BOTH = "class default evict=true\nclass batch evict=true"


@pytest.mark.parametrize(
    ("tokens", "pace", "ms", "left"),
    [
        (50_000, 10_000, 0, 50_000),
        (50_000, 10_000, 1500, 35_000),
        (50_000, 10_000, 60_000, 0),
        (50_000, 0, 1000, 20_000),  # an engine whose pace is not known is fast
        (50_000, 10_000, -5, 50_000),
    ],
)
def test_what_is_left_of_a_prompt(tokens, pace, ms, left):
    assert testing.tokens_left(tokens, pace, ms) == left


def test_it_has_more_than_8000_tokens_left():
    requests = testing.Evictables()
    requests.add(0, tokens=8000)
    assert requests.evict_at(0) is None
    long = requests.add(0, tokens=18_001)
    assert requests.evict_at(0, now_ms=1001) is None
    assert requests.evict_at(0, now_ms=1000) == long
    assert requests.size == 1


def test_one_of_the_lowest_class_that_was_evicted_the_fewest_times_and_has_the_most_left():
    requests = testing.Evictables()
    requests.add(1, tokens=999_999)  # at another worker
    of_default = requests.add(0, "default", tokens=90_000)
    once = requests.add(0, tokens=80_000, evictions=1)
    short, long, newest = (requests.add(0, tokens=tokens) for tokens in (20_000, 30_000, 30_000))
    order = [requests.evict_at(0, 1000 * turn, 0.001, BOTH) for turn in range(6)]
    assert order == [newest, long, short, once, of_default, None]


def test_nobody_is_evicted_a_third_time():
    requests = testing.Evictables()
    requests.add(0, evictions=2)
    assert requests.evict_at(0) is None


def test_a_worker_has_one_eviction_a_second():
    requests = testing.Evictables()
    for worker in (0, 0, 1):
        requests.add(worker, tokens=90_000)
    assert requests.evict_at(0, 5000) is not None
    assert requests.evict_at(0, 5999) is None
    assert requests.evict_at(1, 5999) is not None
    assert requests.evict_at(0, 6000, 0.001) is not None


def test_only_classes_that_the_settings_of_now_evict():
    requests = testing.Evictables()
    request = requests.add(0, "default")
    assert requests.evict_at(0) is None
    assert requests.evict_at(0, lines="class batch") is None
    assert requests.evict_at(0, lines=BOTH) == request


def test_one_that_was_removed_or_evicted_is_not_there():
    requests = testing.Evictables()
    first, second = requests.add(0), requests.add(0)
    requests.remove(0, second)
    assert requests.evict_at(0) == first
    requests.remove(0, first)
    requests.remove(7, first)
    assert requests.size == 0
    assert requests.evict_at(0, 9000) is None
