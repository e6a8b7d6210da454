"""Sources' lists and what follows from them, against the slow twin: any order of lists and commands."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.models.declared_fleet import DeclaredFleet, RefusedError, address
from vllm_router import _core_testing as testing

# Few hosts, ranks and values, so that changes meet. Most spellings are equal.
HOSTS, RANKS = "abcdef", ("", "@0", "@1")
URLS = st.builds(
    lambda spelling, host, rank: spelling(host) + rank,
    st.sampled_from(
        [
            lambda host: f"http://{host}:80",
            lambda host: f"http://{host}:80",
            lambda host: f"http://{host}",
            lambda host: f"http://{host.upper()}/",
        ]
    ),
    st.sampled_from(HOSTS),
    st.sampled_from(RANKS),
)
SOURCES = st.sampled_from(["static", "file", "kubernetes", "mine"])
MOSTLY = st.sampled_from([True, True, True, False])
SELDOM = st.sampled_from([False, False, False, True])
SPECS = st.tuples(
    URLS,
    st.sampled_from([1.0, 1.0, 2.5, 0.01]),
    MOSTLY,
    SELDOM,
    st.sampled_from([None, 5.0, 30.0]),
    st.sampled_from(["", "one", "two"]),
)
LISTS = st.lists(SPECS, max_size=6, unique_by=lambda spec: address(spec[0]))
WORKER_TYPES = st.sampled_from(["prefill", "decode", "decode", "regular"])
PAUSES = st.sampled_from([0.0, 1.0, 30.0, 60.0])
NO_SUCH = 1_000_000


class Names:
    """What the registry calls what the twin calls otherwise: neither a number twice, nor two numbers."""

    def __init__(self):
        self.theirs = {}  # the twin's -> the registry's

    def agree(self, ours, theirs):
        assert self.theirs.setdefault(ours, theirs) == theirs
        assert len(set(self.theirs.values())) == len(self.theirs)


class DeclaredFleets(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.last = {}  # source -> its last list
        self.row_ids, self.worker_ids = Names(), Names()

    @initialize(
        guard=st.sampled_from([0.5, 0.5, 0.0, 0.3, 1.0]),
        hold_secs=st.sampled_from([60.0, 60.0, 0.0]),
        managed=st.booleans(),
        staged=SELDOM,
        workers=st.lists(URLS, max_size=2, unique_by=address),
    )
    def begin(self, guard, hold_secs, managed, staged, workers):
        self.twin = DeclaredFleet(guard, hold_secs, staged)
        self.registry = testing.Registry(guard, hold_secs, staged)
        self.version, self.membership = self.registry.version, self.registry.view.membership
        self.sequence, self.members = [], self.registry.members()
        self.change("managed", managed)
        for url in workers:
            self.change("add", url, 1.0)

    def change(self, method, *arguments, core=None):
        """Does the same to both; returns both answers, or None if both refuse."""
        version = self.registry.version
        try:
            ours = getattr(self.twin, method)(*arguments)
        except RefusedError:
            ours = RefusedError
        try:
            theirs = getattr(self.registry, method)(*(core or arguments))
        except ValueError:
            theirs = RefusedError
        assert (ours is RefusedError) == (theirs is RefusedError), (ours, theirs)
        published = self.registry.version - version
        assert published <= (ours is not RefusedError)

        sequence = [(row.worker_id, row.weight) for row in self.twin.serving()]
        membership = self.registry.view.membership
        assert (membership > self.membership) == (sequence != self.sequence), (sequence, self.sequence)
        assert published or self.registry.members() == self.members
        self.sequence, self.membership, self.members = sequence, membership, self.registry.members()
        return None if ours is RefusedError else (ours, theirs)

    def sync(self, source, specs, complete, deleted, pause):
        self.now += pause
        answers = self.change("reconcile", source, specs, complete, deleted, self.now)
        if answers is None:
            return
        if specs is not None:
            self.last[source] = specs
        for ours, theirs in zip(*answers, strict=True):
            assert sorted(ours) == sorted(theirs), answers

    @rule(source=SOURCES, specs=LISTS, complete=MOSTLY, pause=PAUSES)
    def a_list_after_a_dry_run(self, source, specs, complete, pause):
        self.now += pause
        rows, version = self.registry.rows(), self.registry.version
        try:
            would = self.registry.would_reconcile(source, specs, complete, self.now)
        except ValueError:
            would = None
        assert (self.registry.rows(), self.registry.version) == (rows, version)
        assert self.registry.members() == self.members
        answers = self.change("reconcile", source, specs, complete, [], self.now)
        if answers is not None:
            self.last[source] = specs
        assert would == (None if answers is None else answers[1])

    @rule(
        url=URLS,
        worker_type=WORKER_TYPES,
        port=st.sampled_from([None, None, 8998, 9000]),
        kv_group=st.sampled_from(["", "", "", "a"]),
    )
    def another_role(self, url, worker_type, port, kv_group):
        """Of a worker that is named so from now on; mostly the URL of another spelling has the old one."""
        if self.twin.is_staged or worker_type == "regular":
            kv_group = kv_group if self.twin.is_staged else ""
            self.twin.set_role(url, worker_type, port, kv_group)
            self.registry.set_role(url, worker_type, port, kv_group)

    @rule(source=SOURCES, specs=LISTS, complete=MOSTLY, deleted=st.lists(URLS, max_size=2), pause=PAUSES)
    def a_list(self, source, specs, complete, deleted, pause):
        self.sync(source, specs, complete, deleted, pause)

    @rule(source=SOURCES, specs=LISTS, pause=PAUSES)
    def a_longer_list(self, source, specs, pause):
        named = {address(spec[0]) for spec in specs}
        specs = specs + [spec for spec in self.last.get(source, []) if address(spec[0]) not in named]
        self.sync(source, specs, True, [], pause)

    @rule(
        source=SOURCES, keep=st.lists(st.booleans(), min_size=12, max_size=12), complete=MOSTLY, pause=PAUSES
    )
    def a_shorter_list(self, source, keep, complete, pause):
        specs = [spec for spec, kept in zip(self.last.get(source, []), keep, strict=False) if kept]
        self.sync(source, specs, complete, [], pause)

    @rule(source=SOURCES, specs=LISTS)
    def a_list_whose_workers_pass_their_check(self, source, specs):
        self.sync(source, specs, False, [], 0.0)
        self.the_work_for_a_server_is_the_twins()
        self.admit_all()

    @precondition(lambda self: self.last)
    @rule(data=st.data(), pause=PAUSES, then=st.sampled_from(["wait", "check", "adopt"]))
    def nothing(self, data, pause, then):
        source = data.draw(st.sampled_from(sorted(self.last)))
        self.sync(source, [], True, [], pause)
        held = [row.url for row in self.twin.in_order() if row.held]
        if held and then == "check":
            self.change("set_healthy", data.draw(st.sampled_from(held)), False)
        if held and then == "adopt":
            self.adopt(source)

    @rule(source=SOURCES, specs=st.one_of(st.just([]), st.none()), pause=PAUSES)
    def nothing_or_the_last_list(self, source, specs, pause):
        self.sync(source, specs, True, [], pause)

    @rule(
        source=SOURCES,
        data=st.data(),
        ready=SELDOM,
        leaving=SELDOM,
        incarnation=st.sampled_from(["", "one", "two"]),
        pause=PAUSES,
    )
    def one_changes(self, source, data, ready, leaving, incarnation, pause):
        """The last list, but for the words about one worker."""
        specs = list(self.last.get(source, []))
        if specs:
            at = data.draw(st.integers(0, len(specs) - 1))
            url, weight, was_ready, was_leaving, drain_secs, _ = specs[at]
            specs[at] = (url, weight, was_ready ^ ready, was_leaving ^ leaving, drain_secs, incarnation)
        self.sync(source, specs, True, [], pause)

    @rule(source=st.sampled_from(["api", "Mine", "", "9", "x" * 33]), specs=LISTS)
    def a_bad_source(self, source, specs):
        self.sync(source, specs, True, [], 0.0)

    @rule(
        source=SOURCES,
        specs=LISTS,
        bad=st.sampled_from([("http://a b", 1.0), ("", 1.0), ("http://f", 0.0), ("http://f", 100.1)]),
    )
    def a_list_with_a_bad_worker(self, source, specs, bad):
        self.sync(source, [*specs, (*bad, True, False, None, "")], True, [], 0.0)

    @rule(source=SOURCES, specs=LISTS, deleted=URLS)
    def a_list_with_a_bad_deletion(self, source, specs, deleted):
        self.sync(source, specs, True, [deleted, "http://a b"], 0.0)

    @rule(source=SOURCES, specs=LISTS, again=SPECS)
    def a_list_with_a_worker_twice(self, source, specs, again):
        other = again[0].upper().replace("HTTP", "http")
        self.sync(source, [again, (other, *again[1:]), *specs], True, [], 0.0)

    @rule(source=st.one_of(SOURCES, st.sampled_from(["api", "dns"])))
    def adopt_what_is_held(self, source):
        self.adopt(source)

    def adopt(self, source):
        answers = self.change("adopt", source)
        assert answers is None or sorted(answers[0]) == sorted(answers[1])

    @rule(pause=PAUSES)
    def a_server_looks_for_holds_that_are_over(self, pause):
        self.now += pause
        self.change("end_holds", self.now)

    @precondition(lambda self: any(row.replaced for row in self.twin.declared))
    @rule(data=st.data(), pause=PAUSES)
    def one_of_those_that_are_awaited_joins(self, data, pause):
        pending = self.twin.pending()
        if pending:
            ours = data.draw(st.sampled_from([row_id for row_id, _ in pending]))
            self.change("admit", [ours], core=[[self.row_ids.theirs[ours]]])
        self.now += pause
        self.change("end_holds", self.now)

    @rule(source=SOURCES, data=st.data(), specs=LISTS, count=st.integers(1, 3), pause=PAUSES)
    def some_are_replaced(self, source, data, specs, count, pause):
        """By others, as in a roll-out."""
        self.sync(source, specs, False, [], 0.0)
        self.the_work_for_a_server_is_the_twins()
        self.admit_all()
        known = {address(spec[0]) for spec in specs}
        fresh = [spec for spec in data.draw(LISTS) if address(spec[0]) not in known]
        self.sync(source, [*specs[count:], *fresh], True, [], pause)

    @rule(host=st.sampled_from(HOSTS), names=st.lists(st.sampled_from("xyz"), max_size=2, unique=True))
    def a_host_lists_its_models(self, host, names):
        """Published with the next change, and not by itself."""
        url = f"http://{host}:80"
        self.twin.set_models(url, [(name, "") for name in names])
        self.registry.set_models(url, [(name, "") for name in names])
        self.members = self.registry.members()

    @rule(managed=st.booleans())
    def manage(self, managed):
        self.change("managed", managed)

    def some(self, data, names):
        """Some of these ids, some of them of the past, as the twin and as the registry says them."""
        ours = data.draw(st.lists(st.sampled_from([*names.theirs, NO_SUCH]), max_size=4))
        return ours, [names.theirs.get(one, NO_SUCH) for one in ours]

    @precondition(lambda self: self.row_ids.theirs)
    @rule(data=st.data())
    def admit_some(self, data):
        ours, theirs = self.some(data, self.row_ids)
        answers = self.change("admit", ours, core=[theirs])
        assert sorted(answers[0]) == sorted(answers[1])

    @rule()
    def admit_all(self):
        before = {member[1] for member in self.registry.members()}
        self.change(
            "admit", [i for i, _ in self.twin.pending()], core=[[i for i, _ in self.registry.pending()]]
        )
        new = [member[1] for member in self.registry.members() if member[1] not in before]
        assert new == sorted(new)

    @precondition(lambda self: self.worker_ids.theirs)
    @rule(data=st.data())
    def some_have_drained(self, data):
        ours, theirs = self.some(data, self.worker_ids)
        self.change("drained", ours, core=[theirs])

    @rule()
    def all_have_drained(self):
        self.change(
            "drained", [i for i, *_ in self.twin.leaving()], core=[[i for i, *_ in self.registry.leaving()]]
        )

    @rule(url=URLS, weight=st.sampled_from([1.0, 2.5, 0.0]))
    def add(self, url, weight):
        self.change("add", url, weight)

    @rule(url=URLS)
    def remove(self, url):
        self.change("remove", url)

    @rule(url=URLS, draining=st.booleans())
    def set_draining(self, url, draining):
        self.change("set_draining", url, draining)

    @rule(url=URLS, healthy=st.booleans())
    def set_healthy(self, url, healthy):
        self.change("set_healthy", url, healthy)

    @precondition(lambda self: any(row.held for row in self.twin.declared))
    @rule(data=st.data(), healthy=SELDOM)
    def a_held_worker_is_checked(self, data, healthy):
        held = [row.url for row in self.twin.in_order() if row.held]
        self.change("set_healthy", data.draw(st.sampled_from(held)), healthy)

    @precondition(lambda self: self.twin.holds)
    @rule(data=st.data(), repeat=st.booleans(), pause=PAUSES)
    def a_list_that_is_held_comes_again(self, data, repeat, pause):
        source = data.draw(st.sampled_from(sorted(self.twin.holds)))
        self.sync(source, None if repeat else self.last[source], True, [], pause)

    @precondition(lambda self: self.last)
    @rule(data=st.data(), count=st.integers(1, 3))
    def engines_start_anew(self, data, count):
        source = data.draw(st.sampled_from(sorted(self.last)))
        specs = [
            (*spec[:-1], "two" if spec[-1] == "one" else "one") if at < count else spec
            for at, spec in enumerate(self.last[source])
        ]
        self.sync(source, specs, True, [], 0.0)

    @invariant()
    def the_rows_are_the_twins(self):
        ours, theirs = self.twin.rows(), self.registry.rows()
        assert self.registry.replaced() == self.twin.replaced()
        assert [row[:8] for row in theirs] == [row[:8] for row in ours]
        for (*_, our_id), (*_, their_id) in zip(ours, theirs, strict=True):
            assert (our_id is None) == (their_id is None)
            if our_id is not None:
                self.worker_ids.agree(our_id, their_id)

    @invariant()
    def the_view_is_the_twins(self):
        view = self.registry.view
        name = self.worker_ids.theirs
        assert [tuple(member) for member in self.registry.members()] == [
            (url, name[worker_id], *rest) for url, worker_id, *rest in self.twin.members()
        ]
        assert view.eligible == self.twin.eligible()
        assert view.plan is None or view.plan[1] == view.membership
        assert [tuple(role) for role in self.registry.roles()] == self.twin.roles()

    @invariant()
    def each_stage_has_its_workers_and_no_others(self):
        whole, types = self.registry.view, [role[1] for role in self.twin.roles()]
        assert whole.has_stages == self.twin.is_staged
        for stage in ("prefill", "decode") if self.twin.is_staged else ():
            view = self.registry.stage_view(stage)
            assert view.eligible == [at for at in self.twin.eligible() if types[at] == stage]
            assert (view.stage, view.membership) == (stage, whole.membership)
            weights = [self.twin.serving()[at].weight for at in view.eligible]
            assert (view.eligible_weight, view.equal_weights) == (sum(weights), len(set(weights)) <= 1)
            assert view.plan is None or (view.plan[1], view.plan_stage) == (view.membership, stage)

    @invariant()
    def the_work_for_a_server_is_the_twins(self):
        ours, theirs = self.twin.pending(), self.registry.pending()
        assert [url for _, url in theirs] == [url for _, url in ours]
        for (our_id, _), (their_id, _) in zip(ours, theirs, strict=True):
            self.row_ids.agree(our_id, their_id)
        assert [tuple(row) for row in self.registry.leaving()] == [
            (self.worker_ids.theirs[worker_id], *rest) for worker_id, *rest in self.twin.leaving()
        ]


TestDeclaredFleet = DeclaredFleets.TestCase


def declared(fleet):
    """What the lists have made of the fleet, ids aside."""
    return sorted(
        (address(url), weight, state == "serving" and not resting)
        for url, state, _, _, draining, resting, _, weight, _ in fleet.rows()
        if state != "left" and not draining
    )


def let_all(fleet):
    """What a server does in the end."""
    fleet.admit([row_id for row_id, _ in fleet.pending()])
    fleet.drained([worker_id for worker_id, *_ in fleet.leaving()])


# What is true in the end: who is there, in the same words whoever says it, and which sources list it.
ENDS = st.lists(
    st.tuples(SPECS, st.sets(SOURCES, min_size=1)), max_size=8, unique_by=lambda end: address(end[0][0])
)
FAULTS = st.lists(
    st.tuples(SOURCES, st.none() | LISTS, MOSTLY, st.lists(URLS, max_size=2), PAUSES), max_size=12
)


def check_that_faults_heal(fleet_of, faults, ends, managed, hold_secs, served):
    """F1: a lost, repeated or reordered list matters no more once each source has said the whole truth.

    `served`: whether a server works between the faults too.
    """
    final = {
        source: [spec for spec, sources in ends if source in sources]
        for source in ("static", "file", "kubernetes", "mine")
    }
    old, fresh = fleet_of(0.5, hold_secs), fleet_of(0.5, hold_secs)
    now = 0.0
    for fleet in (old, fresh):
        fleet.managed(managed)
    for source, specs, complete, deleted, pause in faults:
        now += pause
        try:
            old.reconcile(source, specs, complete, deleted, now)
        except ValueError:
            assert specs is None, "only a source without a list may be refused"
        if served:
            let_all(old)
    # A hold can end another's: the source that lets go at last leaves the word to the next owner.
    for _ in range(2 * len(final)):
        for source, specs in final.items():
            old.reconcile(source, specs, True, [], now)
        now += hold_secs
        let_all(old)
    for source, specs in final.items():
        fresh.reconcile(source, specs, True, [], now)
    let_all(fresh)
    assert declared(old) == declared(fresh)
    assert not any(held for _, _, _, held, *_ in old.rows())


HEALING = {
    "faults": FAULTS,
    "ends": ENDS,
    "managed": st.booleans(),
    "hold_secs": st.sampled_from([60.0, 0.0]),
    "served": st.booleans(),
}


@given(**HEALING)
def test_one_whole_truth_heals_all_faults(faults, ends, managed, hold_secs, served):
    check_that_faults_heal(testing.Registry, faults, ends, managed, hold_secs, served)


@given(**HEALING)
def test_one_whole_truth_heals_the_twin(faults, ends, managed, hold_secs, served):
    check_that_faults_heal(DeclaredFleet, faults, ends, managed, hold_secs, served)
