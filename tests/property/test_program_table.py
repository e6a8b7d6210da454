"""ProgramTable against its slow twin, and what it promises, after any story of turns."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models import program_table as twin
from vllm_router import _core_testing as testing

MODES = st.sampled_from(["on", "on", "on", "observe"])
WEIGHTS = (1.0, 4.0, 2.0)  # of tenants
PUMP_MS = 100


def settings(modes=MODES):
    return st.builds(
        twin.Settings,
        mode=modes,
        fill=st.sampled_from([0.9, 0.5]),
        ttl_ms=st.sampled_from([50, 1000]),
        forget_ms=st.sampled_from([300, 100_000]),
        tenant_most=st.sampled_from([0, 0, 1, 2]),
        worker_most=st.sampled_from([0, 0, 1, 3]),
    )


WORKERS = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from([0, 1000, 2000]), st.sampled_from([0, 0, 100, 900]), st.just(0.0)
    ),
    max_size=3,
    unique_by=lambda worker: worker[0],
)
BEGIN = st.tuples(
    st.just("begin"),
    st.integers(0, 5),
    st.integers(0, 1),
    st.integers(0, 2),
    st.sampled_from([1, 100, 400, 900]),
    st.sampled_from([0, 50, 200]),
)
USE = st.none() | st.sampled_from([(300, 0, 50), (800, 200, 10), (50, 50, 0), (500, 100, 400)])
STEPS = st.one_of(
    BEGIN,
    BEGIN,
    st.tuples(st.just("end"), st.integers(0, 99), USE, st.sampled_from([False, False, True])),
    st.tuples(st.just("leave"), st.integers(0, 99)),
    st.tuples(st.just("force"), st.integers(0, 99)),
    st.tuples(st.just("bind"), st.integers(0, 99), st.integers(0, 2)),
    st.tuples(st.just("pump"), st.integers(0, 1)),
    st.tuples(st.just("follow_fleet")),
    st.tuples(st.just("follow"), settings(st.sampled_from(["on", "observe", "off"]))),
)
STORY = st.lists(st.tuples(STEPS, WORKERS, st.sampled_from([0, 1, 20, 150, 400])), max_size=60)


class Pair:
    """The table and its twin, which do the same."""

    def __init__(self, most, given):
        self.queue = testing.ProgramQueue(most, given.line())
        self.slow = twin.ProgramTable(most, given)
        self.count = self.now = 0
        self.live = []
        self.pumped = {}
        self.workers = []

    def step(self, step, workers, passed):
        self.now += passed
        self.workers = workers
        getattr(self, step[0])(*step[1:])
        assert self.queue.told() == self.slow.told
        self.slow.told.clear()
        assert self.queue.read() == self.slow.read()
        for number in self.live:
            for worker in workers:
                counted = self.slow.is_counted(number)
                program = self.slow.of_turn.get(number)
                fits = not counted or self.slow.fits(program, program.held, worker)
                assert self.queue.has_room(number, [worker]) == fits

    def begin(self, program, pool, of_class, prompt, output):
        number, self.count = self.count, self.count + 1
        tenant = program % 3
        line = (
            number,
            program,
            pool,
            tenant,
            WEIGHTS[tenant],
            of_class,
            prompt,
            output,
            self.workers,
            self.now,
        )
        assert self.queue.begin(*line) == self.slow.begin(*line)
        self.live.append(number)

    def end(self, place, use, final):
        for number in self._one(place, waits=False):
            self.live.remove(number)
            self.queue.end(number, use, final, self.workers, self.now)
            self.slow.end(number, use, final, self.workers, self.now)

    def leave(self, place):
        for number in self._one(place):
            left = self.queue.leave(number, self.now)
            assert left == self.slow.leave(number, self.now)
            if left:
                self.live.remove(number)

    def force(self, place):
        for number in self._one(place):
            forced = self.queue.force(number, self.workers, self.now)
            assert forced == self.slow.force(number, self.workers, self.now)

    def bind(self, place, worker):
        for number in self._one(place):
            self.queue.bind(number, worker)
            self.slow.bind(number, worker)

    def pump(self, pool):
        self.queue.pump(pool, self.workers, self.now)
        if self.now - self.pumped.get(pool, -PUMP_MS) >= PUMP_MS:
            self.pumped[pool] = self.now
            self.slow.pump(pool, self.workers, self.now)

    def follow_fleet(self):
        self.queue.follow_fleet(self.workers, self.now)
        self.slow.follow_fleet(self.workers, self.now)

    def follow(self, given):
        self.queue.follow(given.line(), self.now)
        self.slow.follow(given, self.now)

    def _one(self, place, waits=None):
        numbers = [one for one in self.live if waits is None or self.slow.turns[one].waits == waits]
        return [numbers[place % len(numbers)]] if numbers else []


@given(st.sampled_from([3, 8, 100]), settings(), STORY)
def test_it_does_what_its_twin_does(most, given, story):
    pair = Pair(most, given)
    for step, workers, passed in story:
        pair.step(step, workers, passed)


@pytest.mark.parametrize("seed", range(8))
def test_every_turn_goes_on_and_nothing_is_left(seed):
    """Programs that need thrice what there is: all get all of their turns, and no worker has too much."""
    dice = random.Random(seed)
    queue = testing.ProgramQueue(1000, "on fill=0.9 ttl_ms=200")
    workers = [(number, 10_000, 0, 0.0) for number in range(3)]
    turns = dict.fromkeys(range(30), 0)
    open_turns, waiting, count, now = {}, {}, 0, 0
    while min(turns.values()) < 5:
        now += dice.choice([1, 20, 150])
        queue.pump(0, workers, now)
        for number in queue.told():
            open_turns[number] = waiting.pop(number)
        busy = {*open_turns.values(), *waiting.values()}
        idle = [program for program in turns if program not in busy and turns[program] < 5]
        if idle and dice.random() < 0.6:
            program = dice.choice(idle)
            count += 1
            began = queue.begin(
                count, program, prompt=1500 + 200 * turns[program], output=100, workers=workers, now_ms=now
            )
            assert began in ("active", "resumed", "waits")
            (waiting if began == "waits" else open_turns)[count] = program
        elif open_turns:
            number = dice.choice(sorted(open_turns))
            program = open_turns.pop(number)
            turns[program] += 1
            use = (1400 + 200 * turns[program], 0, 100)
            queue.end(number, use, turns[program] == 5, workers, now)
        if max(1500 + 200 * done for done in turns.values()) <= 9000:
            assert all(
                tokens <= 9000 + 400 * active for tokens, active, _ in queue.read()["workers"].values()
            )
    assert queue.read()["went"]["waited"] > 0
    assert queue.read()["workers"] == {}
    assert queue.size == 0
