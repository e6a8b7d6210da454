"""cpp/worker/declared_fleet.h: who belongs to the fleet when sources say what their whole lists are.

The slow twin has to pass the same examples, so that both are right and not only equal.
"""

import itertools

import pytest

from tests.models.declared_fleet import DeclaredFleet
from vllm_router import _core_testing as testing

A, B, C, D = (f"http://{host}:8000" for host in "abcd")


@pytest.fixture(params=[DeclaredFleet, testing.Registry], ids=["twin", "registry"])
def new_fleet(request):
    return request.param


@pytest.fixture
def fleet(new_fleet):
    """Of an embedded router: who joins serves at once."""
    return new_fleet()


@pytest.fixture
def served(new_fleet):
    """Of a server: who joins is checked first, who leaves drains first."""
    fleet = new_fleet()
    fleet.managed(True)
    return fleet


def spec(url, weight=1.0, *, ready=True, leaving=False, drain_secs=None, incarnation=""):
    return (url, weight, ready, leaving, drain_secs, incarnation)


def declare(fleet, *rows, source="mine", complete=True, deleted=(), now=0.0):
    """Rows are specs, or URLs of ordinary workers. Returns (joined, left, changed, held)."""
    specs = [row if isinstance(row, tuple) else spec(row) for row in rows]
    return tuple(map(sorted, fleet.reconcile(source, specs, complete, list(deleted), now)))


def again(fleet, source="mine", now=0.0):
    return tuple(map(sorted, fleet.reconcile(source, None, True, [], now)))


def admit_all(fleet):
    return fleet.admit([row_id for row_id, _ in fleet.pending()])


def let_drain(fleet):
    fleet.drained([worker_id for worker_id, *_ in fleet.leaving()])


def urls(fleet):
    return [row[0] for row in fleet.rows()]


def states(fleet):
    return {row[0]: row[1] for row in fleet.rows()}


def owners(fleet):
    return {row[0]: row[2] for row in fleet.rows()}


def held(fleet):
    return [row[0] for row in fleet.rows() if row[3]]


def draining(fleet):
    return [row[0] for row in fleet.rows() if row[4]]


def eligible(fleet):
    return [member[0] for member in fleet.members() if member[5]]


def worker_ids(fleet):
    return {row[0]: row[8] for row in fleet.rows()}


def test_a_list_is_what_the_fleet_becomes(fleet):
    assert declare(fleet, A, B) == ([A, B], [], [], [])
    assert declare(fleet, A, B) == ([], [], [], [])
    assert declare(fleet, A, B, C, D) == ([C, D], [], [], [])
    assert declare(fleet, B, C, spec(D, 2.5)) == ([], [A], [D], [])
    assert eligible(fleet) == [B, C, D]
    assert [row[7] for row in fleet.rows()] == [1000, 1000, 2500]


def test_who_joins_a_server_is_checked_first(served):
    assert declare(served, A, spec(B, ready=False)) == ([A, B], [], [], [])
    assert states(served) == {A: "pending", B: "pending"}
    assert [url for _, url in served.pending()] == [A], "B says itself that it is not ready"
    assert admit_all(served) == [A]
    assert eligible(served) == [A]
    declare(served, A, B)
    assert admit_all(served) == [B]
    assert eligible(served) == [A, B]


def test_the_check_of_a_former_row_admits_nobody(served):
    declare(served, A)
    ids = [row_id for row_id, _ in served.pending()]
    declare(served)
    declare(served, A)
    assert served.admit(ids) == []
    declare(served, spec(A, incarnation="one"))
    ids = [row_id for row_id, _ in served.pending()]
    declare(served, spec(A, incarnation="two"))
    assert served.admit([*ids, 1_000_000]) == []
    assert states(served) == {A: "pending"}


def test_who_leaves_a_server_drains_first(served):
    declare(served, A, B, C, spec(D, drain_secs=5.0))
    admit_all(served)
    assert declare(served, A, B, C) == ([], [D], [], [])
    assert [(url, drain_secs) for _, url, drain_secs in served.leaving()] == [(D, 5.0)]
    assert urls(served) == [A, B, C, D]
    assert owners(served)[D] == []
    assert eligible(served) == [A, B, C]
    let_drain(served)
    assert urls(served) == [A, B, C]


