"""cpp/routing/router.h: the fleet with its ranks, and which worker is chosen."""

import contextlib
import json
import threading

import pytest

from vllm_router import NoWorkersError, Router, WorkerExistsError

HASH = ["consistent_hash", "rendezvous_hash"]
LOAD = ["least_load", "power_of_two"]
BLIND = ["random", "round_robin"]


def router(policy="least_load", workers=3, **options):
    return Router(policy, [f"http://w{i}:8000" for i in range(1, workers + 1)], **options)


def body(**members):
    return json.dumps(members).encode()


# The fleet


def test_ranks_of_a_host_are_workers_of_their_own_in_rank_order():
    fleet = Router("least_load", ["http://a:1", "http://b:1/"], intra_node_data_parallel_size=3)
    assert fleet.worker_urls == [f"http://{host}:1@{rank}" for host in "ab" for rank in range(3)]
    assert [worker.rank for worker in fleet.workers] == [0, 1, 2, 0, 1, 2]


def test_a_url_that_names_its_rank_is_not_expanded():
    fleet = Router("least_load", ["http://a:1@5"], intra_node_data_parallel_size=2)
    fleet.add_worker("http://b:1")
    assert fleet.worker_urls == ["http://a:1@5", "http://b:1@0", "http://b:1@1"]


def test_of_a_host_all_ranks_are_added_or_none():
    fleet = Router("least_load", ["http://a:1@2"], intra_node_data_parallel_size=4)
    with pytest.raises(WorkerExistsError, match="http://a:1@2"):
        fleet.add_worker("http://a:1")
    assert fleet.worker_urls == ["http://a:1@2"]


def test_the_weight_goes_to_every_rank():
    fleet = Router("least_load", intra_node_data_parallel_size=2)
    fleet.add_worker("http://a:1", weight=2.5)
    assert [worker.weight for worker in fleet.workers] == [2.5, 2.5]


def test_a_base_url_drains_and_removes_all_its_ranks():
    fleet = Router("least_load", ["http://a:1", "http://b:1"], intra_node_data_parallel_size=2)
    fleet.drain_worker("http://a:1")
    assert [worker.draining for worker in fleet.workers] == [True, True, False, False]
    fleet.remove_worker("http://a:1")
    assert fleet.worker_urls == ["http://b:1@0", "http://b:1@1"]


# Who is chosen


def test_a_ticket_takes_prompt_and_output_to_its_worker_and_back():
    fleet = Router("least_load", ["http://a:1"])
    request = body(prompt="x" * 377, max_tokens=50)
    assert len(request) == 409
    ticket = fleet.select(request)
    (worker,) = fleet.workers
    assert (worker.load, worker.queued_prefill_tokens) == (1, 103)
    assert (worker.expected_output_tokens, worker.context_tokens) == (50, 103)
    ticket.first_token()
    (worker,) = fleet.workers
    assert (worker.load, worker.queued_prefill_tokens) == (1, 0)
    ticket.finish()
    (worker,) = fleet.workers
    assert (worker.load, worker.queued_prefill_tokens) == (0, 0)
    assert (worker.expected_output_tokens, worker.context_tokens) == (0, 0)
    assert worker.selections == 1


@pytest.mark.parametrize("policy", BLIND + LOAD + HASH)
def test_when_nobody_may_be_chosen_the_message_counts_and_no_load_moves(policy):
    fleet = router(policy, workers=5)
    fleet.set_healthy("http://w1:8000", False)
    fleet.set_healthy("http://w2:8000", False)
    fleet.drain_worker("http://w2:8000")
    fleet.drain_worker("http://w3:8000")
    with pytest.raises(NoWorkersError) as raised:
        fleet.select(prompt="p", exclude=["http://w4:8000", "http://w5:8000"])
    assert str(raised.value) == (
        "no worker can take the request: the fleet has 5 workers, of which 2 unhealthy, 1 draining and "
        "2 excluded; add a worker, or wait until one is healthy"
    )
    assert all(worker.load == worker.selections == 0 for worker in fleet.workers)


