"""cpp/worker/hang_detector.h: which worker is in doubt. On the wire: tests/proxy/test_hanging_workers.py."""

import pytest

from tests.models import hang_detector as slow
from tests.models.queueing_fleet import QueueingFleet
from vllm_router import _core_testing as testing

A, B, C, D = range(4)
SMALL, HUGE = 2_000, 900_000


class Fleet:
    """Workers that answered 30 small streams each within 0.1 s, up to now = 100; then A gets requests."""

    def __init__(self, workers=4, factor=5.0, kinds=("stream",), clients=(1, 2, 3), learn=None):
        self.detector = testing.HangDetector(factor)
        self.workers = range(workers)
        self.now = 0.0
        self.waiting = dict.fromkeys(self.workers, 0)
        self.out = set()
        self.clients = clients
        self.turn = 0
        self.look()
        for i in range(30):
            for worker in learn or self.workers:
                for kind in kinds:
                    self.serve(worker, kind=kind, client=clients[i % len(clients)])
        self.now = 100.0
        for worker in self.workers:
            if learn is None or worker in learn:
                self.detector.touch(worker, self.now)
        self.look()

    def serve(self, worker, kind="stream", size=SMALL, waited=0.1, client=1):
        self.detector.count_first_byte(worker, kind, size, waited, client, self.now)

    def look(self):
        return self.detector.observe(
            self.now,
            [(w, 0, True, w in self.out, False, self.waiting[w]) for w in self.workers],
        )

    def pass_time(self, seconds, others_serve=True, waited=0.1, size=SMALL):
        """The others serve twice in each half second. Whether A came up for a closer look at the end."""
        last = []
        for _ in range(round(seconds / 0.5)):
            self.now += 0.5
            if others_serve:
                for worker in self.workers:
                    if worker != A:
                        for _ in range(2):
                            self.turn += 1
                            client = self.clients[self.turn % len(self.clients)]
                            self.serve(worker, waited=waited, size=size, client=client)
            last = self.look()
        return A in last

    def judge(self, *waits):
        return self.detector.judge(A, list(waits), self.now)


def wait(sent=100.0, client=1, kind="stream", size=SMALL):
    return (kind, size, sent, client)


TWO = (wait(client=1), wait(client=2))


def test_a_worker_that_sends_nothing_while_others_serve_is_in_doubt():
    fleet = Fleet()
    fleet.waiting[A] = 2
    assert not fleet.pass_time(4.5)
    assert fleet.judge(*TWO) is None
    assert fleet.pass_time(1.0)
    silent, limit, overdue, overtaking = fleet.judge(*TWO)
    assert (silent, limit, overdue) == (5.5, 5.0, 2)
    assert overtaking > 8


def test_any_byte_of_a_running_stream_is_a_sign_of_life():
    fleet = Fleet()
    fleet.waiting[A] = 2
    fleet.pass_time(3)
    fleet.detector.touch(A, fleet.now)
    assert not fleet.pass_time(3)
    assert fleet.judge(*TWO) is None


def test_where_all_are_slow_nothing_is_overtaken():
    fleet = Fleet()
    fleet.waiting[A] = 2
    assert not fleet.pass_time(20, others_serve=False)
    fleet = Fleet()
    fleet.waiting[A] = 2
    assert not fleet.pass_time(20, waited=40)  # what they answer was sent before
    assert fleet.judge(*TWO) is None


def test_where_most_wait_at_the_others_too_they_are_slow_as_well():
    fleet = Fleet()
    fleet.waiting = {A: 2, B: 200, C: 200, D: 200}
    fleet.pass_time(6)
    assert fleet.judge(*TWO) is None


def test_one_request_is_no_evidence():
    fleet = Fleet()
    fleet.waiting[A] = 1
    assert not fleet.pass_time(600)
    assert fleet.judge(wait()) is None


def test_one_client_alone_takes_no_worker_away():
    """Ten slow requests of a client of whom others saw a third."""
    fleet = Fleet()
    fleet.waiting[A] = 10
    assert fleet.pass_time(60)
    assert fleet.judge(*[wait(client=1) for _ in range(10)]) is None
    assert fleet.judge(*[wait(client=9) for _ in range(10)]) is None  # nobody else has seen it
    assert fleet.judge(*[wait(client=1) for _ in range(9)], wait(client=2)) is not None


