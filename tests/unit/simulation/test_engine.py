"""cpp/simulation/engine.h. Times in microseconds here; the engine counts nanoseconds."""

import pytest

from vllm_router._core import testing

US = 1000
MS = 1000 * US
BLOCK = 16


def options(**values: float) -> testing.EngineOptions:
    made = testing.EngineOptions()
    for name, value in {"ttft_ms": 0, "prefill_us_per_token": 10, "tpot_ms": 1, **values}.items():
        setattr(made, name, value)
    return made


def engine(**values: float) -> testing.Engine:
    return testing.Engine(options(**values))


def prompt(first: int, tokens: int) -> tuple[int, list[int]]:
    """Length and chain of a prompt that shares nothing with those of another `first`."""
    return tokens, testing.block_chain([first] * tokens, BLOCK)


def start(engine: testing.Engine, tokens: tuple[int, list[int]], now_us: int, output_tokens: int = 4):
    return engine.start(tokens[0], output_tokens, tokens[1], now_us * US)


def test_the_first_token_comes_after_the_fixed_part_and_the_prefill():
    _, cached, timeline = start(engine(ttft_ms=20), prompt(1, 100), now_us=5000)
    assert cached == 0
    assert timeline.first_token == 5 * MS + 20 * MS + 100 * 10 * US


