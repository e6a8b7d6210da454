"""cpp/simulation/replay_admission.h, through `_core.replay.simulate`: who waits, and who goes next."""

import numpy as np
import pytest

from tests.fakes.traces import columns
from vllm_router._core import replay

INTERACTIVE, DEFAULT, BATCH = range(3)
FINISHED, REFUSED, CUT_SHORT, QUEUE_FULL, DISPLACED, TIMED_OUT = range(6)
DIRECT, QUEUED, AGED, NOT_DISPATCHED = 0, 1, 2, 255

# 10 ms a step, 0.1 ms a prompt token, nothing else.
PLAIN = {
    "step_ms": 10,
    "prefill_us_per_token": 100,
    "attention_ns_per_token2": 0,
    "decode_us_per_sequence": 0,
    "context_ns_per_token": 0,
}
ONE = {"workers": 1, "cache_blocks": 1000, "coefficients": PLAIN}
# Every class has room wherever a worker has a place.
PLACES = "\n".join(f"class {name} gate=open age_after_ms=0" for name in ("interactive", "default", "batch"))


def seconds_of(tokens: int, response: int) -> float:
    """How long a worker takes for a request that it has alone."""
    return 0.01 * response + 0.0001 * tokens


def trace_of(rows, **members) -> dict:
    """A trace of (arrival, input tokens, output tokens, class, tenant); no prompt shares a block."""
    requests = []
    for number, (arrival, tokens, response, *_) in enumerate(rows):
        requests.append(
            (arrival, tokens, response, range(1 + 1000 * number, 1 + 1000 * number + tokens // 16))
        )
    return columns(
        requests,
        priority_classes=np.array([row[3] for row in rows], np.uint8),
        tenants=np.array([row[4] for row in rows], np.uint32),
        **members,
    )


def play(rows, lines=PLACES, fleet=ONE, **routing) -> dict:
    given = {"policy": "round_robin", "admission": lines, "max_worker_requests": 1, **routing}
    return replay.simulate(trace_of(rows), given, fleet)


def traffic(seed: int, count: int = 60, tenants: int = 3) -> list[tuple]:
    """Requests of all classes, more than a worker can serve at once."""
    dice = np.random.default_rng(seed)
    arrival = np.cumsum(dice.exponential(0.05, count))
    return [
        (
            float(arrival[row]),
            int(dice.integers(16, 400)),
            int(dice.integers(1, 12)),
            int(dice.integers(3)),
            int(dice.integers(tenants)),
        )
        for row in range(count)
    ]


def same(a: dict, b: dict) -> bool:
    return all(
        same(a[name], b[name])
        if isinstance(a[name], dict)
        else np.array_equal(a[name], b[name], equal_nan=True)
        if isinstance(a[name], np.ndarray)
        else a[name] == b[name]
        for name in a
    )


# ---- twins


def one_at_a_time(rows) -> list[float]:
    """The slow twin: one worker with one request at a time, the highest class first, in each the oldest."""
    waits = [0.0] * len(rows)
    waiting: list[int] = []
    free_s, next_row = 0.0, 0
    while waiting or next_row < len(rows):
        if not waiting:
            free_s = max(free_s, rows[next_row][0])
        while next_row < len(rows) and rows[next_row][0] <= free_s:
            waiting.append(next_row)
            next_row += 1
        row = min(waiting, key=lambda number: (rows[number][3], number))
        waiting.remove(row)
        waits[row] = free_s - rows[row][0]
        free_s += seconds_of(rows[row][1], rows[row][2])
    return waits


@pytest.mark.parametrize("seed", range(8))
def test_one_worker_serves_the_classes_as_the_slow_twin_does(seed):
    rows = [(*row[:4], 0) for row in traffic(seed)]
    result = play(rows)
    assert (result["status"] == FINISHED).all()
    assert result["wait_s"] == pytest.approx(one_at_a_time(rows), abs=1e-6)
    assert (result["dispatch"] == np.where(result["wait_s"] > 0, QUEUED, DIRECT)).all()


@pytest.mark.parametrize("policy", ["auto", "cache_aware", "least_load", "round_robin", "random"])
@pytest.mark.parametrize("seed", range(3))
def test_where_all_have_room_nothing_differs_from_a_replay_without_classes(policy, seed):
    trace = trace_of(traffic(seed))
    fleet = ONE | {"workers": 3}
    routing = {"policy": policy, "seed": seed}
    with_classes = replay.simulate(trace, routing | {"admission": PLACES}, fleet)
    without = replay.simulate(trace, routing, fleet)
    assert len(without["wait_s"]) == len(without["dispatch"]) == 0
    assert (with_classes["dispatch"] == DIRECT).all()
    assert (with_classes["wait_s"] == 0).all()
    for result in (with_classes, without):
        del result["wait_s"], result["dispatch"]
    assert same(with_classes, without)


@pytest.mark.parametrize("routers", [1, 3], ids=["one", "three"])
@pytest.mark.parametrize("policy", ["auto", "cache_aware", "least_load", "random"])
def test_the_same_seed_gives_the_same_bytes(policy, routers):
    trace = trace_of(traffic(5, 300))
    fleet = ONE | {"workers": 3, "events": [{"time_s": 4.0, "kind": "fail", "worker": 1}]}
    routing = {"policy": policy, "seed": 7, "admission": "", "routers": routers, "max_worker_requests": 4}
    first, again = (replay.simulate(trace, routing, fleet) for _ in range(2))
    assert same(first, again)
    assert (first["wait_s"] > 0).any()
    assert np.isin(first["status"], [FINISHED, CUT_SHORT]).all()


# ---- room


def test_the_highest_class_goes_first():
    rows = [
        (0.0, 100, 5, DEFAULT, 0),
        (0.01, 100, 5, BATCH, 0),
        (0.02, 100, 5, DEFAULT, 0),
        (0.03, 100, 5, 0, 0),
    ]
    waits = play(rows)["wait_s"]
    assert waits[0] == 0
    assert waits[3] < waits[2] < waits[1]


def long_stream_beside_batch(ceiling: float) -> dict:
    """A request that holds 60 of 100 blocks for some 3 s, and one of batch in the middle of it."""
    rows = [(0.0, 960, 300, INTERACTIVE, 0), (1.55, 100, 2, BATCH, 0)]
    fleet = ONE | {"cache_blocks": 100}
    return play(rows, f"class batch kv_ceiling={ceiling}", fleet, max_worker_requests=0)


def test_batch_waits_for_a_cache_below_its_ceiling():
    assert long_stream_beside_batch(0.5)["wait_s"][1] > 1
    assert long_stream_beside_batch(0.9)["wait_s"][1] == 0


def test_a_worker_computes_one_prompt_of_batch_at_a_time():
    rows = [(0.0, 1000, 50, BATCH, 0), (0.01, 1000, 50, BATCH, 0)]
    result = play(rows, "", max_worker_requests=0)
    assert result["wait_s"].tolist()[0] == 0
    assert result["wait_s"][1] == pytest.approx(result["ttft_s"][0] - 0.01)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["as-before", "swapped"])
def test_a_free_worker_gets_the_prompt_that_it_has_whichever_came_first(order):
    """Two prompts, each cached at one worker, come back while both serve others; one is free first."""
    prompts = [list(range(1 + 100 * number, 41 + 100 * number)) for number in range(2)]
    rows = [(0.0, 640, 1, prompts[0]), (0.0, 640, 1, prompts[1])]
    rows += [(1.0, 640, 100, [900]), (1.0, 640, 60, [901])]
    rows += [(1.1, 640, 1, prompts[number]) for number in order]
    routing = {"policy": "cache_aware", "max_worker_requests": 1, "admission": PLACES}
    result = replay.simulate(columns(rows), routing, ONE | {"workers": 2})
    worker, waits = result["worker"], result["wait_s"]
    assert worker[0] != worker[1]
    has_it = 4 + order.index(0 if worker[0] == worker[3] else 1)
    other = 9 - has_it
    assert worker[has_it] == worker[3]
    assert waits[has_it] < waits[other]
    assert result["hit_tokens"][has_it] > 0
    blind = replay.simulate(columns(rows), routing | {"admission_search": False}, ONE | {"workers": 2})
    assert blind["wait_s"][4] < blind["wait_s"][5]


# ---- tenants


def test_a_light_tenant_does_not_wait_behind_a_flood():
    rows = [(0.0, 100, 5, DEFAULT, 0)] * 40 + [(0.5, 100, 5, DEFAULT, 1)]
    assert play(rows)["wait_s"][-1] < 3 * seconds_of(100, 5)
    alike = [(*row[:4], 0) for row in rows]
    assert play(alike)["wait_s"][-1] > 20 * seconds_of(100, 5)


def test_shares_follow_the_weights_of_tenants():
    rows = [(0.0, 100, 3, DEFAULT, row % 2) for row in range(400)]
    lines = f"{PLACES}\ntenant weight=4 search"
    result = play(rows, lines, tenant_names=["search", "other"])
    first = np.argsort(result["wait_s"], kind="stable")[:100]
    assert 75 <= (first % 2 == 0).sum() <= 85


# ---- who gets no worker


def test_a_full_queue_rejects_and_a_higher_class_displaces():
    lines = "class interactive queue_size=1\nclass batch gate=gated queue_size=1 kv_ceiling=0.95"
    lines += "\nclass default kv_ceiling=0.95"
    rows = [(0.0, 100, 50, INTERACTIVE, 0)]
    rows += [(0.1, 100, 5, BATCH, 0), (0.2, 100, 5, BATCH, 0)]  # the second has no place
    rows += [
        (0.3, 100, 5, INTERACTIVE, 0),
        (0.4, 100, 5, INTERACTIVE, 0),
    ]  # that one takes the place of batch
    result = play(rows, lines)
    assert result["status"].tolist() == [FINISHED, DISPLACED, QUEUE_FULL, FINISHED, FINISHED]
    assert result["dispatch"].tolist() == [DIRECT, NOT_DISPATCHED, NOT_DISPATCHED, QUEUED, QUEUED]
    assert result["wait_s"][1] == pytest.approx(0.3)


def test_a_wait_ends_with_the_timeout_of_its_class():
    rows = [(0.0, 100, 400, DEFAULT, 0), (0.1, 100, 5, DEFAULT, 0), (0.1, 100, 5, BATCH, 0)]
    result = play(rows, PLACES.replace("class default", "class default queue_timeout_ms=1000"))
    assert result["status"].tolist() == [FINISHED, TIMED_OUT, FINISHED]
    assert 1.0 <= result["wait_s"][1] <= 1.1 + 1e-6
    assert np.isnan(result["ttft_s"][1])


def test_with_nobody_there_a_request_is_refused():
    fleet = ONE | {"events": [{"time_s": 0.05, "kind": "fail", "worker": 0}]}
    result = play([(0.1, 100, 5, DEFAULT, 0)], fleet=fleet)
    assert result["status"].tolist() == [REFUSED]


def test_a_retry_is_not_admitted_again_and_its_place_is_free_at_the_end():
    rows = [(0.0, 4000, 5, BATCH, 0), (0.0, 4000, 5, BATCH, 0), (2.0, 100, 5, BATCH, 0)]
    fleet = ONE | {"workers": 2, "events": [{"time_s": 0.05, "kind": "fail", "worker": 0}]}
    result = play(rows, "", fleet, max_worker_requests=0)
    assert (result["status"] == FINISHED).all()
    assert (result["worker"] == 1).all()
    assert result["wait_s"].tolist() == [0, 0, 0]


def test_an_aged_request_goes_as_one_of_the_class_above():
    lines = "\n".join(
        [
            "class interactive gate=open",
            "class default gate=open age_after_ms=500",
            "class batch gate=open age_after_ms=0",
        ]
    )
    rows = [(0.0, 100, 5, INTERACTIVE, 0), (0.01, 100, 5, DEFAULT, 0)]
    rows += [(0.02 + 0.03 * number, 100, 5, INTERACTIVE, 0) for number in range(60)]
    result = play(rows, lines)
    assert result["dispatch"][1] == AGED
    assert 0.5 <= result["wait_s"][1] < 0.7


# ---- what cannot be


@pytest.mark.parametrize(
    ("members", "routing", "fleet", "sentence"),
    [
        ({"priority_classes": np.array([3], np.uint8)}, {}, {}, "priority_classes of request 0 is 3"),
        ({"priority_classes": np.zeros(2, np.uint8)}, {}, {}, "priority_classes has 2 entries"),
        ({"tenants": np.zeros(3, np.uint32)}, {}, {}, "tenants has 3 entries"),
        ({"tenants": np.array([4], np.uint32)}, {"tenant_names": ["a"]}, {}, "tenants of request 0 is 4"),
        ({}, {"admission": "class silver"}, {}, "line 1: class is"),
        ({}, {"streams": False}, {}, "streams false"),
        (
            {},
            {},
            {"workers": 2, "stages": {"prefill": 1, "prefill_cache_blocks": 1000}},
            "a fleet with stages",
        ),
    ],
    ids=["class", "classes", "tenants", "tenant", "lines", "streams", "stages"],
)
def test_what_cannot_be_is_refused_with_a_sentence(members, routing, fleet, sentence):
    trace = columns([(0.0, 100, 3, range(6))], **members)
    with pytest.raises(ValueError, match=sentence):
        replay.simulate(trace, {"policy": "auto", "admission": "", **routing}, ONE | fleet)


def test_lines_must_be_a_text():
    with pytest.raises(TypeError, match='routing\\["admission"\\] is 7'):
        replay.simulate(columns([(0.0, 100, 3, range(6))]), {"policy": "auto", "admission": 7}, ONE)
