"""cpp/admission/program_queue.h: who waits is told once, and asks for room no more often than is useful.

tests/stress/program_queue.cc has the threads, test_program_table.py the rules.
"""

from vllm_router import _core_testing as testing

ONE = [(0, 1000, 0, 0.0)]


def begin(queue, number, prompt, now_ms=0):
    return queue.begin(number, number, prompt=prompt, workers=ONE, now_ms=now_ms)


def test_who_waits_is_told_once_and_who_leaves_never():
    queue = testing.ProgramQueue()
    begin(queue, 1, 800)
    assert [begin(queue, number, 400) for number in (2, 3)] == ["waits", "waits"]
    assert queue.any_waiting
    assert queue.leave(2)
    assert not queue.leave(2)
    queue.end(1, (800, 0, 0), True, ONE, 0)
    assert queue.told() == [3]
    assert not queue.leave(3)
    assert not queue.force(3, ONE)
    assert queue.told() == []
    assert not queue.any_waiting


def test_a_pool_is_looked_at_ten_times_a_second_at_most():
    queue = testing.ProgramQueue()
    begin(queue, 1, 400)
    full = [(0, 1000, 900, 0.0)]  # of others
    assert queue.begin(2, 2, prompt=400, workers=full) == "waits"
    queue.pump(0, full, 1_000)
    queue.pump(0, ONE, 1_099)
    assert queue.told() == []
    queue.pump(0, ONE, 1_100)
    assert queue.told() == [2]
