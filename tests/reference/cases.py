"""What is compared: a case does the same with either router and says what it saw."""

# ruff: noqa: E501, since a case is one line and a row of a table, too
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.reference.sides import Router

NOT_BUILT = "not built"


@dataclass
class Case:
    group: str
    name: str
    run: Callable[[Router], str]
    why: str
    flags: list[str]
    workers: int
    own: bool
    stages: tuple[int, int] | None  # prefill and decode workers, instead of those


CASES: list[Case] = []
ROUND_ROBIN = ["--policy", "round_robin"]


def case(
    group: str,
    name: str,
    why: str = "",
    flags: list[str] | None = None,
    workers: int = 3,
    own: bool = False,
    stages: tuple[int, int] | None = None,
) -> Callable[[Callable[[Router], str]], Callable[[Router], str]]:
    """`why` says why the two differ, if they do; it begins with NOT_BUILT for what is not built. `own`: a router of its own."""

    def add(run: Callable[[Router], str]) -> Callable[[Router], str]:
        CASES.append(
            Case(group, name, run, why, ROUND_ROBIN if flags is None else flags, workers, own, stages)
        )
        return run

    return add


def simple(
    group: str, name: str, method: str, path: str, body: Any = None, why: str = "", **more: Any
) -> None:
    """A case that is one request and its answer."""
    case(group, name, why, **more)(lambda router: router.said(router.ask(method, path, body)))


GROUPS = ENDPOINTS, REQUESTS, FLEET, FAILURES, LIMITS, POLICIES, STAGES = (
    "Endpoints of the router",
    "Requests and what reaches the worker",
    "The fleet",
    "Failures",
    "Limits",
    "Policies",
    "Prefill and decode",
)
PLAIN = "errors are JSON in OpenAI's form"
AS_SENT = "the bytes are unchanged; the engine decides"
FAST = ["--retry-initial-backoff-ms", "1", "--retry-max-backoff-ms", "5"]
