"""cpp/worker/worker_load.h: five counters that a ticket raises and lowers, and nothing else."""

from vllm_router import Router, WorkerInfo


def load(worker: WorkerInfo) -> tuple[int, int, int, int]:
    assert worker.waiting_requests == (worker.queued_prefill_tokens > 0) * worker.load
    return (
        worker.load,
        worker.queued_prefill_tokens,
        worker.expected_output_tokens,
        worker.context_tokens,
    )


def test_a_ticket_adds_its_share_and_takes_just_that_away() -> None:
    router = Router(policy="least_load", worker_urls=["http://a:8000"])
    first = router.select(token_ids=list(range(100)))
    second = router.select(token_ids=list(range(40)))
    requests, queued, expected, context = load(router.workers[0])
    assert (requests, queued, context) == (2, 140, 140)
    assert expected > 0
    first.finish(status=200)
    assert load(router.workers[0]) == (1, 40, expected // 2, 40)
    second.finish(status=200)
    assert load(router.workers[0]) == (0, 0, 0, 0)


def test_the_first_token_returns_the_prefill_and_only_once() -> None:
    router = Router(policy="least_load", worker_urls=["http://a:8000"])
    ticket = router.select(token_ids=list(range(100)))
    ticket.first_token()
    ticket.first_token()
    assert load(router.workers[0])[1] == 0
    assert load(router.workers[0])[3] == 100
    ticket.finish(status=200)
    assert load(router.workers[0]) == (0, 0, 0, 0)
