"""python/vllm_router/replay/fleet.py: fleets, what happens to them, engines from a file."""

from functools import partial

import numpy as np
import pytest

from tests.rows import for_each_row
from tests.unit.python.replay.test_trace import trace_of
from vllm_router.replay.fleet import Cut, Event, Fleet, PeerSync, read_engine
from vllm_router.replay.trace import TraceError
from vllm_router.replay.workloads import generate


def test_a_cache_is_its_part_of_the_working_set_but_never_small():
    trace = generate("rag", 1)
    assert trace.working_set_tokens > 1_000_000
    assert Fleet(workers=4).cache_blocks(trace) == trace.working_set_tokens // 4 // 128
    assert Fleet(workers=4, cache_share=0.5).cache_blocks(trace) == trace.working_set_tokens // 8 // 128
    assert Fleet(workers=64).cache_blocks(trace) == 160_000 // 128
    assert Fleet(cache_tokens=300_000).cache_blocks(trace) == 300_000 // 128
    assert Fleet(cache_tokens=0).cache_blocks(trace) == 0


def test_the_longest_request_fits_into_any_cache_that_is_one():
    trace = trace_of([list(range(100))])
    assert Fleet(cache_tokens=16).cache_blocks(trace) == 101  # 1,601 tokens, 3 more, and one more block


def test_the_core_gets_events_in_order_and_wipes_in_turn():
    fleet = Fleet(
        workers=2,
        events=[Event(50, "join", 1), Event(25, "fail", 0)],
        wipe_every_s=20,
        speeds=[1, 0.5],
        coefficients={"step_ms": 3},
    )
    core = fleet.as_core(trace_of([[1], [2]], arrival_s=[0, 70]))
    assert [(event["time_s"], event["kind"], event["worker"]) for event in core["events"]] == [
        (20, "wipe", 0),
        (25, "fail", 0),
        (40, "wipe", 1),
        (50, "join", 1),
        (60, "wipe", 0),
    ]
    assert core["coefficients"]["step_ms"] == 3
    assert core["coefficients"]["prefill_us_per_token"] == 80
    assert core["speeds"] == [1, 0.5]


def test_an_event_is_a_time_and_a_worker():
    assert Event.parse("fail", "120:3") == Event(120, "fail", 3)
    assert Event.parse("wipe", "0.5:0") == Event(0.5, "wipe", 0)
    assert Event.parse("speed", "60:2:0.5") == Event(60, "speed", 2, 0.5)


@pytest.mark.parametrize("text", ["60:2", "60:2:", "60:2:a", "1.2.3:0:1", "60:2:0.5.1"])
def test_a_change_of_speed_that_is_none_is_one_sentence(text):
    with pytest.raises(TraceError) as error:
        Event.parse("speed", text)
    assert str(error.value) == (
        f"--change-speed is {text!r}; it must be SECONDS:WORKER:SPEED, such as 120:3:0.5 for half of the "
        "speed of worker 3 from 120 s on"
    )


@pytest.mark.parametrize("text", ["120", "a:1", "1:b", "1:2:3", "-1:2", "1.2.3:0", ""])
def test_an_event_that_is_none_is_one_sentence(text):
    with pytest.raises(TraceError) as error:
        Event.parse("fail", text)
    assert str(error.value) == (
        f"--fail is {text!r}; it must be SECONDS:WORKER, such as 120:3 for worker 3 at 120 seconds"
    )


def test_what_replicas_tell_each_other_is_given_as_text():
    assert PeerSync.parse("0.25") == PeerSync()
    assert PeerSync.parse("1:512:0.1", [Cut(5)]) == PeerSync(1.0, 512, 0.1, cuts=[Cut(5)])
    assert Cut.parse("isolate", "120:3") == Cut(120, router=3)
    assert Cut.parse("isolate", "120:3:30") == Cut(120, 30, 3)
    assert Cut.parse("outage", "120:30") == Cut(120, 30)
    assert Cut.parse("outage", "0") == Cut(0)


