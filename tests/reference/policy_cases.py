"""Cases: which worker is chosen."""

# ruff: noqa: E501, since a case is one line and a row of a table, too
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.reference.cases import FAST, POLICIES, case
from tests.reference.sides import NOT_SHOWN, Answer, Router, homes


@case(POLICIES, "round_robin: nine requests, three workers", own=True)
def _(router: Router) -> str:
    chosen = [router.complete(f"p{number}").worker for number in range(9)]
    counts = sorted(Counter(chosen).values())
    return f"{counts[0]} each, {'in turn' if chosen[:3] * 3 == chosen else 'not in turn'}"


@case(POLICIES, "random: 200 requests, three workers", flags=["--policy", "random"])
def _(router: Router) -> str:
    counts = Counter(router.complete(f"p{number}").worker for number in range(200))
    return "each has 40 or more" if len(counts) == 3 and min(counts.values()) >= 40 else str(dict(counts))


@case(POLICIES, "power_of_two: sixty requests, three workers", flags=["--policy", "power_of_two"])
def _(router: Router) -> str:
    return f"{len({router.complete(f'p{number}').worker for number in range(60)})} workers serve"


@case(
    POLICIES,
    "power_of_two: one of two is slow, its share of sixty requests",
    flags=["--policy", "power_of_two"],
    workers=2,
    own=True,
    why="load counts under every policy; there it does under `cache_aware` only",
)
def _(router: Router) -> str:
    return share_of_the_slow(router)


_SESSIONS = [f"sess-{number}" for number in range(24)]
HASH = ["--policy", "consistent_hash"]
_DIGEST = "without any key a digest of the request is one"
_KEYS: dict[str, tuple[Callable[[Router, str], Answer], str]] = {
    **{
        f"24 values of `{name}`": (lambda router, s, name=name: router.chat(headers={name: s}), "")
        for name in ("X-Session-ID", "X-User-ID", "X-Tenant-ID", "X-Correlation-ID")
    },
    "`session_params.session_id` of a chat": (
        lambda router, s: router.chat(session_params={"session_id": s}),
        "`--consistent-hash-compat` for the old key",
    ),
    "`user` of a chat": (
        lambda router, s: router.chat(user=s),
        "there all chats without a session’s header go to one worker",
    ),
    "24 short prompts of `/v1/completions`": (lambda router, s: router.complete(s), _DIGEST),
    "24 prompts of 200 bytes": (lambda router, s: router.complete(s * 30), _DIGEST),
    "24 different chats without any key": (
        lambda router, s: router.chat(s * 30),
        "a digest of the body spreads them",
    ),
}
for _name, (_ask, _why) in _KEYS.items():

    @case(POLICIES, f"consistent_hash: {_name}", flags=HASH, why=_why)
    def _(router: Router, ask: Callable[[Router, str], Answer] = _ask) -> str:
        return homes(ask(router, session).worker for session in _SESSIONS)


@case(
    POLICIES,
    "consistent_hash: a header’s session before the body’s, an empty header, both",
    flags=HASH,
)
def _(router: Router) -> str:
    def home(header: str) -> str:
        return router.chat(headers={"X-Session-ID": header}, session_params={"session_id": "b"}).worker

    empty = {home("") for _ in range(4)}
    return f"{len(empty)} worker for the empty one; otherwise {homes(map(home, _SESSIONS))}"


@case(
    POLICIES,
    "consistent_hash: the homes of 24 sessions while w1 is away",
    flags=[*HASH, *FAST],
    own=True,
)
def _(router: Router) -> str:
    before = [router.chat(headers={"X-Session-ID": session}).worker for session in _SESSIONS]
    router.ask("POST", f"/remove_worker?url={router.fleet[0].url}")
    after = [router.chat(headers={"X-Session-ID": session}).worker for session in _SESSIONS]
    moved = sum(a != b for a, b in zip(before, after, strict=True))
    moved_to = [b for a, b in zip(before, after, strict=True) if a == "w1"]
    return f"only its own move: {moved == len(moved_to)}{NOT_SHOWN}{' '.join(moved_to)}"


STICKY = ["--policy", "sticky_least_loaded"]


@case(POLICIES, "sticky_least_loaded: 12 sessions, three times each", flags=STICKY, own=True)
def _(router: Router) -> str:
    served = [
        [router.chat(headers={"X-Session-ID": session}).worker for _ in range(3)]
        for session in _SESSIONS[:12]
    ]
    return f"each keeps its worker: {all(len(set(home)) == 1 for home in served)}"


@case(POLICIES, "sticky_least_loaded: workers of 12 new sessions", flags=STICKY, own=True)
def _(router: Router) -> str:
    counts = Counter(router.chat(headers={"X-Session-ID": session}).worker for session in _SESSIONS[:12])
    return " + ".join(str(count) for count in sorted(counts.values()))


@case(
    POLICIES,
    "sticky_least_loaded: `session_id` in a completion’s body, six times, its prompts differ",
    flags=STICKY,
    own=True,
    why="a session’s member of the JSON counts on every path",
)
def _(router: Router) -> str:
    served = {router.complete(f"p{number}", session_id="s").worker for number in range(6)}
    return "one worker serves" if len(served) == 1 else "more than one serve"


@case(POLICIES, "sticky_least_loaded: twelve sessions while one worker is removed", flags=STICKY, own=True)
def _(router: Router) -> str:
    before = [router.chat(headers={"X-Session-ID": session}).worker for session in _SESSIONS[:12]]
    router.ask("POST", f"/remove_worker?url={router.fleet[0].url}")
    after = [router.chat(headers={"X-Session-ID": session}).worker for session in _SESSIONS[:12]]
    return f"only its own move: {all(a == b for a, b in zip(before, after, strict=True) if a != 'w1')}, two serve: {len(set(after)) == 2}"


