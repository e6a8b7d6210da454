"""vllm_router.discovery.source: what a source declares, and the thread in which it is followed."""

from __future__ import annotations

import copy
import dataclasses
import fractions
import logging
import math
import pickle
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.rows import for_each_row
from vllm_router import Router
from vllm_router.discovery import Difference, Listing, Source, SourceError, WorkerSpec
from vllm_router.discovery.source import Follower, check_source_name, only_specs, stop_all
from vllm_router.errors import RouterError

A, B = WorkerSpec("http://a:1"), WorkerSpec("http://b:1")


class Recorder:
    """A router that records what it is told; `rejects` are raised by the next calls of reconcile()."""

    def __init__(self, *rejects: Exception | None) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.rejects = list(rejects)

    def reconcile(
        self, source: str, workers: Any, *, complete: bool = True, deleted: Sequence[str] = ()
    ) -> Difference:
        urls = None if workers is None else [spec.url for spec in workers]
        self.said.append((source, urls, complete, list(deleted)))
        error = self.rejects.pop(0) if self.rejects else None
        if error is not None:
            raise error
        return Difference([], [], [], [])

    def _report_source(self, source: str, kind: str, message: str) -> None:
        self.said.append((source, kind, message))


class Script(Source):
    """Returns or raises one thing after the other."""

    name = "script"

    def __init__(self, *steps: Any) -> None:
        self.steps = list(steps)

    def look(self) -> Listing:
        step = self.steps.pop(0)
        if isinstance(step, BaseException):
            raise step
        return step


def followed(
    router: Any,
    source: Script,
    randomness: random.Random | None = None,
    clock: Callable[[], float] = lambda: 0.0,
) -> list[float]:
    """Follows until the script has ended; the times that were waited between two looks."""
    waited: list[float] = []

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        return not source.steps

    follower = Follower(router, source, randomness=randomness, wait=wait, clock=clock)
    follower.start()
    follower._thread.join(30)
    assert not follower._thread.is_alive()
    return waited


# What is declared


@for_each_row(
    ("values", "error", "sentence"),
    [
        ({"url": 8000}, TypeError, "url is a number; it must be a str such as 'http://host:8000'"),
        ({"url": " "}, ValueError, "url is an empty text; it must be a URL such as http://host:8000"),
        ({"weight": "2"}, TypeError, "weight is 2; it must be a number between 0.01 and 100"),
        ({"weight": True}, TypeError, "weight is true; it must be a number"),
        ({"weight": 0}, ValueError, "weight is 0; it must be a number between 0.01 and 100"),
        ({"weight": 100.5}, ValueError, "weight is 100.5; "),
        ({"weight": math.nan}, ValueError, "weight is nan; "),
        ({"ready": 1}, TypeError, "ready is 1; it must be True or False"),
        ({"leaving": None}, TypeError, "leaving is unset; it must be True or False"),
        ({"drain_secs": -1}, ValueError, "drain_secs is -1; it must be a number of seconds between 0 and"),
        ({"drain_secs": "1"}, TypeError, "drain_secs is 1; it must be a number of seconds"),
        ({"incarnation": 7}, TypeError, "incarnation is 7; it must be a str"),
        ({"data_parallel_size": 0}, ValueError, "data_parallel_size is 0; it must be between 1 and 4096"),
        ({"data_parallel_size": 4097}, ValueError, "data_parallel_size is 4097; "),
        ({"data_parallel_size": 2.0}, TypeError, "data_parallel_size is 2.0; it must be an int or None"),
        ({"labels": ["a"]}, TypeError, "labels is a list of 1; it must be a mapping of str to str"),
        ({"labels": {"zone": 1}}, TypeError, "labels has zone=1; it must map str to str"),
    ],
)
def test_a_value_of_a_worker_that_does_not_fit(
    values: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=re.escape(sentence)):
        WorkerSpec(**{"url": "http://a:1", **values})


def test_a_worker_s_url_is_the_one_value_without_a_name() -> None:
    with pytest.raises(TypeError):
        WorkerSpec("http://a:1", 2.0)  # type: ignore[misc]


