"""BatchEngine against its slow twin, and what holds of any engine."""

from hypothesis import given
from hypothesis import strategies as st

from tests.models.engine import Options, Request, SlowEngine
from vllm_router import _core_testing as testing


@st.composite
def fleets(draw):
    block_tokens = draw(st.sampled_from([1, 4, 16, 64]))
    options = Options(
        coefficients=tuple(
            draw(st.sampled_from(values)) for values in ([0, 12], [0, 80], [0, 3.5], [0, 50], [0, 73])
        ),
        speed=draw(st.sampled_from([1.0, 0.5, 3.0])),
        step_tokens=draw(st.sampled_from([1, 7, 64, 8192])),
        max_running=draw(st.integers(1, 5)),
        cache_blocks=draw(st.integers(0, 24)),
        block_tokens=block_tokens,
        min_computed_tokens=draw(st.sampled_from([0, 1, 16])),
        prompts_first=draw(st.booleans()),
    )
    requests = []
    for tag in range(draw(st.integers(1, 12))):
        # A few prompts that share prefixes: block i of family f after a fork at block k.
        family, fork = draw(st.integers(0, 2)), draw(st.integers(0, 6))
        prompt = draw(st.integers(0, 10 * block_tokens))
        output = draw(st.integers(0, 40))
        whole = -(-(prompt + output) // block_tokens)
        named = draw(st.integers(0, whole))
        prompt_blocks = min(named, -(-prompt // block_tokens))
        names = [1 + i if i < fork else 1000 * (family + 1) + 50 * fork + i for i in range(named)]
        requests.append(Request(tag, prompt, output, names, prompt_blocks))
    gaps = st.sampled_from([0, 1, 10**6, 12 * 10**9, 123_456_789_012])
    for request in requests:
        role = draw(st.sampled_from(["", "", "held", "fetched"]))
        request.is_held = role == "held"
        request.is_fetched = role == "fetched"
        if request.is_held:
            request.output_tokens = min(request.output_tokens, 1)
            request.names = request.names[: request.prompt_blocks]
    # How long a transfer takes, and how long blocks stay at prefill, by the request's number.
    delays = [draw(gaps) for _ in requests]
    calls = [(draw(gaps), "submit", request) for request in requests]
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(calls)))
        what = draw(st.sampled_from(["cancel", "wipe", "look", "slow", "fast"]))
        calls.insert(place, (draw(gaps), what, draw(st.sampled_from(requests))))
    return options, calls, delays


def make(options: Options, *, skip: bool) -> testing.BatchEngine:
    return testing.BatchEngine(
        list(options.coefficients),
        speed=options.speed,
        step_tokens=options.step_tokens,
        max_running=options.max_running,
        cache_blocks=options.cache_blocks,
        block_tokens=options.block_tokens,
        min_computed_tokens=options.min_computed_tokens,
        prompts_first=options.prompts_first,
        skip_decode_steps=skip,
    )


@given(fleets())
def test_stretches_and_steps_and_the_slow_twin_agree(fleet):
    options, calls, delays = fleet
    slow, engines = SlowEngine(options), [make(options, skip=True), make(options, skip=False)]
    ids: dict[int, list[int]] = {}
    open_ones: set[int] = set()
    cancelled: set[int] = set()
    requests = {request.tag: request for _, what, request in calls if what == "submit"}
    moving: list[tuple[int, int, str]] = []  # time, number, and what comes then
    now = 0
    told = 0
    times = [0]

    def advance(until: int) -> None:
        nonlocal told
        expected = slow.advance_to(until)
        for model in engines:
            assert model.advance_to(until) == expected
            assert model.held == slow.held()
            assert model.held <= options.cache_blocks
            assert model.computed_tokens == slow.computed_tokens
        for kind, tag, _, time in expected:
            assert time >= times[-1]
            times.append(time)
            told += kind == "finished"
            if kind == "finished":
                open_ones.discard(tag)
            if kind == "fetch" or (kind == "finished" and requests[tag].is_held):
                moving.append((time + delays[tag], tag, kind))

    def step(until: int | None) -> bool:
        """To the next step or the next blocks that move, whichever is first."""
        ends = [slow.end] if slow.end is not None else []
        times = [*ends, *(time for time, _, _ in moving)]
        if not times or (until is not None and min(times) > until):
            return False
        at = min(times)
        advance(at)
        for time, tag, kind in sorted(moving):
            if time != at:
                continue
            moving.remove((time, tag, kind))
            request = requests[tag]
            if kind == "fetch":
                slow.blocks_came(request, at)
            else:
                slow.release_held(request, at)
            for model, number in zip(engines, ids[tag], strict=True):
                if kind == "fetch":
                    model.fetched(number, at)
                else:
                    model.release_held(number, at)
            advance(at)
        return True

    for gap, what, request in calls:
        now += gap
        while step(now):
            pass
        advance(now)
        if what == "submit":
            slow.submit(request, now)
            ids[request.tag] = [
                model.submit(
                    request.prompt_tokens,
                    request.output_tokens,
                    request.names,
                    request.prompt_blocks,
                    request.tag,
                    now,
                    request.is_held,
                    request.is_fetched,
                )
                for model in engines
            ]
            open_ones.add(request.tag)
        elif what == "wipe":
            slow.wipe()
            for model in engines:
                model.wipe()
        elif what in ("slow", "fast"):
            speed = options.speed * (2.0 if what == "fast" else 0.25)
            slow.set_speed(speed)
            for model in engines:
                model.set_speed(speed, now)
        elif (
            what == "cancel"
            and request.tag in open_ones - cancelled
            and request not in slow.fetching + slow.fetched
        ):
            slow.cancel(request)
            for model, number in zip(engines, ids[request.tag], strict=True):
                model.cancel(number, now)
            cancelled.add(request.tag)
            open_ones.discard(request.tag)
        advance(now)  # which tells of requests that were admitted at once
        for tag in open_ones:
            tokens = {model.tokens_at(number, now) for model, number in zip(engines, ids[tag], strict=True)}
            times_of_next = {
                model.next_token_time(number, now)
                for model, number in zip(engines, ids[tag], strict=True)
                if model.hit_tokens(number) is not None and model.tokens_at(number, now) > 0
            }
            assert len(tokens) == 1
            assert len(times_of_next) <= 1
        names = request.names
        assert {model.match(names) for model in engines} == {slow.match(names)}

    while step(None):
        pass
    assert not open_ones
    assert not slow.kept
    assert told == len(ids) - len(cancelled)
    for model in engines:
        assert model.next_event is None
        assert model.load == (0, 0)
        assert model.held == 0
    if not cancelled:
        # Tokens are conserved: what was not hit was computed.
        assert engines[0].computed_tokens == sum(
            min(1, r.prompt_tokens) if r.is_fetched else r.prompt_tokens - r.hit for r in requests.values()
        )
