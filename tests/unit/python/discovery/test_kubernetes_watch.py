"""The list-watch loop, with a scripted API server and a clock that moves when the script says so."""

import json
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.kubernetes import pod
from tests.rows import for_each_row
from vllm_router.discovery import SourceError
from vllm_router.discovery.kubernetes_client import ConfigError, CutError, HttpError, SilentError
from vllm_router.discovery.kubernetes_watch import ListWatch, Timing, is_older


class Sleep:
    """The clock moves by so many seconds while the response is read."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Scripted:
    """An API server that follows a script: per request what its body is made of, or what is raised."""

    def __init__(self, *script: Any) -> None:
        self.script = deque(script)
        self.now = 1000.0
        self.queries: list[dict[str, Any]] = []
        self.renewed = 0
        self.open = 0

    def get(self, namespace: str, read_secs: float, **query: Any) -> Any:
        self.queries.append({"namespace": namespace, "read_secs": read_secs, **query})
        step = self.script.popleft()
        if isinstance(step, BaseException):
            raise step
        self.open += 1
        return _Body(self, step)

    def renew(self) -> None:
        self.renewed += 1

    def shutdown(self) -> None:
        pass


class _Body:
    def __init__(self, server: Scripted, parts: list[Any]) -> None:
        self.server = server
        self.parts = deque(parts)

    def read(self) -> bytes:
        while self.parts:
            part = self.parts.popleft()
            if isinstance(part, Sleep):
                self.server.now += part.seconds
            elif isinstance(part, BaseException):
                raise part
            else:
                return part
        return b""

    def close(self) -> None:
        self.server.open -= 1


class Heard:
    def __init__(self) -> None:
        self.lists: list[list[str]] = []
        self.events: list[tuple[str, str]] = []
        self.errors: list[SourceError] = []
        self.is_news = True

    def replaced(self, objects: list[dict[str, Any]]) -> None:
        self.lists.append([one["metadata"]["name"] for one in objects])

    def changed(self, kind: str, thing: dict[str, Any]) -> bool:
        self.events.append((kind, thing["metadata"]["name"]))
        return self.is_news

    def failed(self, error: SourceError) -> None:
        self.errors.append(error)


def listed(version: int, *names: str, following: str = "") -> list[bytes]:
    metadata = {"resourceVersion": str(version), **({"continue": following} if following else {})}
    page = {"metadata": metadata, "items": [pod(name, "10.0.0.1") for name in names]}
    text = json.dumps(page).encode()
    return [text[:20], text[20:]]


def event(kind: str, name: str, version: int) -> bytes:
    thing = pod(name, "10.0.0.1", resourceVersion=str(version))
    return json.dumps({"type": kind, "object": thing}).encode() + b"\n"


def bookmark(version: int) -> bytes:
    thing = {"kind": "Pod", "metadata": {"resourceVersion": str(version)}}
    return json.dumps({"type": "BOOKMARK", "object": thing}).encode() + b"\n"


def failure(code: int, reason: str = "") -> bytes:
    thing = {"kind": "Status", "code": code, "reason": reason, "message": "too old resource version"}
    return json.dumps({"type": "ERROR", "object": thing}).encode() + b"\n"


def loop(*script: Any, namespace: str = "models", **timing: Any) -> tuple[ListWatch, Scripted, Heard]:
    server, heard = Scripted(*script), Heard()
    made = ListWatch(server, "pods", namespace, heard, Timing(**timing), lambda: server.now, random.Random(1))
    return made, server, heard


def turns(made: ListWatch, count: int) -> list[float]:
    return [made.turn() for _ in range(count)]


# Listing


def test_first_a_list_from_the_cache_then_a_watch_from_its_version() -> None:
    made, server, heard = loop(listed(7, "a", "b"), [Sleep(55)])
    assert turns(made, 2) == [0, 0]
    assert heard.lists == [["a", "b"]]
    first, second = server.queries
    assert (first["resource_version"], first["limit"], first["namespace"]) == ("0", 500, "models")
    assert "watch" not in first
    assert (second["watch"], second["resource_version"], second["allow_watch_bookmarks"]) == (True, "7", True)
    assert server.open == 0


def test_a_watch_has_a_window_and_a_read_timeout_that_is_longer() -> None:
    for seed in range(20):
        made, server, _ = loop(listed(7), [Sleep(55)])
        made._randomness = random.Random(seed)
        turns(made, 2)
        window = server.queries[1]["timeout_seconds"]
        assert 50 <= window <= 60
        assert window + 14 <= server.queries[1]["read_secs"] <= window + 16


def test_pages_are_one_list() -> None:
    made, server, heard = loop(listed(7, "a", following="t1"), listed(7, "b", following="t2"), listed(7, "c"))
    made.turn()
    assert heard.lists == [["a", "b", "c"]]
    assert [one["_continue"] for one in server.queries] == [None, "t1", "t2"]
    assert [one["resource_version"] for one in server.queries] == ["0", None, None]


def test_a_continue_token_that_has_expired_begins_the_list_anew_without_the_cache() -> None:
    made, server, heard = loop(listed(7, "a", following="t1"), HttpError(410, "gone"), listed(9, "b"))
    assert turns(made, 2) == [0, 0]
    assert heard.lists == [["b"]]
    assert server.queries[2]["resource_version"] is None
    assert server.queries[2]["_continue"] is None


def test_everything_is_listed_again_when_it_is_time() -> None:
    made, _, heard = loop(listed(7, "a"), [event("ADDED", "b", 8), Sleep(61)], listed(9, "a", "b"))
    turns(made, 3)
    assert heard.lists == [["a"], ["a", "b"]]
    assert made.restarts["resync"] == 1


def test_a_watch_that_does_not_end_is_left_when_it_is_time_to_list_again() -> None:
    made, server, heard = loop(listed(7), [Sleep(61), bookmark(8), event("ADDED", "never", 9)], listed(9))
    turns(made, 3)
    assert heard.events == []
    assert len(heard.lists) == 2
    assert server.open == 0


def test_a_list_from_a_cache_that_lags_is_not_believed() -> None:
    made, server, heard = loop(
        listed(7, "a"), [event("DELETED", "a", 20), Sleep(61)], listed(15, "a"), listed(21)
    )
    turns(made, 3)
    assert heard.lists == [["a"], []]
    assert [one["resource_version"] for one in server.queries] == ["0", "7", "0", None]


def test_a_list_that_is_cut_off_is_none() -> None:
    made, server, heard = loop([b'{"metadata"', CutError("reset")])
    assert made.turn() > 0
    assert heard.lists == []
    assert heard.errors[0].kind == "unreachable"
    assert server.open == 0


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        (b"<html>", "error"),
        (b"[]", "error"),
        (b"{}", "malformed"),
        (b'{"metadata": {"resourceVersion": "1"}}', "malformed"),
        (b'{"metadata": {"resourceVersion": "1"}, "items": null}', "malformed"),
        (b'{"metadata": {"resourceVersion": "1"}, "items": {}}', "malformed"),
        (b'{"metadata": {}, "items": []}', "error"),
        (b'{"metadata": {"resourceVersion": "1"}, "items": [{}]}', "error"),
    ],
)
def test_a_list_that_cannot_be_read_is_said_if_it_stays_so(page: bytes, kind: str) -> None:
    made, _, heard = loop([page], [page], listed(7))
    first, second, third = turns(made, 3)
    assert first == third == 0
    assert second > 0
    assert [error.kind for error in heard.errors] == [kind]
    assert heard.lists == [[]]


def test_a_list_whose_pages_do_not_end_is_none() -> None:
    made, server, heard = loop(*[listed(7, "a", following="again")] * 500)
    assert [made.turn() > 0 for _ in range(2)] == [False, True]
    assert [error.kind for error in heard.errors] == ["malformed"]
    assert "more than 200 pages of 500 objects" in heard.errors[0].message
    assert len(server.queries) == 400
    assert (heard.lists, server.open) == ([], 0)


# Watching


def test_a_bookmark_takes_the_watch_on_and_never_back() -> None:
    made, server, _ = loop(
        listed(7),
        [bookmark(50), Sleep(5)],
        [bookmark(40), Sleep(5)],
        [bookmark(60) + failure(410)],
        listed(61),
    )
    turns(made, 4)
    assert [one["resource_version"] for one in server.queries] == ["0", "7", "50", "50"]


def test_a_bookmark_is_no_event_that_shows_a_watch_to_work() -> None:
    made, _, _ = loop(listed(7), [bookmark(8)], [bookmark(9)], listed(10))
    turns(made, 3)
    assert made.restarts["gone"] == 1


def test_events_are_told_and_the_next_watch_begins_behind_them() -> None:
    made, server, heard = loop(
        listed(7, "a"),
        [event("ADDED", "b", 8) + event("MODIFIED", "b", 9)[:30], event("MODIFIED", "b", 9)[30:], Sleep(30)],
        [bookmark(50), Sleep(5)],
        [Sleep(5)],
    )
    turns(made, 4)
    assert heard.events == [("ADDED", "b"), ("MODIFIED", "b")]
    assert [one["resource_version"] for one in server.queries] == ["0", "7", "9", "50"]
    assert made.restarts == {"closed": 3}


def test_a_stale_event_does_not_take_the_watch_back() -> None:
    made, server, _ = loop(listed(7), [event("ADDED", "b", 9), event("ADDED", "a", 8), Sleep(5)], [])
    turns(made, 3)
    assert server.queries[2]["resource_version"] == "9"


def test_half_an_event_is_none() -> None:
    made, server, heard = loop(
        listed(7), [event("ADDED", "a", 8), event("DELETED", "a", 9)[:-9], CutError("reset")], [Sleep(2)]
    )
    assert turns(made, 3) == [0, 0, 0]
    assert heard.events == [("ADDED", "a")]
    assert server.queries[2]["resource_version"] == "8"
    assert made.restarts["cut"] == 1
    assert heard.errors == []


def test_empty_lines_are_no_events() -> None:
    made, _, heard = loop(listed(7), [b"\n", b"\r\n" + event("ADDED", "a", 8) + b"\n\n"])
    turns(made, 2)
    assert heard.events == [("ADDED", "a")]


@pytest.mark.parametrize("gone", [[failure(410)], [failure(0, "Expired")], HttpError(410, "too old")])
def test_410_lists_at_once_without_the_cache(gone: Any) -> None:
    made, server, heard = loop(listed(7, "a"), gone, listed(9), [Sleep(5)])
    assert turns(made, 4) == [0, 0, 0, 0]
    assert heard.lists == [["a"], []]
    assert [one["resource_version"] for one in server.queries] == ["0", "7", None, "9"]
    assert made.restarts["gone"] == 1
    assert heard.errors == []
    assert server.open == 0


def test_two_empty_watches_at_once_are_a_410() -> None:
    made, server, heard = loop(listed(7, "a"), [], [Sleep(0.5)], listed(9))
    assert turns(made, 4) == [0, 0, 0, 0]
    assert len(heard.lists) == 2
    assert server.queries[3]["resource_version"] is None


def test_an_empty_watch_now_and_then_is_none() -> None:
    made, _, heard = loop(listed(7), [], [Sleep(5)], [], [event("ADDED", "a", 8)], [], [Sleep(5)])
    assert turns(made, 7) == [0] * 7
    assert len(heard.lists) == 1


def test_410_again_and_again_is_slowed_down_and_said() -> None:
    made, _, heard = loop(*[step for version in range(6) for step in (listed(version + 1), [failure(410)])])
    pauses = turns(made, 12)
    assert pauses[:3] == [0, 0, 0]
    assert [0 < pause <= 30 for pause in pauses[3::2]] == [True] * 5
    assert pauses[11] > pauses[3]
    assert {error.kind for error in heard.errors} == {"gone"}


def test_a_good_watch_ends_the_slowness() -> None:
    made, _, heard = loop(
        *(listed(7), [failure(410)], listed(7), [failure(410)], listed(7)),
        *([event("ADDED", "a", 8)], [failure(410)], listed(9)),
    )
    assert [pause > 0 for pause in turns(made, 8)] == [False, False, False, True, False, False, False, False]
    assert len(heard.errors) == 1


def minutes(made: ListWatch, server: Scripted, step: Callable[[int], list[Any]], count: int) -> list[int]:
    """What a loop requests in each of so many minutes; it waits as long as it says."""
    begun, requests, number = server.now, [0] * count, 0
    while server.now < begun + 60 * count:
        if not server.script:
            number += 1
            server.script.extend(step(number))
        before = len(server.queries)
        pause = made.turn()
        minute = int((server.now - begun) // 60)
        if minute < count:
            requests[minute] += len(server.queries) - before
        server.now += pause
    return requests


# What an API server in trouble, or a proxy before it, may do again and again: by the number of the round,
# each of which begins with a list.
LOOPS: dict[str, Callable[[int], list[Any]]] = {
    "nothing": lambda _: [[], []],
    "a bookmark": lambda n: [[bookmark(n)], [bookmark(n)]],
    "410": lambda _: [[failure(410)]],
    "410 as the status": lambda _: [HttpError(410, "too old")],
    "500": lambda _: [[failure(500)]],
    "no JSON": lambda _: [[b"<html>\n"]],
    "the same event": lambda _: [[event("MODIFIED", "a", 7)], [event("MODIFIED", "a", 7)]],
    "the same event, then 410": lambda _: [[event("MODIFIED", "a", 7), failure(410)]],
    "the same event, then 500": lambda _: [[event("MODIFIED", "a", 7), failure(500)]],
    "news, then 410": lambda n: [[event("MODIFIED", "a", 1000 + n), failure(410)]],
    "news, then 500": lambda n: [[event("MODIFIED", "a", 1000 + n), failure(500)]],
}


@for_each_row("name", LOOPS)
def test_a_watch_that_ends_again_and_again_has_pauses(name: str) -> None:
    """Row 10: one event of any kind ended every pause, so that all was listed 400 times a second."""
    made, server, heard = loop()

    def step(number: int) -> list[Any]:
        return [listed(1000 + number - 1, "a"), *LOOPS[name](number)]

    first, *others = minutes(made, server, step, 3)
    assert first <= 2 * 18 + 2
    assert max(others) <= 2 * 13
    assert heard.errors, "GET /admin/discovery says it"
    assert heard.errors[-1].message.startswith("pods in namespace models: ")


def test_a_watch_that_ends_behind_each_event_goes_on_and_lists_nothing() -> None:
    """Row 10: a proxy that cuts streams. Nothing is lost, the next watch begins behind the last event."""
    made, server, heard = loop(listed(1, "a"), resync=10_000.0)
    made.turn()
    first, second = minutes(made, server, lambda n: [[event("MODIFIED", "a", 1 + n)]], 2)
    assert first <= 18
    assert second <= 13
    assert len(heard.lists) == 1
    assert {error.kind for error in heard.errors} == {"ended"}
    assert "watches end too soon, the last one after 0.0 s" in heard.errors[-1].message
    versions = [one["resource_version"] for one in server.queries[1:]]
    assert versions == [str(number) for number in range(1, len(versions) + 1)]


@pytest.mark.parametrize(
    ("version", "is_news", "ends_the_slowness"), [(8, True, True), (7, True, False), (8, False, False)]
)
def test_only_news_ends_the_slowness(version: int, is_news: bool, ends_the_slowness: bool) -> None:
    """Row 10: news is what changes the workers and has a newer version."""
    made, _, heard = loop(
        *(listed(7, "a"), [failure(410)], listed(7, "a"), [failure(410)], listed(7, "a")),
        *([event("MODIFIED", "a", version), failure(410)], listed(9)),
    )
    heard.is_news = is_news
    *_, last = turns(made, 6)
    assert (last == 0) == ends_the_slowness


def test_watches_of_a_good_server_have_no_pauses() -> None:
    """Row 10: what a defence must not hit. Watches of 5 s, as a proxy may allow, with or without events."""
    made, server, heard = loop(listed(7, "a"))
    made.turn()
    pauses = []
    for number in range(200):
        if made._clock() >= made._resync_at:
            server.script.append(listed(8 + number, "a"))
        else:
            server.script.append([event("MODIFIED", "a", 8 + number), Sleep(5)] if number % 2 else [Sleep(5)])
        pauses.append(made.turn())
    assert set(pauses) == {0.0}
    assert heard.errors == []


def test_silence_lists_again_at_once() -> None:
    made, server, heard = loop(listed(7, "a"), [Sleep(70), SilentError("timed out")], listed(9))
    assert turns(made, 3) == [0, 0, 0]
    assert heard.lists == [["a"], []]
    assert made.restarts["timeout"] == 1
    assert heard.errors == []
    assert server.queries[2]["resource_version"] == "0"


@pytest.mark.parametrize(
    "part",
    [
        b"{{{\n",
        b"[]\n",
        b'{"type": "ADDED"}\n',
        b'{"type": "ADDED", "object": {"metadata": {}}}\n',
        failure(500),
    ],
)
def test_a_stream_that_cannot_be_read_lists_again(part: bytes) -> None:
    made, server, heard = loop(listed(7, "a"), [event("ADDED", "b", 8), part, b"never read"], listed(9))
    assert turns(made, 3) == [0, 0, 0]
    assert len(heard.lists) == 2
    assert made.restarts["error"] == 1
    assert server.open == 0


def test_an_endless_line_is_not_read_to_its_end() -> None:
    made, _, heard = loop(listed(7), [b"x" * (1 << 20)] * 40, listed(9))
    turns(made, 3)
    assert len(heard.lists) == 2


def test_an_unknown_type_of_event_is_ignored() -> None:
    made, _, heard = loop(listed(7), [event("SYNCED", "a", 8), event("ADDED", "b", 9)])
    turns(made, 2)
    assert heard.events == [("ADDED", "b")]


# Errors


def test_401_reads_the_credentials_again_once_and_without_a_pause() -> None:
    made, server, heard = loop(listed(7), HttpError(401, "Unauthorized"), [Sleep(5)])
    assert turns(made, 3) == [0, 0, 0]
    assert server.renewed == 1
    assert heard.errors == []
    assert server.queries[2]["resource_version"] == "7"


def test_401_that_stays_is_an_error() -> None:
    made, server, heard = loop(
        *[HttpError(401, "Unauthorized")] * 3, listed(7), HttpError(401, ""), listed(9)
    )
    first, second, third, *rest = turns(made, 6)
    assert first == 0
    assert 0.25 <= second <= 0.75
    assert 0.5 <= third <= 1.5
    assert rest[:2] == [0, 0]
    assert [error.kind for error in heard.errors] == ["unauthorized"] * 2
    assert server.renewed == 4


def test_403_names_verb_resource_and_namespace() -> None:
    made, _, heard = loop(HttpError(403, 'pods is forbidden: User "u" cannot list resource "pods"'))
    pause = made.turn()
    error = heard.errors[0]
    assert (error.kind, error.again_secs) == ("forbidden", pause)
    assert error.message == (
        'pods in namespace models: cannot list: 403: pods is forbidden: User "u" cannot list resource '
        '"pods"; a Role has to allow the verbs get, list and watch of pods'
    )


@pytest.mark.parametrize("status", [400, 403, 404])
def test_what_is_rejected_comes_again_soon_at_first_and_then_seldom(status: int) -> None:
    # An API server that has just started rejects everything with 403 until it has read its roles.
    made, _, heard = loop(*[HttpError(status, "")] * 10)
    for number, pause in enumerate(turns(made, 10)):
        assert min(15, 0.25 * 2**number) <= pause <= min(30, 0.75 * 2**number)
    assert len({error.kind for error in heard.errors}) == 1


def test_403_of_the_watch_only_goes_on_by_listing_seldom() -> None:
    made, _, heard = loop(
        *[step for version in range(8) for step in (listed(version + 1), HttpError(403, ""))]
    )
    pauses = turns(made, 16)
    assert pauses[::2] == [0] * 8
    for number, pause in enumerate(pauses[1::2]):
        assert min(15, 0.25 * 2**number) <= pause <= min(30, 0.75 * 2**number)
    assert len(heard.lists) == 8
    assert "cannot watch" in heard.errors[0].message


def test_a_watch_that_begins_ends_the_back_off_of_403() -> None:
    made, _, _ = loop(*[HttpError(403, "")] * 6, listed(7), [Sleep(5)], HttpError(403, ""))
    pauses = turns(made, 9)
    assert pauses[5] > 5
    assert 0.25 <= pauses[8] <= 0.75


def test_403_in_all_namespaces_takes_a_cluster_role() -> None:
    made, _, heard = loop(HttpError(403, ""), namespace="")
    made.turn()
    assert heard.errors[0].message.startswith("pods in all namespaces: ")
    assert "a ClusterRole has to allow" in heard.errors[0].message


@pytest.mark.parametrize(("status", "kind"), [(429, "throttled"), (503, "unavailable")])
def test_retry_after_is_obeyed(status: int, kind: str) -> None:
    made, server, heard = loop(listed(7), HttpError(status, "", 7), HttpError(status, "", 0), [Sleep(5)])
    assert turns(made, 4) == [0, 7, 0.5, 0]
    assert [error.kind for error in heard.errors] == [kind] * 2
    assert [error.again_secs for error in heard.errors] == [7, 0.5]
    assert server.queries[3]["resource_version"] == "7"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (HttpError(500, "etcd"), "server_error"),
        (HttpError(503, ""), "unavailable"),
        (CutError("refused"), "unreachable"),
        (SilentError("timed out"), "timeout"),
        (ConfigError("no such file"), "config"),
    ],
)
def test_others_have_a_back_off(error: Exception, kind: str) -> None:
    made, _, heard = loop(*[error] * 10)
    for number, pause in enumerate(turns(made, 10)):
        assert min(15, 0.25 * 2**number) <= pause <= min(30, 0.75 * 2**number)
    assert {one.kind for one in heard.errors} == {kind}
    assert all(one.message.startswith("pods in namespace models: ") for one in heard.errors)


def test_a_watch_that_cannot_be_opened_is_not_a_reason_to_list() -> None:
    made, server, heard = loop(listed(7), CutError("refused"), HttpError(500, ""), [event("ADDED", "a", 8)])
    pauses = turns(made, 4)
    assert [pause > 0 for pause in pauses] == [False, True, True, False]
    assert len(heard.lists) == 1
    assert server.queries[3]["resource_version"] == "7"


def test_a_watch_that_is_not_even_opened_is_silent_too() -> None:
    made, server, heard = loop(listed(7, "a"), SilentError("timed out"), listed(9))
    assert [pause > 0 for pause in turns(made, 3)] == [False, True, False]
    assert heard.lists == [["a"], []]
    assert heard.errors[0].kind == "timeout"
    assert "watch" not in server.queries[2]


def test_a_response_ends_the_back_off() -> None:
    made, _, _ = loop(*[CutError("refused")] * 6, listed(7), CutError("refused"), [Sleep(5)])
    pauses = turns(made, 9)
    assert pauses[5] > 5
    assert 0.25 <= pauses[7] <= 0.75


def test_after_a_410_lists_come_from_the_cache_again() -> None:
    made, server, _ = loop(listed(7), [failure(410)], listed(9), [Sleep(61)], listed(9))
    turns(made, 5)
    assert [one["resource_version"] for one in server.queries] == ["0", "7", None, "9", "0"]


# Whatever comes

BODIES = st.lists(
    st.one_of(
        st.builds(
            event, st.sampled_from(["ADDED", "MODIFIED", "DELETED", "ODD"]), st.just("a"), st.integers(0, 99)
        ),
        st.builds(bookmark, st.integers(0, 99)),
        st.builds(failure, st.sampled_from([410, 500, 401])),
        st.builds(Sleep, st.floats(0, 100)),
        st.builds(CutError, st.just("cut")),
        st.builds(SilentError, st.just("silent")),
        st.binary(min_size=1, max_size=30),
    ),
    max_size=5,
)
STEPS = st.one_of(
    BODIES,
    st.builds(listed, st.integers(0, 99), st.just("a")),
    st.builds(HttpError, st.sampled_from([400, 401, 403, 404, 410, 429, 500, 503]), st.just("")),
    st.builds(CutError, st.just("cut")),
)


@given(script=st.lists(STEPS, max_size=12))
def test_after_any_faults_a_list_is_heard_and_every_response_was_closed(script: list[Any]) -> None:
    # The last list has the highest version: it is believed, whatever came before.
    made, server, heard = loop(*script, *[listed(1000, "z")] * 20)
    while server.script and (not heard.lists or heard.lists[-1] != ["z"]):
        pause = made.turn()
        assert 0 <= pause <= 300
        server.now += pause + 1
    assert heard.lists[-1] == ["z"]
    assert server.open == 0


def test_versions_are_compared_as_numbers_if_they_are_some() -> None:
    assert is_older("9", "10")
    assert not is_older("10", "9")
    assert not is_older("10", "10")
    assert not is_older("a", "b")
    assert not is_older("\u00b2", "10")
    assert is_older("9" * 5000, "1" + "0" * 5000)
    assert not is_older("", "1")