def test_a_url_with_a_password_is_not_shown_when_it_is_not_one() -> None:
    with pytest.raises(TypeError) as caught:
        only_specs(["http://user:hunter2@a:1"])  # type: ignore[list-item]
    assert "hunter2" not in str(caught.value)
    assert "it must hold WorkerSpec: write WorkerSpec(url)" in str(caught.value)


def test_a_worker_cannot_be_changed() -> None:
    labels = {"zone": "a"}
    spec = WorkerSpec("http://a:1", labels=labels)
    labels["zone"] = "b"
    assert spec.labels == {"zone": "a"}
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.weight = 2.0  # type: ignore[misc]
    assert {spec} == {WorkerSpec("http://a:1", labels={"zone": "a"})}


def test_labels_cannot_be_changed_behind_what_was_made_of_them() -> None:
    spec = WorkerSpec("http://a:1", labels={"zone": "a"})
    assert spec.detail == "zone=a"
    with pytest.raises(TypeError):
        spec.labels["zone"] = "b"  # type: ignore[index]
    for other in (copy.deepcopy(spec), copy.copy(spec), pickle.loads(pickle.dumps(spec))):
        assert (other, other.detail) == (spec, "zone=a")
    assert dataclasses.replace(spec, labels={"zone": "b"}).detail == "zone=b"


@pytest.mark.parametrize(
    ("models", "error", "why"),
    [
        ("m", TypeError, "it must be a list of names"),
        ([1], TypeError, "models has 1; it must be a list of names"),
        ([""], ValueError, "a name has 1 to 256 bytes"),
        (["a\n"], ValueError, "no control characters"),
        (["\ud800"], ValueError, "a name has 1 to 256 bytes"),
        (["é" * 129], ValueError, "a name has 1 to 256 bytes"),
        (["m"] * 1025, ValueError, "a worker may have 1024"),
    ],
)
def test_models_that_are_none(models: Any, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        WorkerSpec("http://a:1", models=models)


def test_a_detail_is_cut() -> None:
    assert len(WorkerSpec("http://a:1", labels={"k": "v" * 500}).detail) == 200


@pytest.mark.parametrize(
    ("members", "error", "sentence"),
    [
        ({"kv_group": 7}, TypeError, "kv_group is 7; it must be a str"),
        ({"kv_group": "a\nb"}, ValueError, "at most 128 bytes, no control characters and no blanks"),
        ({"kv_group": "é" * 65}, ValueError, "at most 128 bytes, no control characters"),
        *(({"kv_group": text}, ValueError, "no blanks at its ends") for text in (" ", " a", "a ")),
        ({"kv_group": "\ud800"}, ValueError, "no control characters"),
        ({"kv_group": "a", "worker_type": "regular"}, ValueError, "only prefill and decode workers have"),
    ],
)
def test_a_group_that_does_not_fit(members: dict[str, Any], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        WorkerSpec("http://a:1", **{"worker_type": "prefill", **members})


@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf, "1", None, True])
def test_a_time_until_the_next_look_that_does_not_fit(seconds: Any) -> None:
    with pytest.raises(ValueError, match="it must be a number of seconds between 0 and"):
        Listing([], again_secs=seconds)


def test_deletions_come_with_a_list() -> None:
    with pytest.raises(ValueError, match="so nothing has changed, and deleted is not empty"):
        Listing(None, deleted=["http://a:1"])


@pytest.mark.parametrize(
    ("deleted", "sentence"),
    [
        (5, "deleted is a number; it must be a list of URLs"),
        ("http://a:1", "deleted is a text of 10 characters; it must be a list of URLs"),
        (None, "deleted is unset; it must be a list of URLs"),
        (["http://a:1", 5], "deleted holds a number; it must hold URLs as str"),
    ],
)
def test_deletions_are_a_list_of_urls(deleted: Any, sentence: str) -> None:
    with pytest.raises(TypeError, match=re.escape(sentence)):
        Listing([], deleted=deleted)