@case(
    POLICIES,
    "`POST /finish_session` of a session that is known, of none, without one",
    flags=STICKY,
    own=True,
)
def _(router: Router) -> str:
    router.chat(headers={"X-Session-ID": "a"})
    return ", ".join(
        str(router.ask("POST", path).status)
        for path in ("/finish_session?session_id=a", "/finish_session?session_id=b", "/finish_session")
    )


CACHE = ["--policy", "cache_aware"]


@case(
    POLICIES,
    "cache_aware: one completion of 300 bytes, twelve times, two workers",
    flags=CACHE,
    workers=2,
    own=True,
)
def _(router: Router) -> str:
    return who_serves(router.complete("A repeated prompt for the cache. " * 10).worker for _ in range(12))


@case(
    POLICIES,
    "cache_aware: one completion of 25 bytes, twelve times, two workers",
    flags=CACHE,
    workers=2,
    own=True,
    why="shorter than a block of 16 tokens, so no engine caches it: the least loaded serves",
)
def _(router: Router) -> str:
    return who_serves(router.complete("repeated prompt for cache").worker for _ in range(12))


@case(
    POLICIES,
    "cache_aware: chats with one system prompt and tools, another task each, two workers",
    flags=CACHE,
    workers=2,
    own=True,
    why="a shared prefix spreads, instead of pinning all to one worker",
)
def _(router: Router) -> str:
    system = {
        "role": "system",
        "content": "You are a coding agent. Inspect before you edit, then explain what you did. " * 4,
    }
    chosen = [
        router.ask(
            "POST",
            "/v1/chat/completions",
            {"model": "m", "messages": [system, {"role": "user", "content": f"Task {number}"}]},
        ).worker
        for number in range(12)
    ]
    return f"{max(Counter(chosen).values())} to one"


@case(POLICIES, "cache_aware: turns of one chat, two workers", flags=CACHE, workers=2, own=True)
def _(router: Router) -> str:
    messages = [
        {
            "role": "user",
            "content": "Tell me about the great rivers of Europe, their sources and mouths. " * 4,
        }
    ]
    chosen = []
    for turn in range(6):
        chosen.append(router.ask("POST", "/v1/chat/completions", {"model": "m", "messages": messages}).worker)
        messages += [
            {"role": "assistant", "content": f"Answer {turn} " * 10},
            {"role": "user", "content": f"And then {turn}? " * 5},
        ]
    return f"{max(Counter(chosen).values())} of 6 to one"


_SESSION: dict[str, dict[str, Any]] = {
    "X-Session-ID": {"headers": {"X-Session-ID": "s"}},
    "session_params.session_id": {"session_params": {"session_id": "s"}},
}
for _name, _more in _SESSION.items():

    @case(
        POLICIES,
        f"cache_aware: one `{_name}`, twelve unrelated chats, two workers",
        flags=CACHE,
        workers=2,
        own=True,
        why="what a worker holds of the prompt decides, and a session’s turns share their prompts; `consistent_hash` or `sticky_least_loaded` for sessions that share nothing",
    )
    def _(router: Router, more: dict[str, Any] = _more) -> str:
        return who_serves(router.chat(f"{number} is a number. " * 20, **more).worker for number in range(12))


@case(POLICIES, "cache_aware: the worker of a repeated prompt leaves", flags=CACHE, workers=2, own=True)
def _(router: Router) -> str:
    prompt = "A repeated prompt for the cache. " * 10
    first = [router.complete(prompt).worker for _ in range(3)][-1]
    router.ask(
        "POST", f"/remove_worker?url={next(worker.url for worker in router.fleet if worker.name == first)}"
    )
    return f"the other serves: {all(router.complete(prompt).worker != first for _ in range(3))}"


@case(POLICIES, "cache_aware: forty different prompts at once, three workers", flags=CACHE, own=True)
def _(router: Router) -> str:
    for worker in router.fleet:
        worker.delay = 0.05
    with ThreadPoolExecutor(16) as threads:
        counts = Counter(threads.map(lambda number: router.complete(f"{number} " * 60).worker, range(40)))
    return f"{len(counts)} workers serve, {'none more than 20' if max(counts.values()) <= 20 else 'one more than 20'}"


@case(
    POLICIES,
    "cache_aware: one prompt by eight clients at once, thresholds 2 and 1.1, two workers",
    flags=[*CACHE, "--balance-abs-threshold", "2", "--balance-rel-threshold", "1.1"],
    workers=2,
    own=True,
)
def _(router: Router) -> str:
    for worker in router.fleet:
        worker.delay = 0.3
    with ThreadPoolExecutor(8) as threads:
        counts = Counter(
            threads.map(lambda _: router.complete("A repeated prompt for the cache. " * 10).worker, range(16))
        )
    return f"{len(counts)} serve"


def who_serves(workers: Iterable[str]) -> str:
    """Of two workers."""
    return "one serves all" if len(set(workers)) == 1 else "both serve"


def share_of_the_slow(router: Router) -> str:
    """Of sixty requests by eight clients, how many the first worker gets, which is slow."""
    router.fleet[0].delay = 0.2
    with ThreadPoolExecutor(8) as threads:
        counts = Counter(threads.map(lambda number: router.complete(f"p{number}").worker, range(60)))
    return "about half" if counts[router.fleet[0].name] >= 18 else "fewer than 18"
