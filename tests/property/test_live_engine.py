"""LiveEngine against the slow twin of the engine that it runs: the same at any time, whoever looks when."""

from hypothesis import given
from hypothesis import strategies as st

from tests.models.engine import Options, Request, SlowEngine
from vllm_router import _core_testing as testing

PICOS = 1000  # in a nanosecond


@st.composite
def stories(draw):
    options = Options(
        coefficients=tuple(
            draw(st.sampled_from(values)) for values in ([0, 12], [0, 80], [0, 3.5], [0, 50], [0, 73])
        ),
        step_tokens=draw(st.sampled_from([1, 7, 64])),
        max_running=draw(st.integers(1, 5)),
        cache_blocks=draw(st.integers(0, 24)),
        block_tokens=4,
        min_computed_tokens=1,
    )
    gaps = st.sampled_from([0, 1, 1000, 12_000_000, 123_456_789])
    parts = st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 20))
    calls = st.one_of(
        st.tuples(gaps, st.just("submit"), st.lists(parts, min_size=1, max_size=3)),
        st.tuples(gaps, st.just("leave"), st.integers(0, 10)),
        st.tuples(gaps, st.just("look"), st.none()),
    )
    return options, draw(st.lists(calls, max_size=20))


def live_engine(clock, options):
    return testing.LiveEngine(
        clock,
        list(options.coefficients),
        step_tokens=options.step_tokens,
        max_running=options.max_running,
        cache_blocks=options.cache_blocks,
        block_tokens=options.block_tokens,
        min_computed_tokens=options.min_computed_tokens,
    )


@given(stories())
def test_jobs_go_as_their_requests_would_in_the_slow_twin(story):
    options, calls = story
    clock = testing.ManualClock()
    clock.advance(1_000_003)
    begin = clock.now_nanos()
    engine = live_engine(clock, options)
    slow = SlowEngine(options)
    jobs: dict[int, list[Request]] = {}
    ended: set[int] = set()
    tag = 0

    def advance() -> int:
        now = (clock.now_nanos() - begin) * PICOS
        ended.update(number for kind, number, _, _ in slow.advance_to(now) if kind == "finished")
        return now

    def tokens_of(request: Request) -> int:
        return request.output_tokens if request.tag in ended else request.tokens

    for gap, what, detail in calls:
        clock.advance(gap)
        now = advance()
        if what == "submit":
            made, parts = [], []
            for number, prompt, output in detail:
                names = testing.block_chain([number] * (prompt + output), options.block_tokens)
                request = Request(tag, prompt, output, names, prompt // options.block_tokens)
                tag += 1
                made.append(request)
                parts.append((prompt, output, names, request.prompt_blocks))
            job = engine.submit(parts)
            for request in made:
                slow.submit(request, now)
            jobs[job] = made
            advance()  # an engine without costs is done at once
        elif what == "leave" and jobs:
            job = list(jobs)[detail % len(jobs)]
            engine.leave(job)
            for request in jobs.pop(job):
                if request.tag not in ended:
                    slow.cancel(request)
            advance()
        assert engine.held_blocks() == slow.held()
        for job, requests in jobs.items():
            progress = engine.progress_of(job)
            assert progress.ended == all(request.tag in ended for request in requests)
            assert progress.tokens == min(tokens_of(request) for request in requests)
            if progress.ended:
                assert progress.hit_tokens == sum(request.hit for request in requests)
            else:
                assert progress.next_token > clock.now_nanos()
                assert progress.next_event >= progress.next_token
                assert slow.end is not None
                # All who decode wait for one step; the slow twin takes every step by itself.
                if progress.tokens > 0:
                    assert progress.next_token == begin - -slow.end // PICOS


@given(stories(), st.lists(st.booleans(), min_size=20, max_size=20))
def test_the_events_of_the_cache_tell_what_the_slow_twin_has_cached(story, wipes):
    options, calls = story
    clock = testing.ManualClock()
    begin = clock.now_nanos()
    engine = live_engine(clock, options)
    engine.keep_cache_steps()
    slow = SlowEngine(options)
    cached: set[int] = set()
    is_told = True  # a wiped cache is, with the next step
    tag = 0

    def listen() -> None:
        nonlocal is_told
        steps, _ = engine.take_cache_steps()
        is_told = is_told or bool(steps)
        for kind, blocks, parent, tokens in (event for step in steps for event in step):
            if kind == "cleared":
                cached.clear()
            elif kind == "removed":
                cached.difference_update(blocks)
            else:
                assert parent is None or parent in cached
                assert not cached & set(blocks)
                assert len(tokens) == len(blocks) * options.block_tokens
                cached.update(blocks)

    for (gap, what, detail), wipe in zip(calls, wipes, strict=False):
        clock.advance(gap)
        now = (clock.now_nanos() - begin) * PICOS
        slow.advance_to(now)
        if what == "submit":
            parts = []
            for number, prompt, output in detail:
                names = testing.block_chain([number] * (prompt + output), options.block_tokens)
                slow.submit(Request(tag, prompt, output, names, prompt // options.block_tokens), now)
                tag += 1
                parts.append((prompt, output, names, prompt // options.block_tokens))
            engine.submit(parts)
            slow.advance_to(now)
        elif what == "look" and wipe:
            listen()  # to the steps that are over
            engine.wipe_cache()
            slow.wipe()
            is_told = False
        listen()
        can_be_hit = {name for name, block in slow.named.items() if block.computed}
        # What is evicted for a step is told at its end.
        assert can_be_hit <= cached
        if slow.end is None and is_told:
            assert can_be_hit == cached