def test_leaving_drains_while_the_worker_is_declared(served):
    declare(served, spec(A, drain_secs=30.0), B)
    admit_all(served)
    assert declare(served, spec(A, leaving=True, drain_secs=25.0), B) == ([], [], [A], [])
    assert [(url, drain_secs) for _, url, drain_secs in served.leaving()] == [(A, 25.0)]
    let_drain(served)
    assert states(served) == {A: "left", B: "serving"}
    assert declare(served, spec(A, leaving=True), B) == ([], [], [], [])
    assert states(served)[A] == "left"
    assert declare(served, B) == ([], [A], [], []), "what has drained already is never held"
    assert urls(served) == [B]


def test_leaving_may_be_taken_back(served):
    declare(served, A, B)
    admit_all(served)
    before = worker_ids(served)
    declare(served, spec(A, leaving=True), B)
    ids = [worker_id for worker_id, *_ in served.leaving()]
    assert declare(served, A, B) == ([], [], [A], [])
    assert served.leaving() == []
    served.drained(ids)
    assert eligible(served) == [A, B], "who had drained meanwhile is wanted again"
    assert worker_ids(served) == before


def test_leaving_taken_back_after_it_has_drained_begins_anew(served):
    declare(served, A, B)
    admit_all(served)
    before = worker_ids(served)
    declare(served, spec(A, leaving=True), B)
    let_drain(served)
    assert declare(served, A, B) == ([], [], [A], [])
    assert states(served)[A] == "pending"
    admit_all(served)
    assert worker_ids(served)[A] not in (None, *before.values())


def test_an_admins_drain_outlasts_lists(served):
    declare(served, A, B)
    admit_all(served)
    served.set_draining(A, True)
    declare(served, spec(A, 2.0), B)
    assert draining(served) == [A]
    assert served.leaving() == [], "no source says that it leaves"
    served.set_draining(A, False)
    assert eligible(served) == [A, B]


def test_an_admin_may_end_any_drain_of_what_is_declared(served):
    declare(served, A, B, C)
    admit_all(served)
    declare(served, spec(A, leaving=True), spec(B, leaving=True), deleted=[C])
    served.drained([worker_id for worker_id, url, _ in served.leaving() if url == A])
    served.set_draining(A, False)
    served.set_draining(B, False)
    with pytest.raises(ValueError, match=C):
        served.set_draining(C, False)
    assert states(served) == {A: "pending", B: "serving", C: "serving"}
    assert draining(served) == [C]
    declare(served, spec(A, leaving=True), spec(B, leaving=True))
    assert draining(served) == [C], "the same word as before"
    declare(served, A, B)
    declare(served, A, spec(B, leaving=True))
    assert draining(served) == [B, C]


# The guard: of serving workers, how many are absent, and whether that is believed.
@pytest.mark.parametrize(
    ("workers", "absent", "is_held"),
    [
        *((1, 1, True), (2, 1, False), (2, 2, True), (3, 1, False), (3, 2, True), (3, 3, True)),
        *((4, 1, False), (4, 2, False), (4, 3, True), (4, 4, True)),
    ],
)
def test_more_than_half_at_once_is_held(fleet, workers, absent, is_held):
    everybody = [A, B, C, D][:workers]
    declare(fleet, *everybody)
    gone = sorted(everybody[:absent])
    assert declare(fleet, *everybody[absent:]) == ([], [] if is_held else gone, [], gone if is_held else [])
    assert held(fleet) == (gone if is_held else [])
    assert eligible(fleet) == (everybody if is_held else everybody[absent:])


@pytest.mark.parametrize(("guard", "absent"), [(0.0, 1), (0.25, 2), (0.7, 3), (1.0, 4)])
def test_the_guards_share_is_a_setting(new_fleet, guard, absent):
    everybody = [A, B, C, D]
    for gone in range(1, 5):
        fleet = new_fleet(guard)
        declare(fleet, *everybody)
        declare(fleet, *everybody[gone:])
        assert bool(held(fleet)) == (gone >= absent)


