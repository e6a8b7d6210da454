"""cpp/simulation/replay_programs.h, through `_core.replay.simulate`: some wait, others keep their caches."""

import numpy as np
import pytest

from vllm_router._core import replay
from vllm_router.replay import Fleet, PolicySpec, Programs, TraceError, generate, run
from vllm_router.replay.runner import measure

DIRECT, QUEUED = 0, 1


@pytest.fixture(scope="module")
def played():
    """Agents whose sessions together need thrice the caches: results by mode, and the trace."""
    trace = generate("agents", 1, 24, 12)
    fleet = Fleet(workers=2, cache_tokens=480_000)
    routing = fleet.routing() | PolicySpec("auto").as_core(trace.block_size, fleet.index_blocks(trace), 1)
    results = {}
    for mode in ("off", "observe", "on"):
        given = routing | Programs(mode).as_core()
        results[mode] = replay.simulate(trace.as_core(), given, fleet.as_core(trace))
    return trace, routing, fleet, results


def test_every_turn_finishes_and_some_wait(played):
    _, _, _, results = played
    for result in results.values():
        assert set(np.asarray(result["status"])) == {0}
    waits = np.asarray(results["on"]["wait_s"])
    how = np.asarray(results["on"]["dispatch"])
    assert set(how) == {DIRECT, QUEUED}
    assert waits[how == DIRECT].max() == 0
    assert 0 < waits.max() < 301  # max_wait


def test_observe_changes_nothing(played):
    _, _, _, results = played
    for name in ("worker", "e2e_s", "hit_tokens"):
        assert np.array_equal(results["off"][name], results["observe"][name], equal_nan=True)


def test_the_others_keep_their_caches(played):
    _, _, _, results = played
    hits = {mode: np.asarray(result["hit_tokens"]).sum() for mode, result in results.items()}
    assert hits["on"] > hits["off"]
    assert results["on"]["span_s"] < results["off"]["span_s"]


def test_equal_arguments_give_equal_results(played):
    trace, routing, fleet, results = played
    again = replay.simulate(trace.as_core(), routing | Programs("on").as_core(), fleet.as_core(trace))
    assert np.array_equal(again["e2e_s"], results["on"]["e2e_s"], equal_nan=True)


def test_what_does_not_fit_is_an_error(played):
    trace, routing, fleet, _ = played
    for given, message in (
        ({"programs": "on fill=2"}, 'programs, fill is "2"; it must be'),
        ({"programs": "on", "admission": ""}, "programs is given with admission, which a replay"),
    ):
        with pytest.raises(ValueError, match=message):
            replay.simulate(trace.as_core(), routing | given, fleet.as_core(trace))
    with pytest.raises(TypeError, match="it must be a text such as"):
        replay.simulate(trace.as_core(), routing | {"programs": 1}, fleet.as_core(trace))
    with pytest.raises(TraceError, match="have no programs yet"):
        run(trace, "auto", Fleet(prefill=1, decode=1), programs=Programs())


def test_the_runner_plays_them(played):
    trace, _, fleet, results = played
    row = measure(trace, PolicySpec("auto"), fleet, 1, programs=Programs("on"))
    assert row["hit_share"] == pytest.approx(
        np.asarray(results["on"]["hit_tokens"]).sum() / trace.input_tokens.sum()
    )
