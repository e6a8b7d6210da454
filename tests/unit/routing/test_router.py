"""cpp/routing/router.h: the fleet with its ranks, what a key is made of, and who is chosen."""

import contextlib
import json
import threading

import pytest

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


# What is read of a request


@pytest.mark.parametrize("policy", BLIND + LOAD)
def test_policies_without_a_session_never_need_the_body(policy):
    assert not testing.needs_body(router(policy), [])


@pytest.mark.parametrize("policy", HASH)
def test_hash_policies_need_the_body_only_when_no_header_has_the_key(policy):
    fleet = router(policy)
    assert testing.needs_body(fleet, [])
    assert testing.needs_body(fleet, [("content-type", "application/json"), ("x-session-id", " ")])
    assert not testing.needs_body(fleet, [("accept", "*/*"), ("X-Session-ID", "s")])
    assert not testing.needs_body(fleet, [("x-claude-code-session-id", "s")])
    with_own_header = router(policy, hash_key_headers=["X-Shop"])
    assert testing.needs_body(with_own_header, [("x-session-id", "s")])
    assert not testing.needs_body(with_own_header, [("x-shop", "s")])


@pytest.mark.parametrize("policy", BLIND)
def test_nothing_is_read_for_a_policy_that_needs_nothing(policy):
    key = testing.make_key(router(policy), headers=[("x-session-id", "s")], body=body(user="u", max_tokens=5))
    assert key == {
        "hash_key": "",
        "source": "missing",
        "prompt_tokens": 1,
        "expected_output": 256,
        "prefix_digest": None,
        "prompt": None,
        "scope": 0,
        "framed": False,
    }


@pytest.mark.parametrize("policy", HASH)
def test_hash_policies_get_the_session_key(policy):
    fleet = router(policy)
    assert testing.make_key(fleet, headers=[("x-user-id", "u")])["hash_key"] == "header:x-user-id:u"
    assert testing.make_key(fleet, body=body(user="u"))["hash_key"] == "user:u"
    assert testing.make_key(fleet, prompt="p")["source"] == "body"
    assert testing.make_key(fleet)["source"] == "missing"


TEXT = ["prefix_hash"]


def prompt_of(fleet, **request):
    key = testing.make_key(fleet, **request)
    prompt, scope = key["prompt"], key["scope"]
    return None if prompt is None else (prompt[:scope], prompt[scope:], key["framed"])


@pytest.mark.parametrize("policy", TEXT)
def test_text_policies_need_the_body_whatever_the_headers_say(policy):
    assert testing.needs_body(router(policy), [("x-session-id", "s")])


@pytest.mark.parametrize("policy", TEXT)
def test_text_policies_get_the_prompt_behind_the_name_of_its_model(policy):
    fleet = router(policy)
    chat = [{"role": "user", "content": "Hi"}]
    text = b"\x1euser\x1fHi"
    assert prompt_of(fleet, body=body(messages=chat)) == (b"", text, True)
    assert prompt_of(fleet, body=body(messages=chat, model="m")) == (b"m\0", text, True)
    assert prompt_of(fleet, body=body(prompt="Hi", model="m")) == (b"m\0", b"Hi", False)
    assert prompt_of(fleet, body=body(text="Hi"), path="/generate") == (b"", b"Hi", False)
    assert prompt_of(fleet, prompt="Hi") == (b"", b"Hi", False)
    assert prompt_of(fleet, prompt="Hi", model="m") == (b"m\0", b"Hi", False)
    assert prompt_of(fleet, token_ids=[5, 6]) == ([], [5, 6], False)
    scope, ids, _ = prompt_of(fleet, token_ids=[5, 6], model="m")
    assert (len(scope), ids) == (16, [5, 6])
    assert prompt_of(fleet, body=body(prompt=[5, 6], model="m")) == (scope, [5, 6], False)
    assert prompt_of(fleet, token_ids=[5, 6], model="n")[0] != scope
    assert prompt_of(fleet, body=b"{") is None
    assert prompt_of(fleet) is None


@pytest.mark.parametrize("policy", TEXT)
def test_a_salt_keeps_prompts_apart(policy):
    fleet = router(policy)
    scope, text, _ = prompt_of(fleet, body=body(prompt="Hi", model="m", cache_salt="s"))
    assert (scope, text) == (b"m\x1es\0", b"Hi")
    plain, _, _ = prompt_of(fleet, body=body(prompt=[1], model="m"))
    assert prompt_of(fleet, body=body(prompt=[1], model="m", cache_salt="s"))[0] != plain
    salted = body(messages=[{"role": "user", "content": "Hi"}], cache_salt="s")
    assert prompt_of(fleet, body=salted) == (b"", b"\x1econtext\x1fcache_salt=s\x1euser\x1fHi", True)