def test_of_a_file_only_emptiness_is_guarded(fleet):
    declare(fleet, A, B, C, D, source="file")
    assert declare(fleet, D, source="file") == ([], [A, B, C], [], [])
    assert declare(fleet, source="file") == ([], [], [], [D])
    assert declare(fleet, A, source="file") == ([A], [D], [], []), "somebody wrote that"


def test_a_worker_that_is_drained_before_its_check_does_not_join(served):
    declare(served, A, B)
    served.set_draining(A, True)
    assert states(served) == {A: "left", B: "pending"}
    assert admit_all(served) == [B]
    declare(served, A, B)
    assert states(served) == {A: "left", B: "serving"}, "the list says nothing new"
    served.set_draining(A, False)
    assert admit_all(served) == [A]


def test_a_drain_of_a_host_is_one_of_its_ranks_that_are_pending_too(served):
    declare(served, "http://a:8000@0")
    admit_all(served)
    declare(served, "http://a:8000@0", "http://a:8000@1")
    served.set_draining(A, True)
    assert admit_all(served) == []
    assert eligible(served) == []


def test_an_admins_drain_outlasts_the_engine_that_was_drained(served):
    """A drained worker is taken out to be restarted: then it must not serve."""
    declare(served, spec(A, incarnation="one"), B)
    admit_all(served)
    served.set_draining(A, True)
    declare(served, spec(A, incarnation="two"), B)
    assert states(served)[A] == "left"
    assert served.pending() == []
    declare(served, spec(A, incarnation="three"), B)
    declare(served, spec(A, incarnation="three", leaving=True), B)
    declare(served, spec(A, incarnation="three"), B)
    assert states(served)[A] == "left"
    served.set_draining(A, False)
    assert admit_all(served) == [A]


def test_an_admins_drain_outlasts_that_of_the_source(served):
    declare(served, A, B)
    admit_all(served)
    served.set_draining(A, True)
    declare(served, spec(A, leaving=True), B)
    declare(served, A, B)
    assert draining(served) == [A]
    declare(served, B, deleted=[A])
    declare(served, A, B)  # taken out of the list, and wanted again
    assert draining(served) == []


def test_the_last_list_again_is_no_more_complete_than_it_was(fleet):
    declare(fleet, A, B, C)
    declare(fleet, A, B, complete=False)
    assert again(fleet) == ([], [], [], [])
    fleet.add(D)
    assert again(fleet) == ([], [], [], [])
    assert urls(fleet) == [D, A, B, C]


def test_a_hold_ends_after_two_lists_and_the_time(fleet):
    declare(fleet, A, B)
    assert declare(fleet, now=10.0)[3] == [A, B]
    assert declare(fleet, now=11.0)[3] == [A, B], "two lists, too early"
    assert again(fleet, now=69.9)[3] == [A, B]
    assert again(fleet, now=70.0) == ([], [A, B], [], [])
    assert fleet.rows() == []


def test_a_hold_of_one_list_never_ends(fleet):
    declare(fleet, A, B)
    declare(fleet, now=10.0)
    assert held(fleet) == [A, B]
    assert declare(fleet, complete=False, now=100.0) == ([], [], [], [])
    assert held(fleet) == [A, B], "a list that is not complete says nothing of them"
    assert declare(fleet, now=200.0) == ([], [A, B], [], [])


def test_each_worker_is_held_from_the_first_list_that_leaves_it_out(fleet):
    declare(fleet, A, B, C)
    assert declare(fleet, C, now=0.0)[3] == [A, B]
    assert declare(fleet, now=60.0) == ([], [A, B], [], [C])
    assert again(fleet, now=119.0)[3] == [C]
    assert again(fleet, now=120.0)[1] == [C]


