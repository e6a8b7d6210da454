"""cpp/simulation/live_engine.h, with a clock that moves when told to. Times in milliseconds here."""

import pytest

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


def test_those_who_run_together_share_the_steps():
    #   step     |--- 14 ---|--- 14 ---|- 10 -|- 10 -|     the second joins at the end of the step under way
    #   first      4 tokens       1        2      3
    #   second         ^       4 tokens    1      2
    bench = Bench()
    first = bench.submit((1, 4, 9))
    bench.at(3)
    second = bench.submit((2, 4, 9))
    assert bench.engine.load() == (1, 1)
    bench.at(14)
    assert (bench.tokens(first), bench.tokens(second)) == (1, 0)
    assert bench.engine.load() == (2, 0)
    bench.at(28)
    assert (bench.tokens(first), bench.tokens(second)) == (2, 1)
    bench.at(38)
    assert (bench.tokens(first), bench.tokens(second)) == (3, 2)
    assert bench.next_token(first) == bench.next_token(second) == 48


def test_many_answers_take_no_longer_than_one():
    alone, together = Bench(), Bench()
    job = alone.submit((1, 1, 50))
    jobs = [together.submit((number, 1, 50)) for number in range(20)]
    for bench, ms in ((alone, 11 + 490), (together, 11 + 29 + 490)):  # 19 prompts in the second step
        bench.at(ms)
    assert alone.engine.progress_of(job).ended
    assert all(together.engine.progress_of(job).ended for job in jobs)


def test_the_next_turn_finds_the_answer():
    bench = Bench()
    job = bench.submit((1, 8, 8))
    bench.at(18)
    assert bench.engine.resident_blocks() == 2
    bench.at(18 + 70)
    assert bench.engine.progress_of(job).ended
    bench.engine.leave(job)
    job = bench.submit((1, 20, 1))
    bench.at(88 + 14)
    assert bench.engine.progress_of(job).ended
    assert bench.engine.progress_of(job).hit_tokens == 16


def test_a_wiped_cache_is_hit_no_more():
    bench = Bench(INSTANT)
    bench.submit((1, 20, 1))
    bench.engine.wipe_cache()
    assert bench.engine.progress_of(bench.submit((1, 20, 1))).hit_tokens == 0
    assert bench.engine.progress_of(bench.submit((1, 20, 1))).hit_tokens == 16


def test_a_job_of_several_prompts_has_what_all_of_them_have():
    bench = Bench()
    job = bench.submit((1, 2, 3), (2, 4, 3))
    bench.at(12)  # the first prompt began a step, the second is in the next one
    assert (bench.tokens(job), bench.next_token(job)) == (0, 26)
    bench.at(26)
    assert bench.tokens(job) == 1
    bench.at(36)  # the first has ended
    assert (bench.tokens(job), bench.engine.progress_of(job).ended) == (2, False)
    bench.at(46)
    assert (bench.tokens(job), bench.engine.progress_of(job).ended) == (3, True)


def test_a_prompt_without_an_answer_ends_when_it_is_computed():
    bench = Bench()
    job = bench.submit((1, 5, 0), (1, 5, 0))
    bench.at(15 + 10 + 1)
    progress = bench.engine.progress_of(job)
    assert (progress.ended, progress.tokens, progress.hit_tokens) == (True, 0, 4)


def test_an_instant_engine_ends_everything_at_once():
    bench = Bench(INSTANT)
    job = bench.submit((1, 100_000, 100_000), (2, 0, 5))
    assert bench.engine.progress_of(job).ended
    bench.engine.leave(job)
    assert bench.engine.load() == (0, 0)


# Leaving.


def test_who_leaves_in_the_middle_frees_its_places_at_the_end_of_the_step():
    bench = Bench(cache_blocks=8)
    job = bench.submit((1, 4, 28))
    bench.at(14 + 25)
    assert (bench.tokens(job), bench.engine.held_blocks()) == (3, 8)
    assert bench.engine.leave(job)  # the stretch of its 28 tokens ends with the step
    assert bench.engine.load() == (0, 0)
    assert bench.engine.held_blocks() == 8
    bench.at(44)
    assert bench.engine.held_blocks() == 0
    assert bench.engine.resident_blocks() == 1  # the prompt's; of the answer no block was full


def test_who_waits_for_places_begins_sooner_when_another_leaves():
    bench = Bench(cache_blocks=8)
    first, second = bench.submit((1, 4, 28)), bench.submit((2, 4, 4))
    bench.at(20)
    assert bench.next_event(second) == 14 + 27 * 10
    assert bench.engine.leave(first)
    assert bench.next_event(second) == 24
    bench.at(24 + 14)
    assert bench.tokens(second) == 1


def test_who_leaves_the_queue_is_gone_at_once():
    bench = Bench()
    first, second, third = (bench.submit((number, 4, 2)) for number in range(3))
    assert bench.engine.load() == (1, 2)
    assert not bench.engine.leave(second)
    assert bench.engine.load() == (1, 1)
    bench.at(28)
    assert (bench.tokens(first), bench.tokens(third)) == (2, 1)


def test_the_names_of_who_left_last_until_its_step_has_ended():
    # Many leave in one long step, whose end reads their names; under ASan a name that is gone is an error.
    bench = Bench([1000, 0, 0, 0, 0])
    jobs = [bench.submit(*((100 * number + part, 400, 400) for part in range(5))) for number in range(20)]
    bench.at(1500)
    for job in jobs:
        bench.engine.leave(job)
    bench.at(5000)
    assert bench.engine.load() == (0, 0)
    assert bench.engine.held_blocks() == 0
    hits = bench.engine.progress_of(bench.submit((0, 400, 1)))
    assert not hits.ended
    bench.at(7000)
    assert bench.engine.progress_of(bench.submit((0, 400, 1))).ended is False
    assert bench.engine.resident_blocks() >= 100


def test_leaving_after_the_end_changes_nothing_for_others():
    bench = Bench()
    first, second = bench.submit((1, 4, 1)), bench.submit((2, 4, 50))
    bench.at(40)
    assert bench.engine.progress_of(first).ended
    before = bench.next_event(second)
    assert not bench.engine.leave(first)
    assert bench.next_event(second) == before


@pytest.mark.parametrize("moves", [[50], [1] * 50, [13, 1, 36]])
def test_it_makes_no_difference_how_often_somebody_looks(moves):
    bench = Bench()
    jobs = [bench.submit((number, 3 + number, 9)) for number in range(4)]
    now = 0
    for move in moves:
        now += move
        bench.at(now)
        bench.tokens(jobs[0])
    assert [bench.tokens(job) for job in jobs] == [3, 2, 2, 2]


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