def test_the_prompt_is_cut_at_its_limit_and_the_scope_is_not_counted():
    fleet = router("prefix_hash", routing_text_limit=1024)
    for request in (
        {"prompt": "x" * 2000, "model": "model"},
        {"prompt": "x" * 2000},
        {"body": body(prompt="x" * 2000, model="model")},
    ):
        assert prompt_of(fleet, **request)[1] == b"x" * 1024
    chat = body(messages=[{"role": "user", "content": "x" * 2000}], model="model")
    assert prompt_of(fleet, body=chat) == (b"model\0", b"\x1euser\x1f" + b"x" * 1018, True)
    with pytest.raises(ValueError, match=r"routing_text_limit is 1000; .* between 1024 and 1073741824"):
        router("prefix_hash", routing_text_limit=1000)


def test_tokens_of_a_prompt_are_counted_from_what_is_matched():
    fleet = router("prefix_hash")
    chat = body(messages=[{"role": "user", "content": "x" * 394}], unread="y" * 4000)
    assert testing.make_key(fleet, body=chat)["prompt_tokens"] == 100
    assert testing.make_key(fleet, body=body(prompt=[1] * 77))["prompt_tokens"] == 77
    image = {"type": "image_url", "image_url": {"url": "https://x/a.png"}}
    with_image = body(messages=[{"role": "user", "content": [image]}])
    assert testing.make_key(fleet, body=with_image)["prompt_tokens"] > 256


def test_options_of_the_key_reach_it():
    sent = [("x-correlation-id", "c"), ("x-request-id", "r"), ("session-id", "s")]
    request = {"headers": sent[:2], "path": "/v1/chat/completions"}
    chat = {"body": body(session_params={"session_id": "p"}), "path": "/v1/chat/completions"}

    def key(request, **options):
        return testing.make_key(router("consistent_hash", **options), **request)["hash_key"]

    assert key(request) == "header:x-request-id:r"
    assert key(request, hash_key_order="reference") == "header:x-correlation-id:c"
    assert key({"headers": sent}) == "header:session-id:s"
    assert key({"headers": sent}, session_header_aliases=False) == "header:x-request-id:r"
    assert key({"headers": sent}, consistent_hash_compat=True) == "header:x-correlation-id:c"
    assert key({"headers": sent}, hash_key_headers=["X-Correlation-ID"]) == "header:x-correlation-id:c"
    assert key(chat) == "session:p"
    assert key(chat, consistent_hash_compat=True) == "request:p"
    digest = testing.ring_hash(testing.HashFunction.xxh3, b"p")
    assert key({"prompt": "p"}, hash_function="xxh3") == f"request_hash:{digest:016x}"


@pytest.mark.parametrize("policy", LOAD)
@pytest.mark.parametrize(
    ("request_", "tokens"),
    [
        ({}, 1),
        ({"prompt": ""}, 1),
        ({"prompt": "x"}, 1),
        ({"prompt": "x" * 4}, 1),
        ({"prompt": "x" * 5}, 2),
        ({"prompt": "é" * 4}, 2),  # bytes, not characters
        ({"body": b"x" * 401}, 101),
        ({"body_bytes": 400}, 100),  # known from Content-Length before the body is at hand
        ({"body_bytes": 2**40}, 2**32 - 1),
        ({"token_ids": []}, 1),
        ({"token_ids": [7] * 9}, 9),
        ({"token_ids": [7] * 9, "prompt": "x" * 400, "body": b"x" * 400}, 9),
        ({"prompt": "x" * 40, "body": b"x" * 400}, 10),
    ],
)
def test_prompt_tokens_are_ids_or_a_quarter_of_the_bytes(policy, request_, tokens):
    assert testing.make_key(router(policy), **request_)["prompt_tokens"] == tokens


@pytest.mark.parametrize(
    ("members", "output"),
    [
        ({}, 256),
        ({"max_tokens": 64}, 64),
        ({"max_tokens": 0}, 0),
        ({"max_tokens": 100_000}, 256),
        ({"max_completion_tokens": 7, "max_tokens": 64}, 7),
        ({"max_tokens": "64"}, 256),
        ({"metadata": {"max_tokens": 64}}, 256),
    ],
)
def test_expected_output_is_the_requests_own_limit_up_to_the_mean(members, output):
    assert testing.make_key(router("least_load"), body=body(**members))["expected_output"] == output


def test_a_large_body_is_not_parsed_for_its_limit_alone():
    small = body(prompt="x" * 60_000, max_tokens=5)
    large = body(prompt="x" * 70_000, max_tokens=5)
    assert testing.make_key(router("least_load"), body=small)["expected_output"] == 5
    assert testing.make_key(router("least_load"), body=large)["expected_output"] == 256


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
