"""Cases: what the router answers itself."""

# ruff: noqa: E501, since a case is one line and a row of a table, too
from __future__ import annotations

import re

from tests.reference.cases import ENDPOINTS, PLAIN, ROUND_ROBIN, case, simple
from tests.reference.sides import Router

simple(ENDPOINTS, "`GET /liveness`", "GET", "/liveness")
simple(ENDPOINTS, "`GET /readiness`", "GET", "/readiness")
simple(ENDPOINTS, "`GET /readiness` without workers", "GET", "/readiness", workers=0)
simple(ENDPOINTS, "`GET /health`", "GET", "/health")
simple(ENDPOINTS, "`GET /health_generate`", "GET", "/health_generate")
simple(ENDPOINTS, "`GET /v1/models`", "GET", "/v1/models")
simple(ENDPOINTS, "`GET /v1/models` without workers", "GET", "/v1/models", workers=0, why=PLAIN)
simple(ENDPOINTS, "`GET /get_server_info`", "GET", "/get_server_info")
simple(ENDPOINTS, "`GET /get_model_info`", "GET", "/get_model_info")
simple(ENDPOINTS, "`GET /get_loads`", "GET", "/get_loads")
simple(ENDPOINTS, "`POST /flush_cache`", "POST", "/flush_cache", why="a row per worker")
simple(
    ENDPOINTS,
    "`DELETE /v1/responses/r1`",
    "DELETE",
    "/v1/responses/r1",
    why="goes to the worker that made the response",
)
simple(
    ENDPOINTS,
    "`GET /v1/responses/r1/input`",
    "GET",
    "/v1/responses/r1/input",
    why="goes to the worker that made the response",
)
simple(ENDPOINTS, "`GET /scheduling/diagnostics`", "GET", "/scheduling/diagnostics")
simple(
    ENDPOINTS,
    "`POST /finish_session?session_id=s`, round_robin",
    "POST",
    "/finish_session?session_id=s",
    why="says as well whether the session was known",
)


@case(ENDPOINTS, "`GET /workers`: keys of a worker")
def _(router: Router) -> str:
    answer = router.ask("GET", "/workers").json
    theirs = {"url", "model_id", "worker_type", "is_healthy", "load", "connection_mode", "priority", "cost"}
    return f"{', '.join(sorted(theirs & set(answer['workers'][0])))}; stats {', '.join(sorted({'prefill_count', 'decode_count', 'regular_count'} & set(answer['stats'])))}; total {answer['total']}"


@case(
    ENDPOINTS, "`OPTIONS` of another site, no origins named", why="no page of another site may read anything"
)
def _(router: Router) -> str:
    return preflight(router)


@case(
    ENDPOINTS, "`OPTIONS` of a named site", flags=[*ROUND_ROBIN, "--cors-allowed-origins", "http://a.example"]
)
def _(router: Router) -> str:
    return preflight(router)


def preflight(router: Router) -> str:
    """Whom the router lets a page of another site send a chat."""
    answer = router.ask(
        "OPTIONS",
        "/v1/chat/completions",
        None,
        {"Origin": "http://a.example", "Access-Control-Request-Method": "POST"},
    )
    return f"{answer.status}, allows {answer.headers.get('access-control-allow-origin', 'none')}"


@case(ENDPOINTS, "names of metrics after a request and a failed one", own=True)
def _(router: Router) -> str:
    router.chat()
    for worker in router.fleet:
        worker.always = 400
    router.chat()
    text = router.ask("GET", "/metrics", port=router.metrics_port).body.decode()
    names = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    REFERENCE_METRICS.update(names if router.side.name == "reference" else ())
    return (
        ", ".join(f"`{name.removeprefix('vllm_router_')}`" for name in sorted(names & REFERENCE_METRICS))
        or "none"
    )


REFERENCE_METRICS: set[str] = set()
