"""cpp/admission/program_table.h: who is active, who waits, and who is paused.

tests/property/test_program_table.py compares it with a slow twin.
"""

from vllm_router import _core_testing as testing

# Of 900 tokens that programs may have.
ONE = [(0, 1000, 0, 0.0)]
TWO = [(0, 1000, 0, 0.0), (1, 1000, 0, 0.0)]


def begin(queue, number, program, prompt=400, workers=ONE, now_ms=0, **who):
    return queue.begin(number, program, prompt=prompt, workers=workers, now_ms=now_ms, **who)


def end(queue, number, prompt=400, output=0, cached=0, workers=ONE, now_ms=0, final=False):
    queue.end(number, (prompt, cached, output), final, workers, now_ms)


def test_programs_that_fit_are_active_and_the_next_waits_until_one_has_ended():
    queue = testing.ProgramQueue()
    assert [begin(queue, n, n) for n in (1, 2, 3)] == ["resumed", "resumed", "waits"]
    end(queue, 1)
    assert queue.told() == []  # between its turns it keeps its place
    assert begin(queue, 4, 1, prompt=450) == "active"
    assert queue.is_placed(4)
    end(queue, 4, prompt=450, final=True)
    assert queue.told() == [3]
    assert queue.read()["went"]["waited"] == 1


def test_the_program_that_began_last_is_paused_when_a_worker_is_full():
    queue = testing.ProgramQueue()
    for number in (1, 2):
        begin(queue, number, number)
    for number in (1, 2):
        end(queue, number)
    assert begin(queue, 3, 1, prompt=600) == "active"  # it has grown
    end(queue, 3, prompt=600)
    report = queue.read()
    assert report["workers"] == {0: (600, 1, 1)}
    assert (report["paused"], report["paused_by"]["full"]) == (1, 1)


def test_while_others_wait_a_hung_program_keeps_its_place_for_its_ttl_alone():
    queue = testing.ProgramQueue(line="on ttl_ms=1000")
    for number in (1, 2):
        begin(queue, number, number)
        end(queue, number, now_ms=100)
    assert begin(queue, 3, 3, now_ms=1_000) == "waits"
    queue.pump(0, ONE, 1_100)
    assert queue.told() == []
    queue.pump(0, ONE, 1_201)
    assert queue.told() == [3]
    assert queue.read()["paused_by"]["ttl"] == 2


def test_a_ttl_ends_only_where_another_has_no_room():
    queue = testing.ProgramQueue(line="on ttl_ms=1000")
    begin(queue, 1, 1)
    end(queue, 1)
    assert begin(queue, 2, 2, now_ms=10_000) == "resumed"
    assert begin(queue, 3, 1, now_ms=10_000) == "active"
    queue = testing.ProgramQueue(line="on ttl_ms=1000 max_active_per_tenant=1")
    begin(queue, 1, 1)
    end(queue, 1)
    assert begin(queue, 2, 2, now_ms=1_000) == "waits"
    queue.pump(0, ONE, 1_100)
    assert queue.told() == [2]


def test_nobody_passes_a_program_that_waits_longer():
    queue = testing.ProgramQueue()
    begin(queue, 1, 1, prompt=500)
    assert begin(queue, 2, 2, prompt=600) == "waits"
    assert begin(queue, 3, 3, prompt=100) == "waits"  # though there is room
    assert queue.leave(2)
    queue.pump(0, ONE, 0)
    assert queue.told() == [3]


def test_classes_and_tenants_decide_who_is_next():
    queue = testing.ProgramQueue()
    begin(queue, 1, 1, prompt=700, tenant=7)
    begin(queue, 6, 6, prompt=200, tenant=7)
    begin(queue, 2, 2, prompt=300, tenant=7)
    begin(queue, 3, 3, prompt=300, tenant=8)
    begin(queue, 4, 4, prompt=300, tenant=7, of_class=0)
    begin(queue, 5, 5, prompt=100, tenant=7)
    end(queue, 1, prompt=700, final=True)
    assert queue.told() == [4, 3]  # the highest class; then the tenant with the fewest tokens
    end(queue, 6, prompt=200, final=True)
    assert queue.told() == [2]


def test_one_that_waits_too_long_is_forced():
    queue = testing.ProgramQueue()
    begin(queue, 1, 1, prompt=800)
    assert begin(queue, 2, 2, prompt=800) == "waits"
    assert begin(queue, 3, 2, prompt=100) == "waits"  # of the same program
    assert queue.force(3, ONE)
    assert queue.told() == [2, 3]
    assert not queue.force(2, ONE)
    end(queue, 1, prompt=800)
    assert queue.read()["paused_by"]["full"] == 1


def test_a_worker_that_is_gone_keeps_no_program():
    queue = testing.ProgramQueue()
    begin(queue, 1, 1, workers=TWO)
    home = queue.worker_of(1)
    end(queue, 1, workers=TWO)
    left = [worker for worker in TWO if worker[0] != home]
    assert begin(queue, 2, 1, workers=left) == "resumed"
    assert queue.worker_of(2) == left[0][0]
    end(queue, 2, workers=left)
    queue.follow_fleet([], 0)
    assert queue.read()["workers"] == {}
    assert begin(queue, 3, 1, workers=[]) == "passed"


def test_those_that_wait_for_workers_that_are_all_gone_pass():
    queue = testing.ProgramQueue()
    begin(queue, 1, 1, prompt=800)
    assert begin(queue, 2, 2, prompt=800) == "waits"
    queue.pump(0, [], 0)
    assert queue.told() == [2]
    assert queue.worker_of(2) is None


