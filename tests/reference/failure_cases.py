"""Cases: workers that fail."""

# ruff: noqa: E501, since a case is one line and a row of a table, too
from __future__ import annotations

import time
from collections import Counter

from tests.reference.cases import FAILURES, FAST, PLAIN, ROUND_ROBIN, case
from tests.reference.sides import Router
from tests.reference.workers import closed

for _status in (500, 503, 429, 408, 400):

    @case(FAILURES, f"a worker says {_status} once, three workers", flags=[*ROUND_ROBIN, *FAST], own=True)
    def _(router: Router, status: int = _status) -> str:
        for worker in router.fleet:
            worker.statuses = [status]
        for worker in router.fleet[1:]:
            worker.statuses = []
        statuses = Counter(router.chat().status for _ in range(3))
        return f"of three requests {', '.join(f'{count} end with {number}' for number, count in sorted(statuses.items()))}"


@case(FAILURES, "all say 503: status, and how often it is sent", flags=[*ROUND_ROBIN, *FAST], own=True)
def _(router: Router) -> str:
    for worker in router.fleet:
        worker.statuses = [503] * 9
    status = router.chat().status
    return f"{status}, sent {len(router.seen())} times"


@case(FAILURES, "all say 500, `--disable-retries`", flags=[*ROUND_ROBIN, "--disable-retries"], own=True)
def _(router: Router) -> str:
    for worker in router.fleet:
        worker.statuses = [500] * 9
    answer = router.chat()
    return f"{answer.status}, sent {len(router.seen())} times"


@case(FAILURES, "a worker dies under a request", flags=[*ROUND_ROBIN, *FAST], own=True)
def _(router: Router) -> str:
    router.fleet[0].statuses = [0]
    return ", ".join(sorted(str(router.chat().status) for _ in range(3)))


@case(FAILURES, "one of three refuses connections, six requests", flags=[*ROUND_ROBIN, *FAST], own=True)
def _(router: Router) -> str:
    with closed(router.fleet[0]):
        return ", ".join(str(router.chat().status) for _ in range(6))


@case(
    FAILURES,
    "all refuse connections",
    flags=[*ROUND_ROBIN, *FAST],
    workers=1,
    own=True,
    why="a gateway’s error has a gateway’s status",
)
def _(router: Router) -> str:
    with closed(router.fleet[0]):
        return router.refusal(router.chat())


@case(FAILURES, "no workers: a chat", workers=0, why=PLAIN)
def _(router: Router) -> str:
    return router.refusal(router.chat())


@case(FAILURES, "no workers: another path", workers=0, why=PLAIN)
def _(router: Router) -> str:
    return router.refusal(router.ask("GET", "/some/path"))


BREAKER = [
    *ROUND_ROBIN,
    "--disable-retries",
    "--cb-failure-threshold",
    "2",
    "--cb-success-threshold",
    "1",
    "--cb-timeout-duration-secs",
    "1",
]


@case(
    FAILURES,
    "breaker of 2 failures, two workers, one fails: eight requests, then after its second",
    flags=BREAKER,
    workers=2,
    own=True,
)
def _(router: Router) -> str:
    router.fleet[0].always = 500
    statuses = Counter(router.chat().status for _ in range(8))
    router.fleet[0].always = 200
    time.sleep(1.3)
    later = {router.chat().worker for _ in range(6)}
    return f"{', '.join(f'{count} × {status}' for status, count in sorted(statuses.items()))}; then {len(later)} workers serve"


@case(
    FAILURES,
    "breaker of 2 failures, the only worker fails: six requests",
    flags=BREAKER,
    workers=1,
    own=True,
    why="the breakers of at most half of the workers open for statuses: where all fail, the engine’s own error tells more than a 503",
)
def _(router: Router) -> str:
    router.fleet[0].statuses = [500] * 6
    return ", ".join(str(router.chat().status) for _ in range(6))


@case(
    FAILURES,
    "`--disable-circuit-breaker`, the only worker fails: six requests",
    flags=[*BREAKER, "--disable-circuit-breaker"],
    workers=1,
    own=True,
)
def _(router: Router) -> str:
    router.fleet[0].statuses = [500] * 6
    return ", ".join(str(router.chat().status) for _ in range(6))


@case(FAILURES, "4xx and the breaker: six times 404, then a chat", flags=BREAKER, workers=1, own=True)
def _(router: Router) -> str:
    router.fleet[0].statuses = [404] * 6
    return ", ".join(str(router.chat().status) for _ in range(7))


HEALTH = [
    *ROUND_ROBIN,
    "--health-check-interval-secs",
    "1",
    "--health-failure-threshold",
    "2",
    "--health-success-threshold",
    "1",
]


@case(
    FAILURES,
    "one of three fails its health checks: `/health`, `/readiness`, who serves",
    flags=HEALTH,
    own=True,
    why="503 when none serves; one failing worker is no reason to take the router out of service. `--health-compat` for the old way",
)
def _(router: Router) -> str:
    router.fleet[0].always = 599
    time.sleep(5)
    health, ready = router.ask("GET", "/health"), router.ask("GET", "/readiness")
    served = sorted({router.chat().worker for _ in range(6)})
    return f"{health.status}, {ready.status} with {ready.json.get('healthy_workers')} healthy, {', '.join(served)}"
