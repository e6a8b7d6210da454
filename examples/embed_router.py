"""Route requests from your own Python service: choose a worker, send the request, give the load back.

python examples/embed_router.py                                   # two simulated workers, one of them ill
python examples/embed_router.py http://gpu-0:8000 http://gpu-1:8000
"""

import contextlib
import json
import sys
import urllib.error
import urllib.request
from typing import Any

from vllm_router import NoWorkersError, Router
from vllm_router.testing import SimulatedWorker


def post(base_url: str, path: str, body: dict[str, Any], rank: int | None) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"}
    if rank is not None:
        headers["X-data-parallel-rank"] = str(rank)
    request = urllib.request.Request(base_url + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=600) as answer:
        parsed: dict[str, Any] = json.load(answer)
        return parsed


def ask(router: Router, session: str, body: dict[str, Any], attempts: int = 3) -> dict[str, Any]:
    """One chat, on the session's worker; on another one while that fails."""
    failed: list[str] = []
    while True:
        # The load is reserved here. Whatever happens below, it returns when the block is left.
        with router.select(body, headers={"X-Session-ID": session}, exclude=failed) as ticket:
            try:
                answer = post(ticket.base_url, "/v1/chat/completions", body, ticket.rank)
            except urllib.error.URLError as error:
                status = error.code if isinstance(error, urllib.error.HTTPError) else 0
                ticket.finish(status=status, end="worker_failed")
                print(f"{session}: {ticket.worker_url} failed ({error})")
                failed.append(ticket.worker_url)
                if len(failed) == attempts:
                    raise
                continue
            usage = answer["usage"]
            ticket.finish(
                status=200, prompt_tokens=usage["prompt_tokens"], output_tokens=usage["completion_tokens"]
            )
            print(f"{session}: {ticket.worker_url}, because of {ticket.reason}")
            return answer


def main(worker_urls: list[str]) -> None:
    router = Router(policy="consistent_hash", worker_urls=worker_urls)
    body = {"messages": [{"role": "user", "content": "Name three rivers of Europe."}], "max_tokens": 8}
    for session in ("ada", "ben", "cleo", "dan"):
        ask(router, session, body)
    assert all(worker.load == 0 for worker in router.workers)

    # Nobody left to ask is an exception of its own.
    for url in router.worker_urls:
        router.set_healthy(url, False)
    with contextlib.suppress(NoWorkersError):
        ask(router, "eve", body)
        raise AssertionError("nobody could have answered")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1:])
    else:
        with SimulatedWorker(engine="instant") as well, SimulatedWorker(status_code=503) as ill:
            main([well.url, ill.url])
            assert well.stats()["requests"] == 4
