"""cpp/simulation/batch_engine.h: what can be worked out by hand. Times in picoseconds."""

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