def test_a_worker_that_comes_and_goes_prolongs_no_hold_but_its_own(fleet):
    # 0 s: -   20 s: D   40 s: -   60 s: D
    declare(fleet, A, B, C, D)
    assert declare(fleet, now=0.0)[3] == [A, B, C, D]
    assert declare(fleet, D, now=20.0)[3] == [A, B, C]
    assert declare(fleet, now=40.0)[3] == [A, B, C, D]
    assert declare(fleet, D, now=60.0) == ([], [A, B, C], [], [])
    assert declare(fleet, now=61.0)[3] == [D]
    assert again(fleet, now=120.9)[3] == [D]
    assert again(fleet, now=121.0)[1] == [D]


def test_a_hold_that_ends_drains(served):
    declare(served, A, B)
    admit_all(served)
    declare(served, now=0.0)
    assert declare(served, now=60.0)[1] == [A, B]
    assert draining(served) == [A, B]
    assert held(served) == []


def test_an_admin_may_adopt_what_is_held(served):
    declare(served, A, B)
    admit_all(served)
    declare(served)
    assert sorted(served.adopt("mine")) == [A, B]
    assert draining(served) == [A, B]
    assert served.adopt("mine") == []
    for source in ("dns", "api", "Mine"):
        with pytest.raises(ValueError, match=source):
            served.adopt(source)


def test_who_goes_meanwhile_does_not_prolong_the_hold_of_the_others(served):
    declare(served, A, B)
    admit_all(served)
    declare(served, now=0.0)
    served.set_healthy(A, False)
    assert declare(served, now=60.0) == ([], [B], [], [])


def test_a_held_worker_that_is_down_stays_with_its_other_source(served):
    declare(served, A)
    admit_all(served)
    declare(served)
    declare(served, A, source="zebra")
    served.set_healthy(A, False)
    assert owners(served) == {A: ["zebra"]}
    assert held(served) == []
    assert eligible(served) == []


def test_the_owner_of_a_worker_does_not_depend_on_who_comes_first(new_fleet):
    lists = {
        "zebra": [spec(A, 1.5)],
        "dns": [spec(A, 2.0)],
        "kubernetes": [spec(A, 2.5)],
        "file": [spec(A, 3.0, ready=False)],
    }
    for names in itertools.permutations(lists):
        fleet = new_fleet()
        declare(fleet, B)
        for name in names:
            declare(fleet, *lists[name], source=name)
        assert owners(fleet) == {A: ["file", "kubernetes", "dns", "zebra"], B: ["mine"]}
        assert (fleet.rows()[0][7], eligible(fleet)) == (3000, [B])
        assert declare(fleet, *lists["dns"], source="dns") == ([], [], [], []), "nothing new"


def test_a_held_worker_that_a_source_before_declares_is_held_no_more(served):
    declare(served, A)
    admit_all(served)
    declare(served)
    assert held(served) == [A]
    declare(served, A, source="dns")
    assert held(served) == []
    declare(served)
    assert (owners(served), held(served)) == ({A: ["dns"]}, [])


def test_what_a_source_declares_is_removed_there(fleet):
    fleet.add(A)
    declare(fleet, A, B)
    for url in (A, B):
        with pytest.raises(ValueError, match=url):
            fleet.remove(url)
    for url in (A, B):
        with pytest.raises(ValueError, match=url):
            fleet.add(url)
    declare(fleet, B)
    fleet.remove(A)
    assert urls(fleet) == [B]


def test_another_incarnation_is_another_worker(served):
    declare(served, spec(A, incarnation="one"), B)
    admit_all(served)
    before = worker_ids(served)
    served.set_healthy(A, False)
    assert declare(served, spec(A, 2.0, incarnation="two"), B) == ([], [], [A], [])
    assert states(served) == {A: "pending", B: "serving"}
    assert admit_all(served) == [A]
    assert worker_ids(served)[A] not in (None, *before.values())
    assert eligible(served) == [A, B], "not down, as the one before was"


def test_the_settings_are_in_the_order_in_which_they_are_written(served):
    served.add("http://z")
    declare(served, C, A, source="static")
    declare(served, "http://y", source="file")
    assert urls(served) == [C, A, "http://z", "http://y"]
    declare(served, A, B, C, source="static")
    assert urls(served) == [A, B, C, "http://z", "http://y"]