def test_deletions_may_be_any_iterable() -> None:
    assert list(Listing([], deleted=iter(["http://a:1"])).deleted) == ["http://a:1"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "message", "sentence"),
    [
        ("timeout", OSError(), "message is a OSError; it must be a str"),
        (7, "it failed", "kind is a number; it must be a str"),
    ],
)
def test_an_error_has_texts(kind: Any, message: Any, sentence: str) -> None:
    with pytest.raises(TypeError, match=re.escape(sentence)):
        SourceError(kind, message)


@pytest.mark.parametrize("kind", ["", "Timeout", "no-address", "a" * 33])
def test_a_kind_of_error_that_no_metric_has(kind: str) -> None:
    with pytest.raises(ValueError, match="it must be 1 to 32 characters of a-z and _"):
        SourceError(kind, "it failed")


@pytest.mark.parametrize(
    ("name", "error", "sentence"),
    [
        (7, TypeError, "the name of the source is a number; it must be a str"),
        ("", ValueError, "it must be 1 to 32 characters of a-z, 0-9, _ and -, the first of them a letter"),
        ("Consul", ValueError, "the name of the source is Consul; "),
        ("7up", ValueError, "the name of the source is 7up; "),
        ("a" * 33, ValueError, "it must be 1 to 32 characters"),
        ("static", ValueError, "the name of the source is static, which belongs to the router itself"),
        ("api", ValueError, "the name of the source is api, which belongs to the router itself"),
    ],
)
def test_a_name_that_no_source_may_have(name: Any, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=re.escape(sentence)):
        check_source_name(name)


# The thread


def test_each_look_is_declared_and_the_source_says_when_the_next_one_is() -> None:
    router = Recorder()
    waited = followed(
        router,
        Script(
            Listing([A, B], again_secs=5),
            Listing(None, again_secs=7),
            Listing([B], complete=False, deleted=["http://a:1"]),
        ),
    )
    assert router.said == [
        ("script", "", ""),
        ("script", ["http://a:1", "http://b:1"], True, []),
        ("script", None, True, []),
        ("script", ["http://b:1"], False, ["http://a:1"]),
    ]
    assert waited == [5, 7, 1.0]


def test_a_source_may_be_announced_before_it_is_followed() -> None:
    router = Recorder()
    follower = Follower(router, Script(Listing([A])), wait=lambda _: True)  # type: ignore[arg-type]
    follower.announce()
    assert router.said == [("script", "", "")]
    follower.start()
    follower._thread.join(30)
    assert router.said == [("script", "", ""), ("script", ["http://a:1"], True, [])]


def test_an_error_is_reported_and_nothing_is_declared() -> None:
    router = Recorder()
    waited = followed(router, Script(SourceError("timeout", "no response within 2 s", 3), Listing([A])))
    assert router.said == [
        ("script", "", ""),
        ("script", "timeout", "no response within 2 s"),
        ("script", ["http://a:1"], True, []),
    ]
    assert waited == [3, 1.0]


@pytest.mark.parametrize("raised", [KeyError("gone"), SystemExit(1), KeyboardInterrupt(), MemoryError()])
def test_whatever_a_source_raises_the_loop_goes_on(raised: BaseException) -> None:
    router = Recorder()
    followed(router, Script(raised, Listing([A])))
    assert router.said[1][:2] == ("script", "internal")
    assert f"look() raised {type(raised).__name__}" in router.said[1][2]
    assert router.said[2] == ("script", ["http://a:1"], True, [])


def test_what_is_no_listing_is_an_error_of_the_source() -> None:
    router = Recorder()
    followed(router, Script([A], Listing([A])))
    assert router.said[1] == (
        "script",
        "internal",
        "look() raised TypeError: look() returned a list of 1; it must return a Listing",
    )


def test_a_look_that_returns_nothing_says_so() -> None:
    router = Recorder()
    followed(router, Script(None, Listing([A])))
    said = "look() raised TypeError: look() returned None; it must return a Listing"
    assert router.said[1] == ("script", "internal", said)


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class OddError(SourceError):
    """Without what SourceError has."""

    def __init__(self) -> None:
        pass


def changed(error: SourceError, **values: Any) -> SourceError:
    for name, value in values.items():
        setattr(error, name, value)
    return error


def changed_listing(**values: Any) -> Listing:
    listing = Listing([B])
    for name, value in values.items():
        object.__setattr__(listing, name, value)
    return listing


