"""cpp/policy/prefix_aware.h: the documents' examples, checks and options. Random stories: tests/property."""

import hashlib
import threading

import pytest

from vllm_router import Router
from vllm_router import _core_testing as testing

WORKERS = [f"http://w{i}:8000" for i in (1, 2, 3)]
KIND = "You are a helpful assistant."
# Its point on the ring of three workers: the owner is w2, behind it come w1 and w3.
DIGEST = bytes.fromhex("542e8d8551bb38da2f00b1ff6716b42cfc811b892fafb8d353ba167bc6ce4784")


def fleet(*loads, **options):
    options = {"prefix_load_floor": 0} | options
    policy = testing.PolicyHarness("prefix_aware", virtual_nodes=150, seed=1, **options)
    for url in WORKERS:
        policy.add(url)
    for url, requests in zip(WORKERS, loads, strict=False):
        policy.set_load(url, requests)
    return policy


def digest(i):
    return hashlib.sha256(str(i).encode()).digest()


@pytest.mark.parametrize(
    ("loads", "chosen", "reason"),
    [
        ((3, 4, 3), 1, "prefix_hash"),  # the cap is ceil(1.25 * 11 / 3) = 5
        ((2, 5, 3), 0, "overflow"),
        ((5, 5, 0), 2, "overflow"),
        ((0, 0, 0), 1, "prefix_hash"),
        ((0, 1, 0), 0, "overflow"),  # the cap of an idle fleet is 1
    ],
)
def test_the_documents_example(loads, chosen, reason):
    assert fleet(*loads).choose(digest=DIGEST) == (chosen, reason)


@pytest.mark.parametrize(
    ("digest", "order"),
    [
        ("542e8d8551bb38da", "w2 w1 w3"),
        ("9bc41fce02707287", "w3 w1 w2"),
        ("55febedd492d8bed", "w1 w3 w2"),
        ("3984b77437c1c901", "w1 w3 w2"),
        ("aa7e5e89d950b930", "w2 w3 w1"),
    ],
)
def test_the_documented_orders_on_the_ring(digest, order):
    given = bytes.fromhex(digest) + bytes(24)
    policy, tried = fleet(), []
    for name in order.split():
        position = policy.choose(digest=given, tried=tried)[0]
        assert WORKERS[position] == f"http://{name}:8000"
        tried.append(position)


def test_with_equal_loads_the_owner_is_chosen():
    for load in (0, 1, 17):
        policy = fleet(load, load, load)
        assert {policy.choose(digest=digest(i))[1] for i in range(200)} == {"prefix_hash"}


def test_who_is_not_eligible_is_passed_over_and_the_next_owns_the_prefix():
    policy = fleet()
    policy.set_healthy(WORKERS[1], False)
    assert policy.choose(digest=DIGEST) == (0, "prefix_hash")
    # Its load counts for nobody's cap: of 4 and 3 requests the cap is ceil(1.25 * 8 / 2) = 5.
    for url, load in zip(WORKERS, (4, 900, 3), strict=True):
        policy.set_load(url, load)
    assert policy.choose(digest=DIGEST) == (0, "prefix_hash")
    assert policy.choose(digest=DIGEST, tried=[0]) == (2, "prefix_hash")
    assert policy.choose(digest=DIGEST, tried=[0, 2]) is None


def test_a_worker_that_leaves_moves_only_its_own_prefixes():
    policy = fleet()
    before = [policy.choose(digest=digest(i))[0] for i in range(400)]
    policy.remove(WORKERS[2])
    after = [policy.choose(digest=digest(i))[0] for i in range(400)]
    assert all(b == a for b, a in zip(before, after, strict=True) if b != 2)
    policy.add(WORKERS[2])
    assert [policy.choose(digest=digest(i))[0] for i in range(400)] == before


def test_a_floor_keeps_few_requests_together():
    assert fleet(0, 3, 0).choose(digest=DIGEST) == (0, "overflow")
    for load, answer in ((3, (1, "prefix_hash")), (7, (1, "prefix_hash")), (8, (0, "overflow"))):
        assert fleet(0, load, 0, prefix_load_floor=8).choose(digest=DIGEST) == answer


def test_more_slack_lets_the_owner_have_more():
    # 9 requests in all: caps ceil(1.01 * 10 / 3) = 4 and ceil(11 * 10 / 3) = 37.
    for epsilon, reason in ((10, "overflow"), (10_000, "prefix_hash")):
        assert fleet(1, 7, 1, load_factor_epsilon=epsilon).choose(digest=DIGEST)[1] == reason


def test_a_request_without_a_digest_goes_to_the_fallback_policy():
    assert fleet(1, 0, 1).choose() == (1, "fallback")
    turns = fleet(fallback_policy="round_robin")
    assert [turns.choose()[0] for _ in range(4)] == [0, 1, 2, 0]