def test_a_worker_of_the_settings_that_is_gone_drains_and_a_new_one_is_checked(served):
    declare(served, A, B, C, source="static")
    admit_all(served)
    assert declare(served, C, D, source="static") == ([D], [A], [], [B]), "more than half, and meant"
    assert states(served)[D] == "pending"
    assert draining(served) == [A]
    admit_all(served)
    assert draining(served) == [A, B]
    let_drain(served)
    assert urls(served) == [C, D]


@pytest.mark.parametrize("source", ["static", "file"])
def test_workers_that_are_all_replaced_stay_until_one_of_the_new_ones_serves(served, source):
    declare(served, A, B, source=source)
    admit_all(served)
    assert declare(served, C, D, source=source, now=1) == ([C, D], [], [], [A, B])
    assert eligible(served) == [A, B]
    declare(served, C, D, source=source, now=1000)
    assert eligible(served) == [A, B], "however long it takes"
    ((row_id, _), *_) = served.pending()
    served.admit([row_id])
    assert eligible(served) == [C]
    assert sorted(row[1] for row in served.leaving()) == [A, B]


# Make before break (Row 9): a worker that a list leaves out stays until one of the list has joined.


def admit(fleet, *names):
    return fleet.admit([row_id for row_id, url in fleet.pending() if url in names])


def replaced(fleet):
    return [url for url, how in fleet.replaced() if how == "held"]


W, X, Y, Z = (f"http://{host}:8000" for host in "wxyz")


@pytest.mark.parametrize("source", ["static", "file", "dns", "registration", "mine"])
def test_one_leaves_as_one_joins(served, source):
    """Row 9: the first new worker got the load of all."""
    declare(served, A, B, C, D, source=source)
    admit_all(served)
    before = worker_ids(served)
    assert declare(served, W, X, Y, Z, source=source, now=1) == ([W, X, Y, Z], [], [], [A, B, C, D])
    serving = []
    for url, rest in ((Y, [B, C, D]), (W, [C, D]), (Z, [D]), (X, [])):
        admit(served, url)
        declare(served, W, X, Y, Z, source=source, now=2)
        serving.append(url)
        if source not in ("static", "file") and len(serving) < 4:
            assert set(eligible(served)) >= {*rest, *serving}, "the guard may hold more"
        else:
            assert set(eligible(served)) == {*rest, *serving}
        assert {url: before[url] for url in rest} == {url: worker_ids(served)[url] for url in rest}


@pytest.mark.parametrize("source", ["static", "file", "dns", "mine"])
@pytest.mark.parametrize(
    ("new", "at_first", "then"),
    [
        ([B, C, D, W], [A, B, C, D], [B, C, D, W]),  # one of four
        ([C, D, W, X], [A, B, C, D], [B, C, D, W]),  # two
        ([C, D, W], [B, C, D], [C, D, W]),  # two by one: one leaves at once
        ([B, C, D, W, X], [A, B, C, D], [A, B, C, D, W]),  # one by two
        ([A, B, C, W], [A, B, C, D], [A, B, C, W]),
    ],
)
def test_a_part_is_replaced(served, source, new, at_first, then):
    """Row 9: of a partial replacement the old ones left at once."""
    declare(served, A, B, C, D, source=source)
    admit_all(served)
    declare(served, *new, source=source)
    assert sorted(eligible(served)) == at_first
    admit(served, W)
    assert sorted(eligible(served)) == then
    admit_all(served)
    assert sorted(eligible(served)) == sorted(new)


def test_a_hold_for_others_ends_in_time(served):
    """Row 9: workers that never pass their check hold no others for ever, and later ones not at all."""
    declare(served, A, B, C, D, source="file", now=0)
    admit_all(served)
    declare(served, A, B, C, W, source="file", now=10)
    served.end_holds(69.9)
    assert replaced(served) == [D]
    served.end_holds(70.0)
    assert draining(served) == [D]
    assert served.replaced() == [(D, "overdue")]
    declare(served, A, B, W, source="file", now=71)
    assert draining(served) == [C, D], "W has waited for too long to stand for another"
    assert eligible(served) == [A, B]