@pytest.mark.parametrize(
    ("read", "text", "sentence"),
    [
        (PeerSync.parse, "", "--peer-sync is ''; it must be SECONDS[:STRIDE[:LOSS]], such as 0.25:256:0.1"),
        (PeerSync.parse, "1:2:3:4", "--peer-sync is '1:2:3:4'; it must be SECONDS"),
        (PeerSync.parse, "1:2.5", "--peer-sync is '1:2.5'; it must be SECONDS"),
        (PeerSync.parse, "0.01", "interval_s is 0.01; it must be from 0.05 to 60"),
        (PeerSync.parse, "nan", "interval_s is nan; it must be from 0.05 to 60"),
        (PeerSync.parse, "1:0", "stride_tokens is 0; it must be a whole number from 1 to 1048576"),
        (PeerSync.parse, "1:256:1.5", "loss is 1.5; it must be from 0 to 1"),
        (partial(Cut.parse, "isolate"), "120", "--isolate is '120'; it must be SECONDS:ROUTER[:DURATION]"),
        (partial(Cut.parse, "outage"), "1.2.3", "--outage is '1.2.3'; it must be SECONDS[:DURATION]"),
    ],
)
def test_what_is_no_such_text_is_one_sentence(read, text, sentence):
    with pytest.raises(TraceError) as error:
        read(text)
    assert str(error.value).startswith(sentence)


def test_one_router_tells_nothing():
    assert "peer_sync" not in Fleet(peer_sync=PeerSync()).routing()
    told = Fleet(routers=2, peer_sync=PeerSync(cuts=[Cut(1, router=1)])).routing()["peer_sync"]
    assert told["cuts"] == [{"time_s": 1.0, "seconds": 1e9, "router": 1}]


@for_each_row(
    ("settings", "sentence"),
    [
        ({"workers": 0}, "workers is 0; it must be a whole number from 1 to 1024"),
        ({"workers": 2.5}, "workers is 2.5; it must be a whole number from 1 to 1024"),
        ({"routers": 0}, "routers is 0; it must be a whole number from 1 to 64"),
        (
            {"routers": 2, "peer_sync": PeerSync(cuts=[Cut(1, router=2)])},
            "a cut is for router 2; with 2 routers the last one is 1",
        ),
        ({"cache_tokens": -1}, "cache_tokens is -1; it must be a whole number from 0 to"),
        ({"cache_share": 0}, "cache_share is 0; it must be above 0"),
        ({"cache_share": np.nan}, "cache_share is nan; it must be above 0"),
        ({"wipe_every_s": -1}, "wipe_every_s is -1; it must be 0 (never) or more"),
        ({"max_running": 0}, "max_running is 0; it must be a whole number from 1 to"),
        ({"step_tokens": 0}, "step_tokens is 0; it must be a whole number from 1 to"),
        ({"speeds": [1]}, "there are 1 speeds for 8 workers; give one for each"),
        ({"workers": 1, "weights": [0]}, "weights are [0]; each must be from 0.01 to 100"),
        ({"events": [Event(1, "fail", 8)]}, "an event is for worker 8; with 8 workers the last one is 7"),
        ({"events": [Event(-1, "fail", 0)]}, "an event is at -1 s; it must be at 0 or later"),
        (
            {"events": [Event(1, "burn", 0)]},
            "an event is 'burn'; it must be one of fail, join, drain, wipe, speed",
        ),
        ({"events": [Event(1, "speed", 0, 0.0)]}, "an event has speed 0; it must be from 0.01 to 100"),
        ({"engine": "h20_32b"}, "engine is 'h20_32b'; it must be one of"),
        ({"coefficients": {"step": 1}}, "step is not a coefficient of the engine; did you mean step_ms?"),
        ({"coefficients": {"step_ms": -1}}, "coefficient step_ms is -1; it must be a number, 0 or more"),
        ({"coefficients": {"step_ms": "x"}}, "coefficient step_ms is 'x'; it must be a number, 0 or more"),
    ],
)
def test_a_setting_that_does_not_fit_is_one_sentence(settings, sentence):
    with pytest.raises(TraceError) as error:
        Fleet(**settings)
    assert str(error.value).startswith(sentence)


