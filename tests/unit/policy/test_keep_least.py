"""cpp/policy/keep_least.h, by least_load: all of the minimum are found, wherever they stand."""

from tests.rows import for_each_row
from vllm_router import _core_testing as testing


@for_each_row("weights", [(1.0, 1.0), (1.0, 2.0)], ids=["equal", "unequal"])
@for_each_row("workers", [1, 7, 8, 9, 16, 21])
def test_every_equal_is_chosen_and_no_other(workers, weights):
    #   position   0 1 2 3 4 5 6 7 8 ...     minimum at each third, in whole lanes and behind them
    policy = testing.PolicyHarness("least_load")
    for i in range(workers):
        weight = weights[i % 2]
        policy.add(f"http://w{i}", weight)
        policy.set_load(f"http://w{i}", int((4 if i % 3 == 0 else 9) * weight), 0, 0)
    chosen = {policy.choose()[0] for _ in range(400)}
    assert chosen == set(range(0, workers, 3))