def test_a_list_ends_it_in_time_too(served):
    declare(served, A, B, C, D, now=0)
    admit_all(served)
    declare(served, A, B, C, W, now=10)
    assert declare(served, A, B, C, W, now=70) == ([], [D], [], [])
    assert served.replaced() == [(D, "overdue")]


def test_workers_that_come_and_go_prolong_no_hold(served):
    """Row 9: engines that crash again and again under new addresses."""
    declare(served, A, B, C, now=0)
    admit_all(served)
    for number in range(6):
        declare(served, A, B, f"http://new-{number}:8000", now=10.0 * number)
        assert replaced(served) == [C]
    declare(served, A, B, "http://new-6:8000", now=60)
    assert draining(served) == [C]


def test_at_the_limit_the_last_ones_stay_until_one_of_a_file_serves(served):
    declare(served, A, B, C, D, source="file", now=0)
    admit_all(served)
    declare(served, W, X, Y, source="file", now=0)
    served.end_holds(1000)
    assert eligible(served) == [A, B, C, D], "none of the list serves"
    admit(served, X)
    assert eligible(served) == [X]


def test_a_worker_that_is_listed_again_is_as_before(served):
    declare(served, A, B, source="file")
    admit_all(served)
    before = worker_ids(served)
    declare(served, W, X, source="file", now=1)
    admit(served, W)
    assert (draining(served), replaced(served)) == ([A], [B])
    assert declare(served, A, B, source="file", now=2)[0] == [A], "it drains, and is wanted again"
    assert (draining(served), replaced(served)) == ([W], [])
    assert worker_ids(served) == {**before, W: worker_ids(served)[W]}
    declare(served, W, X, source="file", now=100)
    served.end_holds(159)
    assert (replaced(served), eligible(served)) == ([B], [B, W]), "its time has begun anew"


def test_a_worker_that_fails_while_it_is_held_leaves_at_once(served):
    declare(served, A, B, C, D)
    admit_all(served)
    declare(served, A, B, C, W)
    served.set_healthy(D, False)
    assert urls(served) == [A, B, C, W]


def test_only_healthy_workers_are_held_for_others(served):
    declare(served, A, B, C, spec(D, ready=True))
    admit_all(served)
    served.set_healthy(D, False)
    assert declare(served, A, B, C, W)[1] == [D]
    served.set_draining(A, True)
    declare(served, spec(A), B, C)
    assert declare(served, spec(B, ready=False), A, C, Y)[1] == []
    assert declare(served, A, C, Y)[1] == [B], "it was not ready"
    assert declare(served, C, Y)[1] == [A], "an admin drains it"


def test_what_is_taken_out_by_hand_leaves_at_once(served):
    served.add(A)
    served.add(B)
    declare(served, A, C, source="static")
    served.remove(A)
    assert A not in urls(served)
    admit_all(served)
    declare(served, D, source="static")
    served.set_draining(C, True)
    served.end_holds(1)
    assert draining(served) == [C]


def test_what_was_seen_to_go_and_pods_that_do_not_exist_are_not_held(served):
    """Row 9: a pod that leaves by itself gets nothing more."""
    declare(served, A, B, C, D)
    admit_all(served)
    assert declare(served, A, B, C, W, deleted=[D])[1] == [D]
    assert declare(served, A, B, spec(C, leaving=True), W)[2] == [C]
    declare(served, A, B, X, Y, source="kubernetes")
    admit_all(served)
    assert declare(served, A, B, X, Z, source="kubernetes")[1] == [Y]


def test_sources_are_for_themselves(served):
    declare(served, A, B, C, source="file")
    declare(served, X, Y, source="dns")
    admit_all(served)
    declare(served, X, Y, Z, source="dns")
    assert declare(served, A, B, source="file")[1] == [C], "Z is none of the file's"
    declare(served, X, Z, source="mine")
    assert declare(served, X, source="dns")[1] == [Y], "what mine waits for is dns's no more"