def test_what_is_cached_at_the_first_turn_is_shared():
    queue = testing.ProgramQueue()
    begin(queue, 1, 1)
    end(queue, 1, prompt=400, cached=300, output=20)
    assert queue.read()["workers"] == {0: (120, 1, 1)}
    begin(queue, 2, 1, prompt=500)
    assert queue.read()["workers"] == {0: (200, 1, 0)}


def test_others_prompts_need_room_too():
    queue = testing.ProgramQueue()
    assert begin(queue, 1, 1) == "resumed"  # alone, whatever else is there
    assert begin(queue, 2, 2, prompt=300, workers=[(0, 1000, 700, 0.0)]) == "waits"  # 400 of them are its own
    queue.pump(0, [(0, 1000, 600, 0.0)], 0)
    assert queue.told() == [2]


def test_one_that_no_worker_could_have_passes_and_holds_up_nobody():
    queue = testing.ProgramQueue()
    begin(queue, 1, 1)
    assert begin(queue, 2, 2, prompt=901) == "passed"
    assert begin(queue, 3, 3, prompt=100) == "resumed"
    assert begin(queue, 4, 4, prompt=600) == "waits"
    assert begin(queue, 5, 4, prompt=400) == "passed"  # both together
    assert queue.told() == [4]
    assert not queue.any_waiting
    assert queue.size == 2
    queue = testing.ProgramQueue()
    large = [(0, 4000, 0, 0.0)]
    begin(queue, 1, 1, prompt=3000, workers=large)
    assert begin(queue, 2, 2, prompt=2000, workers=large) == "waits"
    queue.pump(0, ONE, 0)
    assert queue.told() == [2]
    assert queue.worker_of(2) is None


def test_of_turns_at_once_the_first_alone_has_to_go_where_its_program_is():
    queue = testing.ProgramQueue()
    begin(queue, 1, 1, prompt=100, workers=TWO)
    home = queue.worker_of(1)
    end(queue, 1, prompt=100, workers=TWO)
    assert [begin(queue, n, 1, prompt=100, workers=TWO) for n in (2, 3)] == ["active", "active"]
    assert (queue.is_placed(2), queue.is_placed(3)) == (True, False)
    queue.bind(3, 1 - home)
    for number in (3, 2):
        end(queue, number, prompt=100, workers=TWO)
    begin(queue, 4, 1, prompt=100, workers=TWO)
    assert queue.is_placed(4)
    assert queue.worker_of(4) == home


def test_a_cache_that_is_not_known_has_room_for_all():
    queue = testing.ProgramQueue()
    unknown = [(0, 0, 0, 0.0)]
    assert {begin(queue, n, n, prompt=10**9, workers=unknown) for n in range(5)} == {"resumed"}
    assert begin(testing.ProgramQueue(), 9, 9, prompt=10**9) == "resumed"  # one above the capacity runs alone


def test_observe_counts_and_lets_all_go():
    queue = testing.ProgramQueue(line="observe")
    assert [begin(queue, n, n) for n in (1, 2, 3)] == ["resumed"] * 3
    assert queue.read()["went"]["would_wait"] == 1


def test_with_the_mode_off_those_that_wait_go_on():
    queue = testing.ProgramQueue()
    begin(queue, 1, 1, prompt=800)
    begin(queue, 2, 2, prompt=800)
    queue.follow("off")
    assert queue.told() == [2]
    assert not queue.any_waiting
    assert begin(queue, 3, 3) == "passed"


def test_the_table_is_bounded_and_forgets():
    queue = testing.ProgramQueue(2, "on forget_ms=1000")
    for number in (1, 2, 3):
        begin(queue, number, number, prompt=100)
        if number < 3:
            end(queue, number, prompt=100, now_ms=number)
    assert queue.size == 2
    assert queue.read()["forgotten"] == 1
    assert begin(queue, 4, 2, prompt=100) == "active"  # the other one was acting longer
    assert begin(queue, 5, 5, prompt=100) == "passed"  # both have requests
    end(queue, 3, prompt=100)
    end(queue, 4, prompt=100)
    queue.follow_fleet(ONE, 1_000)
    assert queue.size == 0


def test_limits_of_tenants_and_workers():
    queue = testing.ProgramQueue(line="on max_active_per_tenant=1")
    assert begin(queue, 1, 1, prompt=10, tenant=7) == "resumed"
    assert begin(queue, 2, 2, prompt=10, tenant=7) == "waits"
    assert begin(queue, 3, 3, prompt=10, tenant=8) == "resumed"
    queue = testing.ProgramQueue(line="on max_active_per_worker=1")
    assert [begin(queue, n, n, prompt=10) for n in (1, 2)] == ["resumed", "waits"]


def test_a_final_turn_ends_its_program_when_the_others_have_ended():
    queue = testing.ProgramQueue()
    for number in (1, 2):
        begin(queue, number, 1, prompt=100)
    end(queue, 1, prompt=100, final=True)
    assert queue.size == 1
    end(queue, 2, prompt=100)
    assert queue.size == 0


def test_a_first_turn_that_reached_no_worker_leaves_nothing():
    queue = testing.ProgramQueue()
    begin(queue, 1, 1)
    queue.end(1, None, False, ONE, 0)
    assert queue.size == 0