@pytest.mark.parametrize(
    "step",
    [
        MuteError(),
        OddError(),
        changed(SourceError("timeout", "slow"), message=OSError()),
        changed(SourceError("timeout", "slow"), again_secs="soon"),
        changed(SourceError("timeout", "slow"), again_secs=math.nan),
        changed_listing(again_secs="soon"),
        changed_listing(again_secs=None),
        changed_listing(workers=7),
        changed_listing(deleted=7),
    ],
    ids=lambda step: type(step).__name__,
)
def test_whatever_the_objects_of_a_source_are_the_thread_goes_on(step: Any) -> None:
    router = Recorder()
    waited = followed(router, Script(step, Listing([A])))
    assert router.said[-1] == ("script", ["http://a:1"], True, [])
    assert len(waited) == 2
    assert 0 < waited[0] <= 30
    assert [said[1] for said in router.said[1:-1] if isinstance(said[1], str)]  # it was reported


def test_an_exception_without_a_text_is_named_by_its_type() -> None:
    router = Recorder()
    followed(router, Script(MuteError(), Listing([A])))
    assert router.said[1] == ("script", "internal", "look() raised MuteError")


def test_times_are_numbers_of_any_kind_and_there_is_a_pause_between_two_looks() -> None:
    waited = followed(
        Recorder(),
        Script(
            Listing([A], again_secs=0),
            Listing([A], again_secs=0.002),
            SourceError("timeout", "slow", 0),
            Listing([A], again_secs=fractions.Fraction(1, 2)),  # type: ignore[arg-type]
        ),
    )
    assert waited == [0.01, 0.01, 0.01, 0.5]
    assert {type(seconds) for seconds in waited} == {float}


