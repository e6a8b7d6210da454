"""cpp/worker/worker.h: what of a worker never changes, and what requests change."""

from vllm_router import Router


def test_a_worker_has_its_url_rank_and_weight_for_good() -> None:
    router = Router(policy="round_robin")
    router.add_worker("http://a:8000@3", weight=2.5)
    (worker,) = router.workers
    assert (worker.url, worker.rank, worker.weight) == ("http://a:8000@3", 3, 2.5)


def test_every_decision_that_chose_a_worker_is_counted_for_ever() -> None:
    router = Router(policy="round_robin", worker_urls=["http://a:8000", "http://b:8000"])
    for _ in range(5):
        router.select(prompt="x").finish(status=200)
    assert [worker.selections for worker in router.workers] == [3, 2]


def test_a_worker_that_is_added_again_is_a_new_one() -> None:
    router = Router(policy="round_robin", worker_urls=["http://a:8000"])
    ticket = router.select(prompt="x")
    router.remove_worker("http://a:8000")
    router.add_worker("http://a:8000")
    (worker,) = router.workers
    assert (worker.load, worker.selections) == (0, 0)
    ticket.finish(status=200)
    assert router.workers[0].load == 0