def test_it_reads_the_prefix_and_what_its_fallback_reads():
    needs = {name: testing.PolicyHarness(name).needs for name in ("least_load", "random")}
    for name, own in needs.items():
        policy = testing.PolicyHarness("prefix_aware", fallback_policy=name)
        assert policy.needs == 16 | own


@pytest.mark.parametrize("epsilon", [0, 9, 10_001])
def test_epsilon_has_a_range(epsilon):
    with pytest.raises(ValueError, match=f"load_factor_epsilon is {epsilon} .* between 0.01 and 10"):
        testing.PolicyHarness("prefix_aware", load_factor_epsilon=epsilon)


def chat(system, model="llama-3"):
    return {
        "model": model,
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": "Hi"}],
    }


def test_chats_with_one_system_prompt_meet_until_there_is_no_room():
    router = Router("chwbl", WORKERS, seed=1, prefix_load_floor=0)
    assert router.policy == "prefix_aware"
    with router.select(chat(KIND)) as first:
        assert (first.worker_url, first.reason) == (WORKERS[1], "prefix_hash")
        with router.select(chat(KIND)) as second:
            assert (second.worker_url, second.reason) == (WORKERS[0], "overflow")
    with router.select(chat(KIND)) as again:
        assert again.worker_url == WORKERS[1]


@pytest.mark.parametrize("workers", [1, 3, 10])
@pytest.mark.parametrize("epsilon", [0.01, 0.25, 2.0])
def test_the_bound_holds_after_every_request(workers, epsilon):
    urls = [f"http://w{i}:8000" for i in range(workers)]
    router = Router("prefix_aware", urls, load_factor_epsilon=epsilon, prefix_load_floor=0, seed=3)
    tickets = []
    for i in range(300):
        before = [worker.load for worker in router.workers]
        ticket = router.select(chat(f"{i % 4}"))
        chosen = router.worker_urls.index(ticket.worker_url)
        # The cap is ceil((1 + epsilon) (R + 1) / n), in whole thousandths.
        assert before[chosen] < -(-round((1 + epsilon) * 1000) * (sum(before) + 1) // (1000 * workers))
        tickets.append(ticket)
        if i % 3 == 2:
            tickets.pop(i // 3 % len(tickets)).finish()


def test_weights_give_points_and_room_in_proportion():
    router = Router("prefix_aware", seed=1)
    for i, weight in enumerate((1, 2, 5)):
        router.add_worker(f"http://w{i}:8000", weight=weight)
    tickets = [router.select(chat(f"{i}")) for i in range(800)]
    loads = [worker.load for worker in router.workers]
    assert sum(loads) == len(tickets) == 800
    assert all(load <= 1.25 * 800 * weight / 8 + 1 for load, weight in zip(loads, (1, 2, 5), strict=True))
    assert loads == sorted(loads)


def test_counts_add_up_and_prefixes_are_counted():
    router = Router("prefix_aware", WORKERS, seed=1, prefix_load_floor=0)
    for i in range(300):
        router.select(chat(f"{i % 50}")).finish()
    for _ in range(7):
        router.select({"model": "m"}).finish()
    held = [router.select(chat(KIND)) for _ in range(5)]
    stats = router.stats()
    assert stats["policy"] == "prefix_aware"
    counts = stats["prefix_routing"]
    assert counts["fallback"] == 7
    assert counts["prefix_hash"] + counts["overflow"] == 305
    assert counts["overflow"] == sum(ticket.reason == "overflow" for ticket in held) > 0
    assert 50 <= counts["unique_prefixes"] <= 52
    assert Router("random", WORKERS).stats().keys() == {"policy", "tickets_expired"}


def test_two_routers_agree_without_talking():
    one = Router("prefix_aware", WORKERS)
    other = Router("prefix_aware", reversed(WORKERS))
    for i in range(100):
        assert one.select(chat(f"{i}")).worker_url == other.select(chat(f"{i}")).worker_url


def test_a_prompt_and_ids_are_placed_like_the_body_that_has_them():
    router = Router("prefix_aware", WORKERS)
    for i in range(30):
        body = router.select({"model": "m", "prompt": f"{i}"}).worker_url
        assert router.select(prompt=f"{i}", model="m").worker_url == body
        ids = router.select({"model": "m", "prompt": [i, 2]}).worker_url
        assert router.select(token_ids=[i, 2], model="m").worker_url == ids


def test_threads_pass_the_bound_by_no_more_than_their_number():
    router = Router("prefix_aware", WORKERS, seed=1, prefix_load_floor=0)
    tickets, threads = [], []

    def ask():
        for _ in range(100):
            tickets.append(router.select(chat(KIND)))

    for _ in range(4):
        threads.append(threading.Thread(target=ask))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert max(worker.load for worker in router.workers) <= -(-5 * 401 // 12) + 3
    assert len(tickets) == 400
    for ticket in tickets:
        ticket.finish()
    assert [worker.load for worker in router.workers] == [0, 0, 0]