def test_a_log_that_raises_does_not_end_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def log(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("vllm_router.discovery.source.logger.log", log)
    router = Recorder()
    waited = followed(router, Script(SourceError("timeout", "slow", 1), Listing([A])))
    assert router.said[-1] == ("script", ["http://a:1"], True, [])
    assert waited == [30, 1]


def test_a_follower_whose_thread_has_ended_is_not_running() -> None:
    follower = Follower(Recorder(), Script(Listing([A])), wait=lambda _: True)  # type: ignore[arg-type]
    assert follower.running  # it is about to
    follower.start()
    follower._thread.join(30)
    assert not follower.running
    assert not follower._stopping.is_set()


def test_a_child_process_follows_nothing() -> None:
    program = """if True:
        import os
        from vllm_router import Router
        from vllm_router.discovery import Listing, Source

        class Empty(Source):
            name = "empty"

            def look(self):
                return Listing([], again_secs=100)

        router = Router()
        follower = router.follow(Empty())
        assert follower.first(30) and follower.running and router.is_following
        child = os.fork()
        if child == 0:
            os._exit(int(follower.running or router.is_following))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), follower.running)
    """
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stdout == "0 True\n", ran.stderr


def test_only_a_list_is_the_first_list() -> None:
    router = Recorder()
    first: list[bool] = []
    source = Script(Listing(None), Listing(None), Listing([]))

    def wait(_: float) -> bool:
        first.append(follower.first(0))
        return not source.steps

    follower = Follower(router, source, wait=wait)  # type: ignore[arg-type]
    follower.start()
    follower._thread.join(30)
    assert first == [False, False, True]


# What is left out of a list


def declared(router: Recorder) -> list[list[str]]:
    return [said[1] for said in router.said if isinstance(said[1], list)]


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (
            WorkerSpec("http://10.0.0:80", labels={"pod": "models/b"}),
            "worker http://10.0.0:80 (pod=models/b) has the host 10.0.0, which is not an IPv4 address",
        ),
        (
            WorkerSpec("http://c:70000"),
            "worker http://c:70000 has a port that is no number between 1 and 65535; it is",
        ),
        (WorkerSpec("http://user:hunter2@c"), "worker http://...@c has something before '@' that reads as"),
        (
            WorkerSpec("http://c", incarnation="\ud800"),
            "worker http://c has incarnation with half a character",
        ),
        (
            WorkerSpec("http://c", labels={"pod": "\ud800"}),
            "worker http://c (pod=?) has labels with half a char",
        ),
        (WorkerSpec("HTTP://A:1/"), "worker HTTP://A:1/ is in the list twice; it is left out"),
        (WorkerSpec("http://b:1@1"), "worker http://b:1@1 is in the list twice; it is left out"),
    ],
)
def test_a_worker_that_the_core_rejects_is_left_out_and_the_others_join(
    spec: WorkerSpec, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    ranked = WorkerSpec("http://b:1", data_parallel_size=2)
    with pytest.raises((ValueError, TypeError)):  # of the whole list
        Router().reconcile("script", [A, ranked, spec])
    router = Router()
    source = Script(*[Listing([A, ranked, spec])] * 3)
    followed(router, source)
    assert router.worker_urls == ["http://a:1", "http://b:1@0", "http://b:1@1"]
    assert len(caplog.messages) == 1  # once, and not with each list
    assert caplog.messages[0].startswith(f"source script: {named}")
    assert "hunter2" not in caplog.text
    caplog.text.encode()


def test_many_that_are_left_out_are_few_messages(caplog: pytest.LogCaptureFixture) -> None:
    router = Recorder()
    followed(router, Script(Listing([A, *[WorkerSpec(f"http://10.0.{number}") for number in range(100)]])))
    assert declared(router) == [["http://a:1"]]
    assert len(caplog.messages) == 4
    assert caplog.messages[3] == "source script: 97 more workers are left out"


def test_a_deleted_url_that_is_none_keeps_nothing_from_the_router() -> None:
    router = Recorder()
    followed(router, Script(Listing([A], deleted=["http://10.0.0", "http://b:1"])))
    assert router.said[1] == ("script", ["http://a:1"], True, ["http://b:1"])


def test_names_are_left_out_where_a_server_rejects_them(caplog: pytest.LogCaptureFixture) -> None:
    name = WorkerSpec("ray://actor")
    router = Recorder(ValueError("is a name, and a router that serves connects to its workers"))
    followed(router, Script(Listing([A, name])))
    assert declared(router) == [["http://a:1", "ray://actor"], ["http://a:1"]]
    assert caplog.messages == [
        "source script: worker ray://actor is a name, and a server connects to its workers; it is left out"
    ]


def test_of_a_list_that_is_too_long_the_first_workers_are_declared_and_removals_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    many = [
        WorkerSpec(f"http://w{number:04}:1", labels={"pool": "a" if number < 4000 else "b"})
        for number in range(5000)
    ]
    big = WorkerSpec("http://x:1", data_parallel_size=4096, labels={"pool": "c"})
    router = Router(discovery_guard=1)
    said: list[str] = []
    router._report_source = lambda _, kind, message: said.append(f"{kind}: {message}")  # type: ignore[method-assign]
    shuffled = random.Random(1).sample([*many, big], 5001)
    followed(
        router,
        Script(Listing(shuffled), Listing(None), Listing([*reversed(many[1:]), big]), Listing(many[9:10])),
    )
    assert router.worker_urls == ["http://w0009:1"]
    assert [line.partition(":")[0] for line in said] == ["", "too_many", "too_many", "too_many"]
    assert said[1] == (
        "too_many: the list has 9096 workers, each rank counted, of which 4096 are taken: "
        "there is room for 4096. The largest part is of pool=c: 4096. Shorten the list, or "
        "run a second router"
    )
    assert said[2] == said[1]  # the router forgets an error with each list
    assert "has 9095 workers" in said[3]
    assert len(caplog.messages) == 2


def test_a_removal_of_a_list_that_is_too_long_takes_effect() -> None:
    many = [WorkerSpec(f"http://w{number:04}:1") for number in range(4100)]
    router = Router(discovery_guard=1)
    followed(router, Script(Listing(many), Listing(many[10:]), Listing(None)))
    assert router.worker_urls == [spec.url for spec in many[10:]]


def test_a_list_that_the_router_has_no_room_for_is_shortened_until_it_has() -> None:
    """Each worker has 8 ranks, which only the router knows."""
    many = [WorkerSpec(f"http://w{number:04}:1") for number in range(1000)]
    router = Router(intra_node_data_parallel_size=8)
    followed(router, Script(Listing(many)))
    assert len(router.worker_urls) == 4000


def test_workers_that_serve_are_kept_when_there_is_no_room_for_new_ones() -> None:
    serving = [WorkerSpec(f"http://w{number:04}:1") for number in range(0, 600, 2)]
    more = [WorkerSpec(f"http://w{number:04}:1") for number in range(1, 600, 2)]

    class Full(Recorder):
        worker_urls = tuple(f"{spec.url}@3" for spec in serving)

        def reconcile(self, source: str, workers: Any, **more: Any) -> Difference:
            if len(workers) > 310:
                raise RouterError("a fleet has at most 4096")
            return super().reconcile(source, workers, **more)

    router = Full()
    followed(router, Script(Listing([*more, *serving])))
    (urls,) = declared(router)
    assert {spec.url for spec in serving} < set(urls)
    assert 300 < len(urls) <= 310


@pytest.mark.parametrize("error", [ValueError("no URL"), RouterError("the fleet is full")])
def test_a_list_that_is_not_taken_is_declared_again_when_the_source_says(error: Exception) -> None:
    class Middle(random.Random):
        def uniform(self, a: float, b: float) -> float:
            return (a + b) / 2

    waited = followed(
        Recorder(error, error, error, None),
        Script(*[Listing([A], again_secs=2)] * 2, Listing([A], again_secs=0), Listing([A], again_secs=2)),
        Middle(),
    )
    assert waited == [2, 2, 2, 2]  # 0 is a back-off, which is 2 s after three failures


def test_the_back_off_doubles_up_to_30_s_and_starts_anew_after_a_list() -> None:
    def error() -> SourceError:
        return SourceError("timeout", "no response")

    class Middle(random.Random):
        def uniform(self, a: float, b: float) -> float:
            assert (a, b) == (0.5, 1.5)
            return (a + b) / 2

    waited = followed(
        Recorder(), Script(*[error() for _ in range(8)], Listing([A]), error(), Listing([A])), Middle()
    )
    assert waited == [0.5, 1, 2, 4, 8, 16, 30, 30, 1.0, 0.5, 1.0]


def test_the_back_off_is_spread_and_never_above_30_s() -> None:
    waited = followed(
        Recorder(), Script(*[SourceError("timeout", "no response") for _ in range(200)]), random.Random(1)
    )
    first, *_ = waited
    assert 0.25 <= first <= 0.75
    assert max(waited) == 30
    assert min(waited[10:]) >= 15
    assert len(set(waited)) > 50


@pytest.mark.parametrize("error", [ValueError("no URL"), RouterError("the fleet is full")])
def test_a_list_that_is_not_taken_is_declared_again_until_there_is_another(error: Exception) -> None:
    """Listing(None) says that nothing has changed, and the list that was not taken is still to be taken."""
    router = Recorder(error, error, None)
    source = Script(
        Listing([A], deleted=["http://c:1"]), Listing(None), Listing(None), Listing(None), Listing([B])
    )
    followed(router, source)
    again = ("script", ["http://a:1"], True, ["http://c:1"])
    assert router.said == [
        ("script", "", ""),
        again,
        ("script", "refused", str(error)),
        again,
        ("script", "refused", str(error)),
        again,
        ("script", None, True, []),
        ("script", ["http://b:1"], True, []),
    ]


def test_deletions_of_a_list_that_was_not_taken_are_not_lost() -> None:
    router = Recorder(RouterError("full"))
    followed(
        router,
        Script(Listing([A], deleted=["http://b:1", "http://c:1"]), Listing([A, B], deleted=["http://d:1"])),
    )
    assert router.said[-1] == (
        "script",
        ["http://a:1", "http://b:1"],
        True,
        ["http://c:1", "http://d:1"],
    )


def test_a_password_in_an_error_of_the_router_is_not_reported() -> None:
    router = Recorder(ValueError("worker URL http://user:hunter2@a:1 is none"))
    followed(router, Script(Listing([A])))
    assert router.said[-1] == ("script", "refused", "worker URL http://...@a:1 is none")


def test_an_error_is_logged_once_and_again_after_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    times = iter([0.0, 30.0, 59.0, 59.5, 60.0, 61.0])
    messages = ["slow", "slow", "slow", "closed", "slow", "closed"]
    caplog.set_level(logging.INFO, "vllm_router.discovery")
    followed(
        Recorder(),
        Script(*[SourceError("timeout", message) for message in messages], Listing([A]), Listing(None)),
        clock=lambda: next(times),
    )
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "source script: slow"),
        ("ERROR", "source script: closed"),
        ("ERROR", "source script: slow"),
        ("INFO", "source script: lists its workers again"),
    ]