def test_an_engine_is_read_from_a_file(tmp_path):
    path = tmp_path / "engine.yaml"
    path.write_text("engine: h200_32b\nprefill_us_per_token: 40\nmax_running: 128\ncache_tokens: 340000\n")
    settings = read_engine(path)
    assert settings == {
        "engine": "h200_32b",
        "coefficients": {"prefill_us_per_token": 40},
        "max_running": 128,
        "cache_tokens": 340000,
    }
    Fleet(**settings)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "prefill_us: 40",
            "has prefill_us, which is not a setting of an engine; did you mean prefill_us_per_token?",
        ),
        ("[1]", "must hold names with values"),
        ("a: [", "cannot be read"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_file_of_an_engine_that_does_not_fit_is_one_sentence(tmp_path, text, sentence):
    path = tmp_path / "engine.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(TraceError) as error:
        read_engine(path)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_fleet_with_stages_has_the_caches_of_each_stage():
    trace = generate("rag", 1)
    fleet = Fleet(prefill=2, decode=4)
    assert (fleet.workers, fleet.is_staged, Fleet(workers=6).is_staged) == (6, True, False)
    assert fleet.cache_blocks(trace) == Fleet(workers=4).cache_blocks(trace)
    assert fleet.prefill_cache_blocks(trace) == Fleet(workers=2).cache_blocks(trace)
    assert fleet.index_blocks(trace) == fleet.prefill_cache_blocks(trace)
    sizes = Fleet(prefill=1, decode=1, cache_tokens=300_000, prefill_cache_tokens=0)
    assert (sizes.cache_blocks(trace), sizes.prefill_cache_blocks(trace)) == (300_000 // 128, 0)
    assert Fleet(prefill=1, decode=1, cache_tokens=300_000).prefill_cache_blocks(trace) == 300_000 // 128


def test_the_core_gets_stages_only_of_a_fleet_that_has_them():
    trace = generate("rag", 1, 10)
    assert Fleet(workers=3).as_core(trace)["stages"] is None
    core = Fleet(prefill=1, decode=2, cache_tokens=200_000, link_gb_per_s=25, transfer_ms=2).as_core(trace)
    assert core["workers"] == 3
    assert core["stages"] == {
        "prefill": 1,
        "prefill_cache_blocks": 200_000 // 128,
        "kv_bytes_per_token": 262144.0,
        "link_gb_per_s": 25.0,
        "transfer_ms": 2.0,
    }


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"prefill": 2}, "decode is 0; it must be a whole number from 1 to 1023"),
        ({"decode": 2}, "prefill is 0; it must be a whole number from 1 to 1023"),
        ({"prefill": 600, "decode": 600}, "workers is 1200; it must be a whole number from 1 to 1024"),
        ({"prefill": 1, "decode": 1, "link_gb_per_s": 0}, "link_gb_per_s is 0; it must be from 0.001 to 1e9"),
        ({"prefill": 1, "decode": 1, "transfer_ms": -1}, "transfer_ms is -1; it must be from 0 to 1e9"),
        (
            {"prefill": 1, "decode": 1, "events": [Event(1, "fail", 0)]},
            "an event is 'fail'; a fleet with stages has wipes only, since its workers neither come nor go",
        ),
        (
            {"prefill": 1, "decode": 1, "routers": 2, "peer_sync": PeerSync()},
            "peer_sync is given for a fleet with stages, which does not replay it; leave it out",
        ),
        ({"prefill": 1, "decode": 1, "prefill_cache_tokens": -1}, "prefill_cache_tokens is -1; it must be"),
    ],
)
def test_stages_that_cannot_be_are_one_sentence(settings, sentence):
    with pytest.raises(TraceError) as error:
        Fleet(**settings)
    assert str(error.value).startswith(sentence)