def test_further_tokens_follow_at_an_even_pace():
    _, _, timeline = start(engine(), prompt(1, 100), now_us=0, output_tokens=4)
    assert [timeline.token_time(k) // US for k in range(4)] == [1000, 2000, 3000, 4000]
    assert timeline.end == 4 * MS
    assert [timeline.tokens_at(t * US) for t in (0, 999, 1000, 2500, 4000, 9000)] == [0, 0, 1, 2, 4, 4]


def test_an_answer_without_tokens_ends_with_its_prefill():
    _, _, timeline = start(engine(), prompt(1, 100), now_us=0, output_tokens=0)
    assert timeline.end == 1 * MS


def test_cached_tokens_take_no_time():
    model = engine()
    start(model, prompt(1, 160), now_us=0)
    _, cached, timeline = start(model, prompt(1, 320), now_us=10_000)
    assert cached == 160
    assert timeline.first_token == 10 * MS + 160 * 10 * US


@pytest.mark.parametrize(("tokens", "cached"), [(1, 0), (15, 0), (16, 0), (17, 16), (32, 16), (33, 32)])
def test_the_last_token_of_a_prompt_is_always_computed(tokens, cached):
    model = engine()
    start(model, prompt(1, tokens), now_us=0)
    assert start(model, prompt(1, tokens), now_us=0)[1] == cached


def test_prefills_wait_for_each_other_in_order_of_arrival():
    #   A |---1000---|
    #   B    |.......|---2000---|
    #   C      |................|-500-|
    model = engine()
    a = start(model, prompt(1, 100), now_us=0)[2]
    b = start(model, prompt(2, 200), now_us=300)[2]
    c = start(model, prompt(3, 50), now_us=500)[2]
    assert [t.first_token // US for t in (a, b, c)] == [1000, 3000, 3500]
    assert model.load(600 * US) == (1, 2)
    assert model.load(1000 * US) == (2, 1)
    assert model.load(3500 * US) == (3, 0)


def test_the_fixed_part_does_not_occupy_the_lane():
    model = engine(ttft_ms=20)
    first = start(model, prompt(1, 100), now_us=0)[2]
    second = start(model, prompt(2, 100), now_us=0)[2]
    assert second.first_token - first.first_token == 100 * 10 * US


def test_a_prompt_that_waits_hits_the_blocks_of_the_one_before_it():
    model = engine()
    start(model, prompt(1, 160), now_us=0)
    _, cached, timeline = start(model, prompt(1, 170), now_us=0)
    assert cached == 160
    assert timeline.first_token == (160 + 10) * 10 * US


def test_those_in_flight_slow_the_pace_if_the_model_says_so():
    model = engine(tpot_us_per_running=50)
    intervals = [start(model, prompt(n, 10), now_us=0)[2].token_interval for n in range(3)]
    assert intervals == [1000 * US, 1050 * US, 1100 * US]


def test_leaving_a_prefill_moves_up_whoever_waits_behind_it():
    #   A |---1000---|         leaves at 400; B and C move up by the 600 that were left
    #   B |..........|---2000---|
    #   C |.....................|-500-|
    model = engine()
    a, b, c = (start(model, prompt(n, tokens), now_us=0) for n, tokens in ((1, 100), (2, 200), (3, 50)))
    assert model.leave(a[0], [], 400 * US)
    assert [model.timeline(started[0]).first_token // US for started in (b, c)] == [2400, 2900]
    assert start(model, prompt(4, 10), now_us=400)[2].first_token == 3000 * US


def test_leaving_the_queue_moves_up_only_those_behind():
    model = engine()
    a, b, c = (start(model, prompt(n, tokens), now_us=0) for n, tokens in ((1, 100), (2, 200), (3, 50)))
    assert model.leave(b[0], [], 400 * US)
    assert [model.timeline(started[0]).first_token // US for started in (a, c)] == [1000, 1500]
    assert model.load(400 * US) == (1, 1)


def test_leaving_last_or_late_moves_nobody():
    model = engine()
    a, b = (start(model, prompt(n, 100), now_us=0) for n in (1, 2))
    assert not model.leave(b[0], [], 100 * US)
    assert not model.leave(a[0], [], 5000 * US)
    assert model.load(5000 * US) == (0, 0)
    assert start(model, prompt(3, 100), now_us=5000)[2].first_token == 6000 * US


def test_a_request_that_left_no_longer_slows_the_others():
    model = engine(tpot_us_per_running=50)
    first = start(model, prompt(1, 10), now_us=0)
    model.leave(first[0], [], 10_000 * US)
    assert start(model, prompt(2, 10), now_us=10_000)[2].token_interval == 1000 * US


def test_the_next_turn_of_a_chat_finds_its_own_history():
    model = engine()
    turn = b"<|user|>\nHow many words does a sentence of this kind need to fill a block?\n<|assistant|>\n"
    tokens = testing.tokens_of_text(turn)
    started = model.start(len(tokens), 40, testing.block_chain(tokens, BLOCK), 0)
    model.leave(started[0], testing.chain_with_answer(turn, 40, BLOCK), 50 * MS)

    history = turn + testing.answer_text(turn, 40).encode()
    next_turn = testing.tokens_of_text(history + b"\n<|user|>\nAnd two of them?\n<|assistant|>\n")
    _, cached, _ = model.start(len(next_turn), 40, testing.block_chain(next_turn, BLOCK), 60 * MS)
    assert cached == len(history) // 4 // BLOCK * BLOCK
    assert cached > len(tokens)


def test_clearing_the_cache_makes_prompts_new_again():
    model = engine()
    start(model, prompt(1, 160), now_us=0)
    model.clear_cache()
    assert start(model, prompt(1, 160), now_us=9000)[1] == 0


def test_the_same_calls_give_the_same_answers(rng):
    calls = [(rng.randrange(5), rng.randrange(1, 300), now) for now in range(0, 100_000, 700)]

    def run() -> list[tuple[int, int]]:
        model = engine(cache_blocks=30)
        started = [start(model, prompt(first, tokens), now) for first, tokens, now in calls]
        return [(cached, timeline.first_token) for _, cached, timeline in started]

    assert run() == run()


def test_first_tokens_never_overtake_each_other(rng):
    model = engine(cache_blocks=30)
    now = 0
    waiting: list[int] = []
    for _ in range(400):
        now += rng.randrange(1500)
        waiting.append(start(model, prompt(rng.randrange(5), rng.randrange(1, 300)), now)[0])
        if rng.random() < 0.5:
            model.leave(waiting.pop(rng.randrange(len(waiting))), [], now * US)
        ends = [model.timeline(request).prefill_end for request in waiting]
        assert ends == sorted(ends)