def test_a_router_that_takes_no_reports_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Recorder):
        def _report_source(self, *said: str) -> None:
            if any(said[1:]):
                raise RuntimeError("no more")

    router = Broken()
    followed(router, Script(SourceError("timeout", "slow"), Listing([A])))
    assert router.said == [("script", ["http://a:1"], True, [])]
    assert caplog.messages[0] == "source script: cannot be reported: RuntimeError: no more"


class Blocking(Source):
    """Its look blocks until it is closed; without `closes` until the test lets it go."""

    name = "blocking"

    def __init__(self, closes: bool = True) -> None:
        self.looking = threading.Event()
        self.freed = threading.Event()
        self.closed = 0
        self.closes = closes

    def look(self) -> Listing:
        self.looking.set()
        self.freed.wait()
        return Listing([A])

    def close(self) -> None:
        self.closed += 1
        if self.closes:
            self.freed.set()


def test_stopping_ends_a_look_that_blocks_and_what_it_finds_is_not_declared() -> None:
    router, source = Recorder(), Blocking()
    with Follower(router, source) as follower:  # type: ignore[arg-type]
        follower.start()
        assert source.looking.wait(30)
        assert follower.running
        assert not follower.first(0)
    assert not follower.running
    assert follower.stop()  # once more does nothing
    assert source.closed == 1
    assert router.said == [("blocking", "", "")]
    assert repr(follower) == "<Follower of blocking stopped>"


