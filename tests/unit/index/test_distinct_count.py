"""cpp/index/distinct_count.h: how far off it may be."""

import random
import threading

import pytest

from vllm_router import _core_testing as testing


@pytest.mark.parametrize("count", [0, 1, 2, 10, 247, 3_000, 20_000, 60_000, 400_000])
def test_the_estimate_is_within_three_per_cent(count):
    sketch = testing.DistinctCount()
    dice = random.Random(count)
    hashes = [dice.getrandbits(64) for _ in range(count)]
    for _ in range(2):  # the second time nothing is new
        sketch.add(hashes)
    # Four standard errors of 0.8 %, less where few registers are touched.
    assert abs(sketch.estimate() - count) <= max(1, 0.033 * count)


def test_the_extreme_hashes_count_as_two():
    sketch = testing.DistinctCount()
    sketch.add([0, 2**64 - 1] * 3)
    assert sketch.estimate() == 2


def test_threads_that_add_at_once_lose_nothing():
    together, alone = testing.DistinctCount(), testing.DistinctCount()
    dice = random.Random(7)
    hashes = [[dice.getrandbits(64) for _ in range(5_000)] for _ in range(4)]
    threads = [threading.Thread(target=together.add, args=(part,)) for part in hashes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for part in hashes:
        alone.add(part)
    assert together.estimate() == alone.estimate()
