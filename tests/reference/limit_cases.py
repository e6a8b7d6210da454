"""Cases: sizes, numbers and times that are not exceeded."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from tests.reference.cases import LIMITS, ROUND_ROBIN, case
from tests.reference.sides import Router


@case(
    LIMITS,
    "body of `--max-payload-size`, and one byte more",
    flags=[*ROUND_ROBIN, "--max-payload-size", "1000"],
)
def _(router: Router) -> str:
    def sized(size: int) -> bytes:
        frame = json.dumps({"model": "m", "prompt": ""})
        return json.dumps({"model": "m", "prompt": "x" * (size - len(frame))}).encode()

    answers = [router.ask("POST", "/v1/completions", sized(size)) for size in (1000, 1001)]
    return f"{answers[0].status}, {answers[1].status}"


@case(
    LIMITS,
    "`--max-concurrent-requests 2`, no queue: six at once of 0.5 s",
    flags=[
        *ROUND_ROBIN,
        "--max-concurrent-requests",
        "2",
        "--queue-size",
        "0",
        "--rate-limit-tokens-per-second",
        "1000",
    ],
    workers=1,
    own=True,
    why="a cap on what is under way, and not a bucket that time fills",
)
def _(router: Router) -> str:
    seen = at_once(router, 6, 0.5)
    return seen if seen == "2 × 200, 4 × 429" else "more than 2 × 200"


@case(
    LIMITS,
    "`--max-concurrent-requests 1`, a queue of 1 for 1 s: four at once of 2 s",
    flags=[*ROUND_ROBIN, "--max-concurrent-requests", "1", "--queue-size", "1", "--queue-timeout-secs", "1"],
    workers=1,
    own=True,
    why="one waits, those beyond the queue are told at once",
)
def _(router: Router) -> str:
    return at_once(router, 4, 2.0)


@case(
    LIMITS,
    "429 has `Retry-After`",
    flags=[*ROUND_ROBIN, "--max-concurrent-requests", "1", "--queue-size", "0"],
    workers=1,
    own=True,
)
def _(router: Router) -> str:
    router.fleet[0].delay = 0.5
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: router.chat(), range(4)))
    turned = [answer for answer in answers if answer.status == 429]
    return (
        "no 429"
        if not turned
        else "yes"
        if all("retry-after" in answer.headers for answer in turned)
        else "no"
    )


@case(
    LIMITS,
    "`--request-timeout-secs 1`, a worker that takes 3 s",
    flags=[*ROUND_ROBIN, "--request-timeout-secs", "1", "--disable-retries"],
    workers=1,
    own=True,
    why="a gateway’s error has a gateway’s status",
)
def _(router: Router) -> str:
    router.fleet[0].delay = 3.0
    return str(router.chat().status)


def at_once(router: Router, count: int, seconds: float) -> str:
    router.fleet[0].delay = seconds
    with ThreadPoolExecutor(count) as threads:
        counts = Counter(threads.map(lambda number: router.complete(f"p{number}").status, range(count)))
    return ", ".join(f"{count} × {status}" for status, count in sorted(counts.items()))
