"""cpp/index/prefix_table.h: which workers hold a prefix, and what makes room."""

import threading

import pytest

from vllm_router import _core_testing as testing

A, B, C = (bytes([first]) * 32 for first in (1, 2, 3))


@pytest.fixture
def table():
    table = testing.PrefixTable(100, 60.0)
    table.set_workers([1, 2, 3])
    return table


def test_a_sweep_removes_what_nobody_looks_up_in_slices(table):
    for number in range(10):
        table.put(bytes([number]) * 32, 1, 10, True, 0.0)
    table.put(C, 2, 10, True, 1.0)
    assert table.sweep(59.0, 100) == 0
    assert [table.sweep(60.0, 4) for _ in range(4)] == [4, 4, 1, 0]
    assert table.find(C, 60.0) == [(2, 10, True)]


def test_the_tenth_that_was_not_used_for_longest_makes_room(table):
    digests = [bytes([number]) * 32 for number in range(101)]
    for digest in digests[:100]:
        table.put(digest, 1, 10, True, 0.0)
    table.find(digests[0], 0.0)
    table.put(digests[100], 1, 10, True, 0.0)
    assert table.stats() == (90, 90, 1, 11)
    gone = [number for number, digest in enumerate(digests) if not table.peek(digest, 0.0)]
    assert gone == list(range(1, 12))


def test_a_prefix_has_64_workers_at_most_and_keeps_the_newest():
    table = testing.PrefixTable(1000, 60.0)
    table.set_workers(list(range(70)))
    for worker in range(66):
        table.put(A, worker, worker, True, worker / 10)
    assert len(table.find(A, 7.0)) == table.MAX_HOLDERS == 64
    assert table.stats()[3] == 2
    assert {worker for worker, *_ in table.find(A, 7.0)} == set(range(2, 66))


def test_a_large_table_makes_room_in_parts():
    table = testing.PrefixTable(20_000, 60.0)
    table.set_workers([1])
    table.put_many(0, 20_000, 1, 0.0)
    table.put_many(20_000, 1, 1, 0.0)
    assert table.stats()[1] == 20_001 - 1024
    table.put_many(20_001, 1, 1, 0.0)
    assert table.stats()[1] == 18_000
    table.put_many(20_002, 1, 1, 0.0)
    assert table.stats()[1] == 18_001


def test_a_million_prefixes_stay_within_the_limit():
    table = testing.PrefixTable(1000, 60.0)
    table.set_workers([1])
    table.put_many(0, 1_000_000, 1, 0.0)
    prefixes, entries, _, evictions = table.stats()
    assert prefixes == entries <= 1000
    assert evictions == 1_000_000 - entries


def test_threads_that_write_read_and_clear_at_once_leave_right_counts():
    table = testing.PrefixTable(2000, 60.0)
    table.set_workers([1, 2])

    def read():
        for _ in range(2000):
            table.find(A, 0.0)
            table.stats()
        table.remove_all_of(2)
        table.clear()

    threads = [
        threading.Thread(target=table.put_many, args=(0, 100_000, 1, 0.0)),
        threading.Thread(target=table.put_many, args=(50_000, 100_000, 2, 0.0)),
        threading.Thread(target=read),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table.set_workers([])
    assert table.stats()[:2] == (0, 0)


def test_a_flood_of_one_worker_evicts_its_own_entries_alone(table):
    def digest(number):
        return number.to_bytes(4, "little") * 8

    for number in range(30):
        assert table.put(digest(number), 1, 10, True, 0.0)  # the oldest of all
    for number in range(100, 1100):
        assert table.put(digest(number), 2, 10, True, 0.0)
    assert all(table.peek(digest(number), 0.0) for number in range(30))
    assert table.stats()[1] <= 100
    assert table.put(digest(2000), 3, 10, True, 0.0)
    assert table.peek(digest(2000), 0.0)
