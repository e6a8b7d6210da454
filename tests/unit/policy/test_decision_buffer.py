"""cpp/policy/decision_buffer.h: decisions wait in order, and what does not fit is dropped and counted."""

import threading

from vllm_router import _core_testing as testing


def test_decisions_are_taken_in_order_and_once():
    buffer = testing.DecisionBuffer()
    assert buffer.add(3, 12_000, [1, 2, 3])
    assert buffer.add(5, 800, [1])
    assert buffer.take() == [(3, 12_000, [1, 2, 3]), (5, 800, [1])]
    assert buffer.take() == []


def test_a_full_buffer_drops_and_counts_until_it_is_taken():
    buffer = testing.DecisionBuffer()
    half = list(range(1, (1 << 19) + 1))
    assert buffer.add(1, 1, half)
    assert buffer.add(1, 1, half)
    assert not buffer.add(1, 1, [1])
    assert buffer.dropped == 1
    assert len(buffer.take()) == 2
    assert buffer.add(1, 1, [1])


def test_threads_that_add_at_once_lose_nothing():
    buffer = testing.DecisionBuffer()
    threads = [
        threading.Thread(target=lambda worker=worker: [buffer.add(worker, n, [n]) for n in range(1000)])
        for worker in range(4)
    ]
    for thread in threads:
        thread.start()
    taken = []
    while any(thread.is_alive() for thread in threads):
        taken += buffer.take()
    for thread in threads:
        thread.join()
    taken += buffer.take()
    for worker in range(4):
        assert [tokens for of, tokens, _ in taken if of == worker] == list(range(1000))
