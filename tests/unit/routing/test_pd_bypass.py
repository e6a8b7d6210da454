"""cpp/routing/pd_bypass.h: which requests need no prefill worker."""

import pytest

from vllm_router import _core_testing as testing


def choose(*workers, uncached=256, queued=4096):
    """`workers`: (tokens to compute, queued tokens) or (…, open requests)."""
    rows = [(1.0, worker[2] if len(worker) > 2 else 0, worker[1], 0, worker[0]) for worker in workers]
    chosen = testing.choose_bypass(rows, uncached, queued)
    return None if chosen is None else chosen[0]


@pytest.mark.parametrize(
    ("worker", "expected"),
    [
        ((196, 0), 0),  # of 4,096 tokens it has 3,900
        ((2048, 0), None),
        ((196, 4000), None),  # its running requests would wait for 4,196
        ((196, 3900), 0),
        ((196, 3901), None),
        ((256, 0), 0),
        ((257, 0), None),
    ],
)
def test_the_examples_of_the_header(worker, expected):
    assert choose(worker) == expected