def test_workers_of_another_model_count_for_nobody(served):
    """Row 9: what joins model b replaces none of model a, and keeps none of it."""
    for url in (A, B, W):
        served.set_models(url, [("a", "")])
    for url in (C, D, X):
        served.set_models(url, [("b", "")])
    declare(served, A, B, C, D)
    admit_all(served)
    declare(served, A, C, D, X)
    assert draining(served) == [B]
    declare(served, A, C, W, X)
    assert replaced(served) == [D]
    admit(served, W)
    assert replaced(served) == [D], "W serves a"
    admit(served, X)
    assert draining(served) == [B, D]


def test_a_worker_of_which_no_model_is_known_counts_for_each(served):
    served.set_models(A, [("a", "")])
    served.set_models(B, [("b", "")])
    declare(served, A, B, C, D)
    admit_all(served)
    declare(served, C, D, W)
    assert replaced(served) == [A, B]
    served.set_models(W, [("b", "")])
    served.end_holds(1)
    assert (draining(served), replaced(served)) == ([A], [B])


def test_ranks_of_a_host_leave_together(served):
    old = [f"http://a:8000@{rank}" for rank in range(4)]
    declare(served, *old, B, C, D, source="file")
    admit_all(served)
    declare(served, B, C, D, W, source="file")
    assert replaced(served) == old, "one host for one"
    admit_all(served)
    assert draining(served) == old


def test_hosts_are_replaced_by_the_ranks_of_one(served):
    new = [f"http://w:8000@{rank}" for rank in range(2)]
    declare(served, A, B, C, D)
    admit_all(served)
    declare(served, C, D, *new)
    assert replaced(served) == [A, B]
    admit_all(served)
    assert draining(served) == [A, B]


def test_an_engine_that_starts_anew_stands_for_another(served):
    declare(served, spec(A, incarnation="one"), B, C)
    admit_all(served)
    declare(served, spec(A, incarnation="two"), B)
    assert replaced(served) == [C]
    admit_all(served)
    assert draining(served) == [C]


def test_the_end_of_a_server_ends_the_holds_for_others(served):
    declare(served, A, B, C, D)
    admit_all(served)
    declare(served, A, B, C, W)
    served.managed(False)
    assert urls(served) == [A, B, C, W]


def test_a_hold_of_the_guard_is_not_ended_by_workers_that_join(served):
    declare(served, A, B, C, D)
    admit_all(served)
    assert declare(served, D, W) == ([W], [], [], [A, B, C])
    assert replaced(served) == []
    admit_all(served)
    served.end_holds(1000)
    assert held(served) == [A, B, C], "only lists end it"


def test_a_full_fleet_holds_nobody_for_others():
    """Row 9: there is no room for the new ones, which would wait for the old ones, and these for them."""
    registry = testing.Registry()
    registry.managed(True)
    old = [f"http://old-{number}:80" for number in range(4096)]
    new = [f"http://new-{number}:80" for number in range(4096)]
    declare(registry, *old, source="file")
    admit_all(registry)
    assert len(declare(registry, *new, source="file")[1]) == 4096


def test_settings_without_any_worker_are_held(served):
    declare(served, A, B, source="static")
    admit_all(served)
    assert declare(served, source="static") == ([], [], [], [A, B])
    assert eligible(served) == [A, B]
    assert sorted(served.adopt("static")) == [A, B]


@pytest.mark.parametrize("source", ["api", "", "Mine", "0mine", "my source", "m" * 33])
def test_a_bad_name_of_a_source_is_refused(fleet, source):
    with pytest.raises(ValueError, match=f"source.*{source}"):
        declare(fleet, A, source=source)
    assert fleet.rows() == []


@pytest.mark.parametrize("bad", [spec("http://a b"), spec(B, 0.0), spec(B, 100.1), spec("http://C:8000/")])
def test_a_list_is_taken_whole_or_not_at_all(fleet, bad):
    declare(fleet, C, D)
    before = fleet.rows()
    with pytest.raises(ValueError, match=r"."):
        declare(fleet, A, C, bad)
    with pytest.raises(ValueError, match=r"."):
        declare(fleet, A, deleted=["http://c d"])
    assert fleet.rows() == before
    assert again(fleet) == ([], [], [], []), "the list before is still the last"
    assert fleet.rows() == before


