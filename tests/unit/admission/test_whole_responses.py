"""cpp/admission/whole_responses.h: when a prompt of a response in one piece counts as computed."""

from vllm_router import _core_testing as testing


def test_an_estimate_is_a_fixed_part_and_one_for_each_token():
    assert testing.prefill_ns(0) == 200_000_000
    assert testing.prefill_ns(3000) == 1_200_000_000


def test_slots_are_of_one_worker_each():
    pool = testing.ClassPool(2)
    for worker in range(2):
        pool.set_load(worker, requests=1, waiting=1)
    pool.add_whole(1, 10, 1)
    assert pool.closed("batch") == [0]
    pool.add_whole(1, 10, -1)
    pool.add_whole(1, 10, -1)  # of a worker whose number had the slot before: never more than what waits
    assert pool.closed("batch") == [0, 1]
