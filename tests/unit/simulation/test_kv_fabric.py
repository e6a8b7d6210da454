"""cpp/simulation/kv_fabric.h: what a pull reads, and when blocks are free again."""

import threading

import pytest

from vllm_router import _core_testing as testing


@pytest.fixture
def fabric():
    made = testing.KvFabric()
    made.attach("e", blocks=4, lease=30)
    return made


def counts(fabric, engine="e"):
    return {name: count for name, count in fabric.counters(engine).items() if count}


def test_a_pull_reads_what_was_held_and_frees_it(fabric):
    assert fabric.hold("e", "r", [7, 8]) == [1, 2]
    assert counts(fabric) == {"held": 1, "held_blocks": 2}
    assert fabric.pull("e", "r", [1, 2]) == [7, 8]
    assert counts(fabric) == {"pulled": 1}


def test_a_failed_pull_frees_nothing(fabric):
    fabric.hold("e", "r", [7])
    assert fabric.pull("e", "r", [1, 5]) == "bad blocks"
    assert fabric.pull("e", "r", [0]) == "bad blocks"
    assert counts(fabric) == {"held": 1, "held_blocks": 1}


def test_a_dead_engine_has_no_blocks_and_keeps_its_counts(fabric):
    fabric.hold("e", "a", [7])
    fabric.hold("e", "b", [8])
    fabric.pull("e", "a", [1])
    fabric.detach("e")
    assert not fabric.attached("e")
    assert fabric.pull("e", "b", [2]) == "dead"
    assert fabric.pull("nobody", "b", [2]) == "dead"
    assert counts(fabric) == {"pulled": 1}
    fabric.forget("e")
    assert counts(fabric) == {}


def test_an_engine_is_found_where_it_listens_and_ports_differ(fabric):
    first = fabric.attach("f")
    second = fabric.attach("g")
    assert first != second
    assert fabric.attach("h", port=first) == 0
    assert fabric.attach("i", host="other", port=first) == first
    assert fabric.engine_at("h", first) == "f"
    fabric.detach("f")
    assert fabric.engine_at("h", first) is None
    assert fabric.attach("k", port=first) == first


def test_threads_share_it():
    fabric = testing.KvFabric()
    fabric.attach("e", blocks=1000)

    def work(thread):
        for number in range(200):
            name = f"{thread}-{number}"
            blocks = fabric.hold("e", name, [thread + 1] * 3)
            assert fabric.pull("e", name, blocks) == [thread + 1] * 3

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts(fabric) == {"pulled": 800}