def test_a_client_that_sends_most_of_what_others_serve_is_believed():
    fleet = Fleet(clients=(1, 1, 1, 2))
    fleet.waiting[A] = 2
    assert fleet.pass_time(6)
    assert fleet.judge(wait(client=1), wait(client=1)) is not None


def test_a_long_prompt_has_the_time_that_it_needs():
    """900 KB after prompts of 2 KB, which took 128 ms: 4^4 times that, twice, for all behind it too."""
    fleet = Fleet()
    fleet.waiting[A] = 3
    assert fleet.detector.limit(A, "stream", HUGE) == pytest.approx(256 * 0.128 * 2)
    assert fleet.detector.limit(A, "stream", SMALL, HUGE) == pytest.approx(256 * 0.128 * 2)
    assert fleet.pass_time(60)
    assert fleet.judge(*TWO, wait(size=HUGE, client=3)) is None
    fleet.pass_time(7)
    assert fleet.judge(*TWO, wait(size=HUGE, client=3)) is not None


def test_a_long_prompt_is_measured_by_those_that_others_served():
    fleet = Fleet()
    for worker in (B, C):
        for _ in range(20):
            fleet.serve(worker, size=HUGE, waited=3.9)
    fleet.waiting[A] = 3
    fleet.look()
    # Of its own it has none, so what follows from its small ones counts.
    assert fleet.detector.limit(A, "stream", HUGE) == pytest.approx(256 * 0.128 * 2)
    for _ in range(20):
        fleet.serve(A, size=HUGE, waited=3.9)
    fleet.look()
    assert fleet.detector.limit(A, "stream", HUGE) == pytest.approx(2 * 4.096)


def test_time_begins_when_the_request_was_sent_whole():
    """A slow upload makes no worker late."""
    fleet = Fleet()
    fleet.waiting[A] = 2
    assert fleet.pass_time(60)
    assert fleet.judge(wait(client=1, sent=158), wait(client=2, sent=158)) is None


def test_plain_responses_are_measured_by_plain_responses():
    fleet = Fleet(kinds=("stream",))
    fleet.waiting[A] = 4
    assert fleet.pass_time(60)
    plain = [wait(client=client, kind="plain") for client in (1, 2, 3, 1)]
    assert fleet.judge(*plain) is None  # nothing is known of such
    fleet = Fleet(kinds=("stream", "plain"))
    for worker in fleet.workers:
        for _ in range(200):
            fleet.serve(worker, kind="plain", waited=20)
    fleet.detector.touch(A, 100.0)
    fleet.look()
    fleet.waiting[A] = 4
    assert fleet.pass_time(100)
    assert fleet.judge(*plain) is None
    assert fleet.pass_time(100)
    assert fleet.judge(*plain) is not None  # 5 * 32.768 s


def test_never_more_than_half_and_never_the_last():
    fleet = Fleet()
    fleet.waiting[A] = 2
    fleet.out = {B, C}
    assert not fleet.pass_time(60)
    assert fleet.judge(*TWO) is None
    fleet.out = {B}
    assert fleet.pass_time(1)
    assert fleet.judge(*TWO) is not None
    pair = Fleet(workers=2)
    pair.waiting[A] = 2
    pair.out = {B}
    assert not pair.pass_time(60)
    alone = Fleet(workers=1)
    alone.waiting[A] = 2
    assert not alone.pass_time(60)


def test_of_two_that_are_looked_at_between_two_ticks_one_is_in_doubt():
    """Four may have one more out, so two that hang at once must not both go."""
    fleet = Fleet()
    fleet.out = {D}
    fleet.waiting[A] = fleet.waiting[B] = 2
    for tick in range(1, 13):
        fleet.now = 100 + tick / 2
        for client in fleet.clients:
            fleet.serve(C, client=client)
        silent = fleet.look()
    assert silent == [A, B]
    doubts = [fleet.detector.judge(worker, list(TWO), fleet.now) for worker in (A, B)]
    assert [doubt is None for doubt in doubts] == [False, True]