def test_a_list_has_a_limit(fleet):
    with pytest.raises(ValueError, match=r"."):
        declare(fleet, *(f"http://a{i}" for i in range(4097)))
    assert fleet.rows() == []


def test_a_list_is_planned_and_published_once():
    registry = testing.Registry()
    declare(registry, A, B, C)
    number, membership = registry.view.plan
    version = registry.version
    declare(registry, spec(A, 2.0), B, D)
    assert registry.view.plan == (number + 1, membership + 1)
    assert registry.version == version + 1
    declare(registry, spec(A, 2.0), B, D)
    assert registry.version == version + 1, "nothing has changed"
    declare(registry, spec(A, 2.0, ready=False), B, D)
    assert registry.view.plan == (number + 2, membership + 1), "it rests in the fleet"


# What a worker is declared as.


def staged_fleet(new_fleet, prefill, decode, group=""):
    fleet = new_fleet(staged=True)
    fleet.managed(True)
    for url in prefill:
        fleet.set_role(url, "prefill", 8998, group)
    for url in decode:
        fleet.set_role(url, "decode", None, group)
    return fleet


def test_stages_are_for_themselves(new_fleet):
    """Row 9: a prefill worker takes no decode worker's place."""
    fleet = staged_fleet(new_fleet, [A, B, W], [C, D, X])
    declare(fleet, A, B, C, D)
    admit_all(fleet)
    assert declare(fleet, A, B, C, W) == ([W], [D], [], [])
    assert declare(fleet, B, C, W, X) == ([X], [], [], [A])
    admit(fleet, X)
    assert replaced(fleet) == [A], "X is for decode"
    admit(fleet, W)
    assert draining(fleet) == [A, D]


def test_a_kv_group_is_replaced_as_a_whole(new_fleet):
    """Row 9: a prefill worker of another group serves nothing before there is a decode worker of it."""
    fleet = staged_fleet(new_fleet, [A], [B, C, D], "one")
    for url, role in ((W, "prefill"), (X, "decode"), (Y, "decode")):
        fleet.set_role(url, role, None, "two")
    declare(fleet, A, B, C, D, source="file")
    admit_all(fleet)
    declare(fleet, W, X, Y, source="file")
    assert replaced(fleet) == [A, B, C, D]
    for url in (W, X):
        admit(fleet, url)
        assert replaced(fleet) == [A, B, C, D]
    admit(fleet, Y)
    assert draining(fleet) == [A, B, C, D]


@pytest.fixture
def staged(new_fleet):
    fleet = new_fleet(staged=True)
    fleet.set_role(A, "prefill", 8998)
    fleet.set_role(B, "decode")
    return fleet


def test_two_sources_agree_on_the_stage_of_a_worker(staged):
    declare(staged, A, B, source="file")
    staged.set_role(A, "decode")
    with pytest.raises(
        ValueError, match=r"list of mine as decode, but file declares it as prefill|elsewhere"
    ):
        declare(staged, A, source="mine")
    assert staged.roles() == [(A, "prefill", 8998), (B, "decode", None)]
    assert owners(staged)[A] == ["file"]


def test_a_worker_of_another_stage_is_another_worker(staged):
    staged.managed(True)
    declare(staged, A, B)
    admit_all(staged)
    staged.set_role(B, "prefill")
    assert declare(staged, A, B) == ([], [], [B], [])
    assert states(staged) == {A: "serving", B: "pending"}
    admit_all(staged)
    assert staged.roles() == [(A, "prefill", 8998), (B, "prefill", None)]


def test_a_list_of_old_does_not_change_the_stage_of_a_worker_that_was_added_since(staged):
    staged.set_role(A, "prefill")
    declare(staged, A, B, source="static")
    staged.remove(A)
    staged.set_role(A, "decode")
    staged.add(A)
    again(staged, source="static")
    assert staged.roles() == [(A, "decode", None), (B, "decode", None)]
    assert owners(staged)[A] == ["api"]