def test_a_look_that_never_ends_is_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    router, source = Recorder(), Blocking(closes=False)
    follower = Follower(router, source)  # type: ignore[arg-type]
    follower.start()
    assert source.looking.wait(30)
    assert not follower.stop(0.01)
    assert follower._thread.daemon
    stop_all([follower], 0.01)
    assert caplog.messages == ["source blocking: did not stop within 0.01 s; its thread is abandoned"]
    source.freed.set()
    follower._thread.join(30)
    assert router.said == [("blocking", "", "")]


def test_a_close_that_raises_does_not_keep_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    class Sore(Blocking):
        def close(self) -> None:
            super().close()
            raise OSError("closed already")

    source = Sore()
    follower = Follower(Recorder(), source)  # type: ignore[arg-type]
    follower.start()
    assert source.looking.wait(30)
    assert follower.stop(30)
    assert caplog.messages == ["source blocking: close() raised OSError: closed already"]


def test_the_first_list_can_be_waited_for_and_a_thread_may_stop_itself() -> None:
    stopped = []

    class Once(Source):
        name = "once"

        def look(self) -> Listing:
            if follower.first(0):
                stopped.append(follower.stop())
            return Listing([A], again_secs=0)

    router = Recorder()
    follower = Follower(router, Once())  # type: ignore[arg-type]
    follower.start()
    assert follower.first(30)
    follower._thread.join(30)
    assert stopped == [False]  # it has not ended while it says so
    assert follower._thread.name == "discovery-once"
    assert router.said == [("once", "", ""), ("once", ["http://a:1"], True, [])]


def test_a_source_is_one_and_has_a_name() -> None:
    with pytest.raises(TypeError, match="source is of type str; it must be a vllm_router Source"):
        Follower(Recorder(), "workers.yaml")  # type: ignore[arg-type]

    class Nameless(Script):
        name = "Static"

    with pytest.raises(ValueError, match="the name of the source is Static"):
        Follower(Recorder(), Nameless())  # type: ignore[arg-type]