def test_workers_of_other_models_prove_nothing():
    detector = testing.HangDetector()
    rows = [(A, 1, True, False, False, 2), (B, 2, True, False, False, 0), (C, 2, True, False, False, 0)]
    for tick in range(200):
        for worker in (B, C):
            detector.count_first_byte(worker, "stream", SMALL, 0.01, tick % 3, tick / 2)
        assert detector.observe(tick / 2, rows) == []


def test_a_new_worker_has_longer():
    """Its first request may compile kernels."""
    fleet = Fleet(learn=(B, C, D))
    fleet.waiting[A] = 2
    assert fleet.pass_time(25)
    assert fleet.judge(*TWO) is None
    assert fleet.pass_time(6)
    assert fleet.judge(*TWO) is not None


def test_a_factor_of_zero_doubts_nobody():
    fleet = Fleet(factor=0.0)
    fleet.waiting[A] = 2
    assert not fleet.pass_time(60)
    assert fleet.judge(*TWO) is None


def test_what_came_late_is_not_learnt():
    """Answers of a worker in doubt would make all later limits long."""
    detector = testing.HangDetector()
    rows = [(w, 0, True, False, False, 0) for w in (A, B)]
    for i in range(40):
        for worker in (A, B):
            detector.count_first_byte(worker, "stream", SMALL, 0.1, 1, i / 10)
    detector.observe(4.0, rows)
    limit = detector.limit(A, "stream", SMALL)
    detector.observe(5.0, [(A, 0, True, True, True, 40), rows[1]])
    for _ in range(40):
        detector.count_first_byte(A, "stream", SMALL, 60, 1, 6.0)
    detector.observe(6.0, rows)
    assert detector.limit(A, "stream", SMALL) == limit


def twins(seed):
    """The same traffic before the detector and its slow twin, with engines that freeze and come back."""
    fleets = [QueueingFleet(make(), seed=seed) for make in (testing.HangDetector, slow.HangDetector)]
    for seconds, frozen in ((60, None), (60, 1), (30, None)):
        for fleet in fleets:
            for i, engine in enumerate(fleet.engines):
                engine.frozen = i == frozen
            fleet.run(seconds)
    return fleets


@pytest.mark.parametrize("seed", [0, 4])
def test_it_decides_as_its_slow_twin(seed):
    fast, twin = twins(seed)
    assert fast.doubts
    assert [doubt[:2] for doubt in fast.doubts] == [doubt[:2] for doubt in twin.doubts]
    for kind in ("stream", "plain"):
        for size in (100, 5_000, 20_000, 100_000, 500_000, 2_000_000):
            for worker in range(4):
                expected = twin.detector.limit(worker, kind, size)
                assert fast.detector.limit(worker, kind, size) == pytest.approx(expected)


def test_an_hour_of_bursts_is_no_alarm():
    fleet = QueueingFleet(testing.HangDetector(), seed=34)
    fleet.run(3600)
    assert fleet.requests > 10_000
    assert fleet.doubts == []


def test_ten_times_slower_together_is_no_alarm():
    fleet = QueueingFleet(testing.HangDetector(), seed=35)
    fleet.run(600)
    for engine in fleet.engines:
        engine.slow = 10.0
    fleet.run(300)
    assert fleet.doubts == []


@pytest.mark.parametrize(("books", "seconds"), [(0.0, 20), (0.02, 25)])
@pytest.mark.parametrize("seed", range(2))
def test_a_frozen_engine_is_found_within_seconds(seed, books, seconds):
    """Later where a long prompt waits there, since that may be the reason."""
    fleet = QueueingFleet(testing.HangDetector(), seed=seed, books=books)
    fleet.rate, fleet.rate_until = 5.0, 1e9
    fleet.run(300)
    assert fleet.doubts == []
    fleet.engines[2].frozen = True
    frozen_at = fleet.now
    fleet.run(seconds)
    [(when, worker, *_)] = fleet.doubts
    assert worker == 2
    waited = len(fleet.engines[2].waits())
    fleet.run(120)
    assert len(fleet.engines[2].waits()) == waited  # none came later
    print(f"in doubt after {when - frozen_at:.1f} s; {waited} requests waited there")