@pytest.mark.parametrize("policy", BLIND + LOAD + HASH)
def test_an_empty_fleet_says_how_to_fill_it(policy):
    with pytest.raises(NoWorkersError, match="0 workers; add one with add_worker"):
        Router(policy).select(prompt="p")


@pytest.mark.parametrize("policy", BLIND + LOAD + HASH)
def test_with_one_worker_it_is_chosen_for_every_key(policy):
    fleet = Router(policy, ["http://a:1"])
    chosen = {fleet.select(prompt=f"p{i}").worker_url for i in range(20)}
    assert chosen == {"http://a:1"}


def test_vectors_of_the_hash_policies_hold_end_to_end():
    def workers(fleet, **request):
        urls = (fleet.select(headers={"X-Session-ID": f"sess-{i}"}, **request).worker_url for i in range(8))
        return " ".join(url.removeprefix("http://").removesuffix(":8000") for url in urls)

    ring, rendezvous = router("consistent_hash"), router("rendezvous_hash")
    assert workers(ring) == "w1 w1 w1 w2 w1 w3 w3 w1"
    assert workers(rendezvous) == "w1 w2 w3 w2 w1 w3 w2 w1"
    for fleet in (ring, rendezvous):
        fleet.set_healthy("http://w1:8000", False)
    assert workers(ring) == "w2 w3 w2 w2 w2 w3 w3 w3"
    assert workers(rendezvous) == "w3 w2 w3 w2 w2 w3 w2 w2"
    first = router("consistent_hash", hash_failover="first")
    assert workers(first, exclude=["http://w1:8000"]) == "w2 w2 w2 w2 w2 w3 w3 w2"
    ranks = Router("consistent_hash", ["http://w:8000"], intra_node_data_parallel_size=2)
    assert workers(ranks) == "w:8000@0 w:8000@0 w:8000@0 w:8000@1 w:8000@1 w:8000@1 w:8000@1 w:8000@0"


@pytest.mark.parametrize("policy", ["random", "least_load", "power_of_two"])
def test_a_seed_makes_random_choices_repeat(policy):
    def choices(seed):
        fleet = router(policy, workers=8, seed=seed)
        return [fleet.select().worker_url for _ in range(64)]

    assert choices(7) == choices(7)
    assert choices(7) != choices(8)
    assert choices(None) != choices(None)


# Requests per worker


def test_a_full_worker_is_not_chosen():
    router = Router("round_robin", ["http://a:1", "http://b:1"], max_worker_requests=2)
    tickets = [router.select() for _ in range(4)]
    assert [worker.load for worker in router.workers] == [2, 2]
    with pytest.raises(NoWorkersError, match=r"all 2 that are eligible have 2 open requests"):
        router.select()
    tickets[1].finish()
    assert router.select().worker_url == tickets[1].worker_url


def test_a_session_goes_on_to_the_next_worker_while_its_own_is_full():
    router = Router("consistent_hash", ["http://a:1", "http://b:1", "http://c:1"], max_worker_requests=1)
    session = {"X-Session-ID": "ann"}
    with router.select(headers=session) as first, router.select(headers=session) as second:
        assert first.worker_url != second.worker_url
        home = first.worker_url
    with router.select(headers=session) as again:
        assert again.worker_url == home


def test_of_those_who_are_excluded_nobody_is_called_full():
    router = Router("round_robin", ["http://a:1"], max_worker_requests=1)
    with pytest.raises(NoWorkersError, match="1 excluded"):
        router.select(exclude=["http://a:1"])


def test_no_thread_slips_in_beyond_the_bound():
    router = Router("random", ["http://a:1", "http://b:1"], max_worker_requests=3, seed=1)
    start = threading.Barrier(8)
    tickets = []

    def select():
        start.wait()
        for _ in range(200):
            with contextlib.suppress(NoWorkersError):
                tickets.append(router.select())

    threads = [threading.Thread(target=select) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [worker.load for worker in router.workers] == [3, 3]
    assert len(tickets) == 6
