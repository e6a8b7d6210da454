"""cpp/simulation/batch_engine.h: what can be worked out by hand. Times in picoseconds."""

import pytest

from vllm_router import _core_testing as testing

MS = 10**9
US = 10**6
NS = 10**3
STEP, PREFILL, PAIR, SEQUENCE, CONTEXT = 10 * MS, 100 * US, 2 * NS, 50 * US, 100 * NS
COEFFICIENTS = [10, 100, 2, 50, 100]


def engine(coefficients: list[float] = COEFFICIENTS, **options: float) -> testing.BatchEngine:
    return testing.BatchEngine(coefficients, **options)


def names(first: int, blocks: int) -> list[int]:
    return [first * 1000 + i + 1 for i in range(blocks)]


def submit(model, tokens, output=1, first=1, tag=0, now=0):
    """A prompt of full blocks whose names share nothing with those of another `first`."""
    return model.submit(tokens, output, names(first, tokens // 16), tokens // 16, tag, now)


def run(model) -> list[tuple[str, int, int, int]]:
    events = []
    while model.next_event is not None:
        events += model.advance_to(model.next_event)
    return events


def prefill(tokens: int, before: int = 0) -> int:
    return PREFILL * tokens + PAIR * tokens * (2 * before + tokens) // 2


def test_one_request_takes_one_step_for_its_prompt_and_one_for_each_further_token():
    model = engine()
    submit(model, 160, output=3)
    first = STEP + prefill(160)
    second = first + STEP + SEQUENCE + CONTEXT * 161
    third = second + STEP + SEQUENCE + CONTEXT * 162
    assert run(model) == [("first_token", 0, 0, first), ("finished", 0, 0, third)]
    assert (model.steps, model.busy, model.computed_tokens) == (3, third, 160)


@pytest.mark.parametrize("output", [0, 1])
def test_an_answer_of_one_token_ends_with_its_prompt(output):
    model = engine()
    submit(model, 16, output=output)
    end = STEP + prefill(16)
    assert run(model) == [("first_token", 0, 0, end), ("finished", 0, 0, end)]


def test_a_prompt_longer_than_a_step_is_computed_in_chunks():
    model = engine(step_tokens=100)
    submit(model, 250)
    chunks = [(100, 0), (100, 100), (50, 200)]
    assert run(model)[-1][3] == sum(STEP + prefill(*chunk) for chunk in chunks)
    assert model.steps == 3


def test_a_full_batch_decodes_in_steps_that_grow_with_it():
    model = engine()
    for tag in range(8):
        submit(model, 16, output=5, first=tag, tag=tag)
    events = run(model)
    # The first begins alone; the others share the second step with its second token.
    first = STEP + prefill(16)
    second = first + STEP + 7 * prefill(16) + SEQUENCE + CONTEXT * 17
    assert [event[3] for event in events if event[0] == "first_token"] == [first, *[second] * 7]
    steps = [STEP + 8 * SEQUENCE + CONTEXT * (18 + 7 * 17 + 8 * k) for k in range(3)]
    last = STEP + 7 * SEQUENCE + CONTEXT * 7 * 20
    assert [event[3] for event in events if event[0] == "finished"] == [
        second + sum(steps),
        *[second + sum(steps) + last] * 7,
    ]


def test_a_second_turn_computes_what_is_new():
    model = engine()
    submit(model, 160)
    run(model)
    now = 10**12
    submit(model, 320, tag=1, now=now)
    assert run(model) == [
        ("first_token", 1, 160, now + STEP + prefill(160, before=160)),
        ("finished", 1, 160, now + STEP + prefill(160, before=160)),
    ]


def test_the_answer_is_cached_with_its_prompt():
    model = engine()
    model.submit(32, 33, names(1, 4), 2, 0, 0)
    run(model)
    model.submit(80, 1, names(1, 5), 5, 1, 10**12)
    assert run(model)[0][2] == 64


@pytest.mark.parametrize(
    ("tokens", "least", "hit"),
    [(16, 1, 0), (17, 1, 16), (32, 1, 16), (64, 16, 48), (70, 16, 48), (79, 16, 48), (80, 16, 64)],
)
def test_some_of_a_prompt_is_always_computed(tokens, least, hit):
    model = engine(min_computed_tokens=least)
    for tag in range(2):
        submit(model, tokens, tag=tag, now=tag * 10**12)
        events = run(model)
    assert events[0][2] == hit


def test_blocks_are_hit_from_the_end_of_the_step_that_computed_them():
    model = engine(step_tokens=96)
    submit(model, 160)  # in steps of 96 and 64 tokens
    submit(model, 160, tag=1, now=1)  # begins in what the second step has left
    hits = {event[1]: event[2] for event in run(model)}
    assert hits == {0: 0, 1: 96}


def test_the_least_recently_used_blocks_are_lost_from_the_tail():
    model = engine(cache_blocks=10)
    for first in (1, 2):
        submit(model, 48, first=first, now=first * 10**12)
        run(model)
    submit(model, 64, first=3, now=3 * 10**12)
    run(model)
    assert [model.match(names(first, 3)) for first in (1, 2, 3)] == [1, 3, 3]


def test_requests_wait_for_places_in_order_of_arrival():
    model = engine(cache_blocks=10)
    for tag, tokens in enumerate((100, 80, 10)):  # 7, 6 and 1 blocks with their answers
        submit(model, tokens, output=2, first=tag, tag=tag)
    assert model.load == (1, 2)
    events = run(model)
    assert [event[1] for event in events if event[0] == "first_token"] == [0, 1, 2]
    finished = {event[1]: event[3] for event in events if event[0] == "finished"}
    first_tokens = {event[1]: event[3] for event in events if event[0] == "first_token"}
    assert first_tokens[1] > finished[0]


def test_no_more_than_max_running_run():
    model = engine(max_running=2)
    for tag in range(5):
        submit(model, 16, output=4, first=tag, tag=tag)
    assert model.load == (1, 4)
    model.advance_to(model.next_event)
    assert model.load == (2, 3)
    assert len(run(model)) == 9


def test_a_request_longer_than_the_whole_cache_is_served_alone():
    model = engine(cache_blocks=4)
    submit(model, 160, output=3)
    submit(model, 16, output=3, first=2, tag=1)
    order = [(kind, tag) for kind, tag, *_ in run(model)]
    assert order == [("first_token", 0), ("finished", 0), ("first_token", 1), ("finished", 1)]


def test_without_a_cache_nothing_is_hit():
    model = engine(cache_blocks=0)
    for tag in range(2):
        submit(model, 160, tag=tag, now=tag * 10**12)
        assert run(model)[0][2] == 0


def test_a_worker_of_half_the_speed_takes_twice_as_long():
    model = engine(speed=0.5)
    submit(model, 160, output=3)
    usual = engine()
    submit(usual, 160, output=3)
    assert [event[3] for event in run(model)] == [2 * event[3] for event in run(usual)]


def test_a_new_speed_counts_from_the_next_step():
    model = engine()
    submit(model, 16, output=1000)
    now = model.next_event
    model.advance_to(now)
    second = now + STEP + SEQUENCE + CONTEXT * 17
    model.set_speed(0.5, now + 1)
    assert model.next_event == second
    model.advance_to(second)
    model.set_speed(1.0, second)
    # The third began at half the speed, and ends with it.
    assert model.next_event == second + 2 * (STEP + SEQUENCE + CONTEXT * 18)


def test_prompts_first_lets_responses_pause_while_a_prompt_is_computed():
    model = engine(prompts_first=True)
    submit(model, 160, output=3)
    first = STEP + prefill(160)
    model.advance_to(first)
    submit(model, 320, output=1, first=2, tag=1, now=first + 1)
    # The step under way is of decoding; the next one is the prompt's alone.
    second = first + STEP + SEQUENCE + CONTEXT * 161
    third = second + STEP + prefill(320)
    fourth = third + STEP + SEQUENCE + CONTEXT * 162
    assert run(model) == [
        ("first_token", 1, 0, third),
        ("finished", 1, 0, third),
        ("finished", 0, 0, fourth),
    ]


def test_a_request_in_a_stretch_comes_in_at_the_next_step():
    model = engine()
    submit(model, 16, output=1000)
    now = model.next_event
    model.advance_to(now)
    second = now + STEP + SEQUENCE + CONTEXT * 17
    assert model.next_event > second
    submit(model, 16, first=2, tag=1, now=now + 1)
    assert model.next_event == second
    model.advance_to(second)
    # One that comes exactly between two steps is too late for the one that begins.
    third = model.next_event
    model.advance_to(third)
    fourth = third + STEP + SEQUENCE + CONTEXT * 19
    submit(model, 16, first=3, tag=2, now=third)
    assert model.next_event == fourth


def test_tokens_are_counted_within_a_stretch():
    model = engine([10, 0, 0, 0, 0])
    request = submit(model, 16, output=50)
    assert (model.tokens_at(request, 0), model.hit_tokens(request)) == (0, 0)
    model.advance_to(10 * MS)
    assert model.next_event == 500 * MS
    for now in (10 * MS, 11 * MS, 19 * MS, 20 * MS, 475 * MS):
        model.advance_to(now)
        assert model.tokens_at(request, now) == now // (10 * MS)
        assert model.next_token_time(request, now) == (now // (10 * MS) + 1) * 10 * MS


def test_cancelling_one_that_waits_lets_the_next_one_in():
    model = engine(cache_blocks=10)
    submit(model, 64, output=50, first=1, tag=0)  # does not fit beside the second
    big = submit(model, 160, output=2, first=2, tag=1, now=0)
    submit(model, 16, first=3, tag=2, now=0)
    model.advance_to(model.next_event)
    assert model.load == (1, 2)
    model.cancel(big, model.busy + 1)
    events = run(model)
    assert [event[1] for event in events] == [2, 2, 0]


def test_cancelling_one_that_runs_takes_effect_with_the_step():
    model = engine()
    going = submit(model, 160, output=1000)
    submit(model, 32, output=3, first=2, tag=1)
    model.advance_to(model.next_event)
    model.cancel(going, model.busy + 1)
    assert model.load == (1, 0)
    held = model.held
    model.advance_to(model.next_event)
    assert model.held < held
    assert [event[:2] for event in run(model)] == [("finished", 1)]
    assert model.held == 0
    assert model.match(names(1, 10)) == 10


def test_a_cancelled_prompt_keeps_what_was_computed():
    model = engine(step_tokens=100)
    request = submit(model, 250)
    model.advance_to(model.next_event)
    model.cancel(request, model.busy)
    assert run(model) == []
    assert (model.match(names(1, 15)), model.held, model.load) == (12, 0, (0, 0))


def test_without_any_time_everything_is_over_at_once():
    model = engine([0, 0, 0, 0, 0])
    for tag in range(3):
        submit(model, 16, output=1000, first=tag, tag=tag)
    assert {event[3] for event in model.advance_to(0)} == {0}
    assert model.next_event is None
