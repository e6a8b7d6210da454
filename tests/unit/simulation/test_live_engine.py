"""cpp/simulation/live_engine.h, with a clock that moves when told to. Times in milliseconds here."""

from vllm_router import _core_testing as testing

MS = 1_000_000
# A step takes 10 ms, and 1 ms for each token of prompt in it.
COEFFICIENTS = [10, 1000, 0, 0, 0]
INSTANT = [0, 0, 0, 0, 0]


class Bench:
    """An engine, its clock, and jobs of prompts that share nothing unless they have the same number."""

    def __init__(self, coefficients: list[float] = COEFFICIENTS, **options: float) -> None:
        self.clock = testing.ManualClock()
        self.clock.advance(5 * MS + 7)  # the engine's time begins wherever the clock is
        self.begin = self.clock.now_nanos()
        self.engine = testing.LiveEngine(self.clock, coefficients, block_tokens=4, **options)

    def at(self, ms: float) -> None:
        """Move on to this time."""
        self.clock.advance(self.begin + round(ms * MS) - self.clock.now_nanos())

    def submit(self, *parts: tuple[int, int, int]) -> int:
        """Parts are (number, prompt tokens, output tokens)."""
        return self.engine.submit([self.part(*part) for part in parts])

    def part(self, number: int, prompt: int, output: int) -> tuple[int, int, list[int], int]:
        return prompt, output, testing.block_chain([number] * (prompt + output), 4), prompt // 4

    def tokens(self, job: int) -> int:
        return self.engine.progress_of(job).tokens

    def next_token(self, job: int) -> float:
        return (self.engine.progress_of(job).next_token - self.begin) / MS

    def next_event(self, job: int) -> float:
        return (self.engine.progress_of(job).next_event - self.begin) / MS


def test_tokens_come_at_the_ends_of_steps():
    bench = Bench()
    job = bench.submit((1, 6, 3))
    seen = []
    for ms in (0, 15.9, 16, 25, 26, 36):
        bench.at(ms)
        seen.append((bench.tokens(job), bench.engine.progress_of(job).ended))
    assert seen == [(0, False), (0, False), (1, False), (1, False), (2, False), (3, True)]


def test_who_waits_is_told_when_to_look_again():
    bench = Bench()
    job = bench.submit((1, 6, 3))
    assert (bench.next_token(job), bench.next_event(job)) == (16, 16)
    bench.at(16)
    assert (bench.next_token(job), bench.next_event(job)) == (26, 36)  # nothing ends before its last token
    bench.at(30)
    assert (bench.next_token(job), bench.next_event(job)) == (36, 36)


def test_a_time_to_look_again_is_never_too_early():
    # 80.0004 us: the end of the step lies between two nanoseconds.
    bench = Bench([0, 80.0004, 0, 0, 0])
    job = bench.submit((1, 1, 1))
    when = bench.engine.progress_of(job).next_token
    assert when == bench.begin + 80_001
    bench.clock.advance(80_000)
    assert not bench.engine.progress_of(job).ended
    bench.clock.advance(1)
    assert bench.engine.progress_of(job).ended


def test_many_answers_take_no_longer_than_one():
    alone, together = Bench(), Bench()
    job = alone.submit((1, 1, 50))
    jobs = [together.submit((number, 1, 50)) for number in range(20)]
    for bench, ms in ((alone, 11 + 490), (together, 11 + 29 + 490)):  # 19 prompts in the second step
        bench.at(ms)
    assert alone.engine.progress_of(job).ended
    assert all(together.engine.progress_of(job).ended for job in jobs)


def test_a_wiped_cache_is_hit_no_more():
    bench = Bench(INSTANT)
    bench.submit((1, 20, 1))
    bench.engine.wipe_cache()
    assert bench.engine.progress_of(bench.submit((1, 20, 1))).hit_tokens == 0
    assert bench.engine.progress_of(bench.submit((1, 20, 1))).hit_tokens == 16


# Leaving.


def names(number: int, blocks: int) -> list[int]:
    return testing.block_chain([number] * (4 * blocks), 4)


def stored(blocks: list[int], parent: int | None = None) -> tuple[str, list[int], int | None, list[int]]:
    return "stored", blocks, parent, [name % 2**32 for name in blocks for _ in range(4)]


def removed(name: int) -> tuple[str, list[int], None, list[int]]:
    return "removed", [name], None, []


CLEARED = ("cleared", [], None, [])


def test_a_step_tells_what_it_stored_at_its_end_and_a_response_at_its_own():
    bench = Bench()
    bench.engine.keep_cache_steps()
    bench.submit((1, 9, 4))
    steps, soon = bench.engine.take_cache_steps()
    assert (steps, (soon - bench.begin) / MS) == ([], 19)
    bench.at(19)
    first, second, third = names(1, 3)
    assert bench.engine.take_cache_steps()[0] == [[stored([first, second])]]
    bench.at(1000)
    steps, never = bench.engine.take_cache_steps()
    assert steps == [[stored([third], second)]]
    assert never - bench.begin > 10**6 * MS


def test_requests_of_one_step_have_an_event_each_in_one_batch():
    bench = Bench()
    bench.engine.keep_cache_steps()
    bench.submit((3, 1, 1))  # the step under way
    bench.submit((1, 4, 1), (2, 8, 1))
    bench.at(100)
    assert bench.engine.take_cache_steps()[0] == [[stored(names(1, 1)), stored(names(2, 2))]]
    bench.submit((2, 12, 1))
    bench.at(200)
    assert bench.engine.take_cache_steps()[0] == [[stored(names(2, 3)[2:], names(2, 2)[1])]]
    bench.submit((2, 8, 1))
    bench.at(300)
    assert bench.engine.take_cache_steps()[0] == [], "nothing changed"


def test_evictions_come_before_the_store_that_needed_the_place():
    bench = Bench(INSTANT, cache_blocks=3)
    bench.engine.keep_cache_steps()
    for number in (1, 2):
        bench.submit((number, 4, 1))
    bench.engine.take_cache_steps()
    bench.submit((3, 8, 1))
    assert bench.engine.take_cache_steps()[0] == [
        [removed(names(1, 1)[0]), removed(names(2, 1)[0]), stored(names(3, 2))]
    ]


def test_a_wiped_cache_is_told_with_the_next_step_even_if_that_changes_nothing():
    bench = Bench(INSTANT)
    bench.engine.keep_cache_steps()
    bench.submit((1, 4, 1))
    bench.engine.take_cache_steps()
    bench.engine.wipe_cache()
    bench.engine.wipe_cache()
    assert bench.engine.take_cache_steps()[0] == []
    bench.submit((2, 3, 0))
    assert bench.engine.take_cache_steps()[0] == [[CLEARED, CLEARED]]


def test_a_forgotten_cache_is_not_told():
    bench = Bench(INSTANT)
    bench.engine.keep_cache_steps()
    bench.submit((1, 4, 1))
    bench.engine.forget_cache()
    assert bench.engine.take_cache_steps()[0] == []
    bench.submit((1, 4, 1))
    assert bench.engine.take_cache_steps()[0] == [[stored(names(1, 1))]]


def test_a_cancelled_request_tells_of_the_blocks_that_it_computed():
    bench = Bench(step_tokens=8)
    bench.engine.keep_cache_steps()
    job = bench.submit((1, 20, 5))
    bench.at(19)  # 8 of 20 tokens
    bench.engine.leave(job)
    bench.at(1000)
    assert bench.engine.take_cache_steps()[0] == [
        [stored(names(1, 2))],
        [stored(names(1, 4)[2:], names(1, 2)[1])],
    ]
