"""Cases: workers that come and go."""

# ruff: noqa: E501, since a case is one line and a row of a table, too
from __future__ import annotations

import signal
from urllib.parse import quote

from tests.reference.cases import FLEET, PLAIN, ROUND_ROBIN, case, simple
from tests.reference.sides import PATIENCE, Router, free_port
from tests.reference.workers import spare

simple(FLEET, "`GET /workers/{url}` of none", "GET", "/workers/" + quote("http://127.0.0.1:9", safe=""))
simple(FLEET, "`POST /add_worker` without a URL", "POST", "/add_worker", why=PLAIN)
simple(
    FLEET,
    "`POST /add_worker?url=nonsense`",
    "POST",
    "/add_worker?url=nonsense",
    flags=[*ROUND_ROBIN, "--worker-startup-timeout-secs", "2"],
    why="judged at once, and not after the time that a worker has to start",
)
simple(
    FLEET,
    "`POST /remove_worker` of an unknown URL",
    "POST",
    "/remove_worker?url=http://127.0.0.1:9",
    why="says what is so",
)
simple(
    FLEET,
    "`DELETE /workers/{url}` of an unknown URL",
    "DELETE",
    "/workers/" + quote("http://127.0.0.1:9", safe=""),
    why="says what is so",
)


@case(FLEET, "`GET /list_workers`")
def _(router: Router) -> str:
    return (
        ", ".join(sorted(router.said(router.ask("GET", "/list_workers")).split()))
        + f", {len(router.ask('GET', '/list_workers').json['urls'])} URLs"
    )


@case(FLEET, "`GET /workers/{url}`: keys")
def _(router: Router) -> str:
    answer = router.ask("GET", "/workers/" + quote(router.fleet[0].url, safe=""))
    return f"{answer.status} {', '.join(sorted({'url', 'model_id', 'is_healthy'} & set(answer.json)))}"


@case(FLEET, "`POST /add_worker` of a worker that is there already")
def _(router: Router) -> str:
    answer = router.ask("POST", f"/add_worker?url={router.fleet[0].url}")
    return (
        f"{answer.status}, {'says' if b'already exists' in answer.body else 'does not say'} “already exists”"
    )


@case(
    FLEET,
    "`POST /add_worker` of a new one: the response, and who serves the next two",
    flags=[*ROUND_ROBIN],
    workers=1,
    own=True,
)
def _(router: Router) -> str:
    new = spare()
    answer = router.ask("POST", f"/add_worker?url={new.url}")
    served = sorted(router.chat().worker for _ in range(2))
    return f"{answer.status} “{answer.body.decode().replace(new.url, 'URL')}”, {', '.join(served)}"


@case(FLEET, "`POST /workers` of a new one", workers=1, own=True)
def _(router: Router) -> str:
    new = spare()
    answer = router.ask("POST", "/workers", {"url": new.url})
    return f"{answer.status} success {answer.json.get('success')}"


@case(
    FLEET,
    "`POST /add_worker` of one that does not respond, 2 s to start",
    flags=[*ROUND_ROBIN, "--worker-startup-timeout-secs", "2"],
    own=True,
)
def _(router: Router) -> str:
    return f"{router.ask('POST', f'/add_worker?url=http://127.0.0.1:{free_port()}').status}"


@case(FLEET, "`POST /remove_worker`: the response, and who serves the next four", own=True)
def _(router: Router) -> str:
    answer = router.ask("POST", f"/remove_worker?url={router.fleet[0].url}")
    served = sorted({router.chat().worker for _ in range(4)})
    return (
        f"{answer.status} “{answer.body.decode().replace(router.fleet[0].url, 'URL')}”, {', '.join(served)}"
    )


@case(FLEET, "`DELETE /workers/{url}`", own=True)
def _(router: Router) -> str:
    answer = router.ask("DELETE", "/workers/" + quote(router.fleet[0].url, safe=""))
    return f"{answer.status} success {answer.json.get('success')}, {len(router.ask('GET', '/list_workers').json['urls'])} left"


@case(
    FLEET,
    "two ranks per URL: URLs, and the ranks that the worker is told",
    flags=[*ROUND_ROBIN, "--intra-node-data-parallel-size", "2", "--api-key", "k"],
    workers=1,
)
def _(router: Router) -> str:
    urls = sorted(url.rsplit("@")[-1] for url in router.ask("GET", "/list_workers").json["urls"])
    for _ in range(4):
        router.chat()
    ranks = sorted({request.headers.get("x-data-parallel-rank", "none") for request in router.seen()})
    return f"@{', @'.join(urls)}; ranks {', '.join(ranks)}"


@case(FLEET, "SIGTERM", own=True)
def _(router: Router) -> str:
    router.process.send_signal(signal.SIGTERM)
    return f"exit status {router.process.wait(PATIENCE)}"
