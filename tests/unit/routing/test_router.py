"""cpp/routing/router.h: the fleet with its ranks, and which worker is chosen."""

import contextlib
import json
import threading

import pytest

from tests.rows import for_each_row
from vllm_router import NoWorkersError, Router, WorkerExistsError
from vllm_router import _core_testing as testing

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


# Two stages.

P0, P1, D0, D1 = "http://p0:8000", "http://p1:8000", "http://d0:8000", "http://d1:8000"


def staged(policy="round_robin", decode_policy="", **options):
    options = {"prefill": [(P0, 8998), (P1, None)], "decode": [D0, D1]} | options
    return testing.StagedRouter(policy, decode_policy, **options)


def chosen(router, stage, count=1, **request):
    urls = []
    for _ in range(count):
        number, url, *_ = router.select(stage, **request)
        router.finish(number)
        urls.append(url)
    return urls


def test_each_stage_is_chosen_by_its_own_policy_with_its_own_turns():
    router = staged()
    assert chosen(router, "prefill", 3) == [P0, P1, P0]
    assert chosen(router, "decode", 3) == [D0, D1, D0]
    assert chosen(router, "prefill") == [P1]
    mixed = staged("round_robin", "random")
    assert mixed.policies == ("round_robin", "random")
    number, *_ = mixed.select("decode")
    assert mixed.policy_of_ticket(number) == "random"
    number, *_ = mixed.select("regular")
    assert mixed.policy_of_ticket(number) == "round_robin"


@for_each_row(
    ("policy", "decode"),
    [
        ("random", "random"),
        ("round_robin", "round_robin"),
        ("least_load", "least_load"),
        ("power_of_two", "power_of_two"),
        ("consistent_hash", "consistent_hash"),
        ("cache_aware", "least_load"),
        ("auto", "least_load"),
        ("prefix_aware", "least_load"),
        ("prefix_hash", "least_load"),
        ("vllm_cache_aware", "least_load"),
        ("kv_overlap", "least_load"),
    ],
)
def test_a_decode_stage_inherits_a_policy_unless_that_matches_prompts(policy, decode):
    assert staged(policy).policies == (policy, decode)
    assert staged("random", policy).policies == ("random", policy)


def test_an_inherited_least_load_compares_tokens():
    router = staged("cache_aware")
    number, first, *_ = router.select("decode", prompt="x" * 4000)  # one request, about a thousand tokens
    other = D1 if first == D0 else D0
    for _ in range(2):  # two requests, few tokens
        assert router.select("decode", prompt="x", transferred=True)[1] == other
    assert router.load_of(other)[0] == 2
    assert router.select("decode", prompt="x", transferred=True)[1] == other
    router.finish(number)


def test_a_transferred_prompt_is_not_prefilled_again():
    router = staged("least_load")
    prompt = "x" * 4000
    number, url, _, tokens = router.select("decode", prompt=prompt, transferred=True)
    assert tokens == 0
    whole = router.load_of(url)[1]
    router.finish(number)
    assert router.load_of(url) == (0, 0)
    number, url, _, tokens = router.select("decode", prompt=prompt, pinned=url)
    assert tokens > 900
    assert router.load_of(url)[1] == whole + tokens


def test_only_workers_of_the_stage_are_on_its_ring():
    """The home of a session is the same whatever the other stage has."""
    router, other = (
        staged("consistent_hash"),
        staged("consistent_hash", decode=[f"http://x{i}" for i in "abc"]),
    )
    for session in map(str, range(50)):
        number, url, reason, _ = router.select("prefill", session=session)
        router.finish(number)
        assert (reason, [url]) == ("session_hash", chosen(other, "prefill", session=session))


@pytest.mark.parametrize(
    "policy", ["random", "round_robin", "least_load", "rendezvous_hash", "sticky_least_loaded", "cache_aware"]
)
def test_no_policy_sees_the_other_stage(policy):
    router = staged(policy, policy)
    for at in range(20):
        words = {"session": f"s{at}", "prompt": "x" * 100 * at}
        assert router.select("prefill", **words)[1] in (P0, P1)
        assert router.select("decode", **words)[1] in (D0, D1)
    assert sorted(router.rank("decode", "s", 9)) == [D0, D1]


def test_ranks_of_each_stage():
    router = staged(ranks=(1, 2, 0))
    assert router.eligible("prefill") == [f"{url}@{rank}" for url in (P0, P1) for rank in (0, 1)]
    assert router.eligible("decode") == [D0, D1]
    router.add("http://p2:8000", "prefill")
    assert router.eligible("prefill")[4:] == ["http://p2:8000@0", "http://p2:8000@1"]
    assert staged(ranks=(4, 0, 2), prefill=[(P0, None)]).eligible("regular") == [
        *(f"{P0}@{rank}" for rank in range(4)),
        *(f"{url}@{rank}" for url in (D0, D1) for rank in (0, 1)),
    ]


def test_the_message_for_a_missing_pair_counts_what_each_stage_could_offer():
    router = staged(prefill=[(P0, None)])
    assert router.no_pair_message == "No workers available: 1 prefill, 2 decode"
    router.set_healthy(P0, False)
    assert router.no_pair_message == "No workers available: 0 prefill, 2 decode"
    with pytest.raises(ValueError, match="the prefill stage has 1 worker, of which 1 unhealthy"):
        router.select("prefill")
    router.remove(D0)
    router.remove(D1)
    assert router.no_pair_message == "No workers available: 0 prefill, 0 decode"
    with pytest.raises(ValueError, match=r"the decode stage has 0 workers; add one with .* or --decode"):
        router.select("decode")


def test_free_places_are_those_of_the_stage_that_has_fewer():
    router = staged(max_worker_requests=3, prefill=[(P0, None)])
    assert router.free_places == 3
    numbers = [router.select("decode")[0] for _ in range(4)]
    assert router.free_places == 2
    for _ in range(3):
        router.select("prefill")
    with pytest.raises(ValueError, match="max_worker_requests"):
        router.select("prefill")
    router.finish(numbers[0])
    assert router.free_places == 0


def test_one_report_for_both_policies():
    router = staged("cache_aware", "cache_aware")
    router.select("prefill", prompt="x" * 400)
    router.select("decode", prompt="x" * 700)
    sizes = router.stats()["cache_routing"]["workers"]
    assert sorted(sizes[url] for url in (P0, P1)) == [0, 400]
    assert sorted(sizes[url] for url in (D0, D1)) == [0, 700]


def test_the_key_has_what_either_policy_needs():
    session, prompt = (staged(policy, policy).needs for policy in ("consistent_hash", "cache_aware"))
    assert session != prompt
    assert staged("consistent_hash", "cache_aware").needs == session | prompt


def test_worker_urls_do_not_count_beside_stages():
    router = staged(worker_urls=["http://r:8000"])
    assert router.eligible("regular") == [P0, P1, D0, D1]


def test_the_report_of_an_index_knows_its_workers_though_the_whole_fleet_has_no_plan():
    router = staged("vllm_cache_aware", "vllm_cache_aware")
    router.finish(router.select("prefill", prompt="x" * 400)[0])
    blocks = router.stats()["block_index"]["workers"]
    assert set(blocks) == {P0, P1, D0, D1}
    assert sum(blocks.values()) == blocks[P0] + blocks[P1] > 0
