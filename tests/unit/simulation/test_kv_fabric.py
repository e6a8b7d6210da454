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


def test_blocks_are_used_again_in_the_order_in_which_they_were_freed(fabric):
    fabric.hold("e", "a", [1, 2])  # free: 3 4
    fabric.pull("e", "a", [1, 2])  # free: 3 4 1 2
    assert fabric.hold("e", "b", [5, 6, 7]) == [3, 4, 1]
    assert fabric.pull("e", "a", [1, 2]) == [7, 2]  # the first was reused, the second not yet
    assert fabric.counters("e")["double_pull"] == 1


def test_too_few_free_blocks_hold_nothing(fabric):
    fabric.hold("e", "a", [1, 2, 3])
    assert fabric.hold("e", "b", [4, 5]) is None
    assert counts(fabric) == {"held": 1, "held_blocks": 3}
    assert fabric.hold("e", "b", [4]) == [4]


@pytest.mark.parametrize("advance", ["advance_clock", "advance"])
def test_a_lease_ends_and_wipes_the_blocks(fabric, advance):
    fabric.hold("e", "r", [7, 8])
    move = fabric.advance_clock if advance == "advance_clock" else lambda nanos: fabric.advance("e", nanos)
    move(29)
    assert counts(fabric) == {"held": 1, "held_blocks": 2}
    move(1)
    assert counts(fabric) == {"stranded": 1}
    assert fabric.pull("e", "r", [1, 2]) == [0, 0]
    assert counts(fabric) == {"stranded": 1, "late_pull": 1}


def test_a_released_request_is_free_and_keeps_its_contents_for_now(fabric):
    fabric.hold("e", "r", [7])
    fabric.release("e", "r")
    fabric.release("e", "r")
    fabric.release("e", "other")
    fabric.release("nobody", "r")
    assert counts(fabric) == {"released": 1}
    assert fabric.pull("e", "r", [1]) == [7]


def test_a_pull_under_another_id_reads_and_frees_nothing(fabric):
    fabric.hold("e", "r", [7])
    assert fabric.pull("e", "other", [1]) == [7]
    assert counts(fabric) == {"held": 1, "held_blocks": 1, "unknown_pull": 1}


def test_a_failed_pull_frees_nothing(fabric):
    fabric.hold("e", "r", [7])
    assert fabric.pull("e", "r", [1, 5]) == "bad blocks"
    assert fabric.pull("e", "r", [0]) == "bad blocks"
    assert counts(fabric) == {"held": 1, "held_blocks": 1}


def test_what_is_used_passes_through_free_blocks(fabric):
    fabric.hold("e", "r", [7, 8])
    fabric.pull("e", "r", [1, 2])
    fabric.use("e", [1, 2, 3])  # 3 4 1
    assert fabric.pull("e", "r", [1, 2]) == [3, 8]


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
