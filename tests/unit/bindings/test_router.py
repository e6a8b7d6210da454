"""cpp/bindings/router.cc: select, Ticket, select_batch and Batch as Python sees them."""

import asyncio
import gc
import json
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import xxhash

from tests.rows import for_each_row
from vllm_router import Batch, NoWorkersError, Router, Ticket, WorkerExistsError, WorkerNotFoundError
from vllm_router import _core_testing as testing

URLS = ["http://w1:8000", "http://w2:8000", "http://w3:8000"]
HELLO = b'{"model":"llama-3","messages":[{"role":"user","content":"Hello!"}]}'
MESSAGES = [{"role": "user", "content": "Hello!"}]


@pytest.fixture
def router():
    made = Router("least_load", URLS, seed=1)
    yield made
    gc.collect()
    assert loads(made) == [0] * len(made.workers)


@pytest.fixture
def ring():
    made = Router("consistent_hash", URLS)
    yield made
    gc.collect()
    assert loads(made) == [0] * len(made.workers)


def loads(router):
    return [worker.load for worker in router.workers]


def total_load(router):
    return sum(
        worker.load + worker.queued_prefill_tokens + worker.expected_output_tokens + worker.context_tokens
        for worker in router.workers
    )


# What select() takes


def test_a_dict_its_text_and_its_messages_are_one_request(ring):
    forms = [
        {"body": HELLO},
        {"body": HELLO.decode()},
        {"body": bytearray(HELLO)},
        {"body": memoryview(HELLO)},
        {"body": json.loads(HELLO)},
        {"messages": MESSAGES, "model": "llama-3"},
        {"messages": tuple(MESSAGES), "model": "llama-3"},
    ]
    opening = f"opening:{xxhash.xxh3_64_hexdigest(testing.routing_text(HELLO)['text'])}"
    assert testing.make_key(ring, body=HELLO)["hash_key"] == opening
    for form in forms:
        ticket = ring.select(**form)
        assert (ticket.worker_url, ticket.reason) == ("http://w1:8000", "body_hash")


def test_each_form_of_a_request_gives_the_key_of_its_bytes():
    # Enough workers that two keys rarely meet by chance.
    ring = Router("consistent_hash", [f"http://w{i}:8000" for i in range(500)])
    bare = b'{"messages":[{"role":"user","content":"Hello!"}]}'
    ids = np.arange(50, dtype=np.uint32)

    def chosen(**request):
        return ring.select(**request).worker_url

    assert chosen(messages=MESSAGES) == chosen(body=bare) != chosen(body=bare.replace(b"Hello", b"Hullo"))
    assert chosen(prompt="Hé") == chosen(prompt="Hé".encode()) == chosen(body="Hé")
    assert chosen(token_ids=ids) == chosen(token_ids=list(range(50))) == chosen(prompt=ids.tobytes())
    assert chosen(prompt="p", token_ids=ids) == chosen(prompt="p")


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Session-ID": "conversation-12345"},
        {b"x-session-id": b"conversation-12345"},
        [("x-session-id", "conversation-12345")],
        [(b"x-session-id", b"conversation-12345")],
        [["accept", "*/*"], ["X-SESSION-ID", " conversation-12345 "]],
        (pair for pair in [("x-session-id", "conversation-12345")]),
    ],
)
def test_headers_may_be_a_mapping_or_pairs_of_str_or_bytes(ring, headers):
    ticket = ring.select(HELLO, headers=headers)
    assert (ticket.worker_url, ticket.reason) == ("http://w3:8000", "session_hash")


def test_headers_may_be_any_object_with_items(ring):
    httpx = pytest.importorskip("httpx")
    ticket = ring.select(headers=httpx.Headers({"X-Session-ID": "conversation-12345"}))
    assert ticket.worker_url == "http://w3:8000"


@pytest.mark.parametrize(
    "headers",
    [
        "x-session-id: s",
        b"x",
        5,
        {"x-session-id": 5},
        {5: "s"},
        [("a", "b", "c")],
        ["ab"],
        [5],
    ],
)
def test_headers_of_another_shape_are_refused(ring, headers):
    with pytest.raises(TypeError, match="headers"):
        ring.select(headers=headers)


@pytest.mark.parametrize(
    "both",
    [
        {"body": HELLO, "prompt": "p"},
        {"body": HELLO, "messages": MESSAGES},
        {"prompt": "p", "messages": MESSAGES},
    ],
)
@pytest.mark.parametrize("policy", ["round_robin", "consistent_hash"])
def test_saying_the_request_twice_is_refused_by_every_policy(policy, both):
    with pytest.raises(TypeError, match=r" and .*pass one of body, prompt and messages"):
        Router(policy, URLS).select(**both)


@pytest.mark.parametrize(
    ("request_", "error", "says"),
    [
        ({"body": 5}, TypeError, "body is of type int; pass the JSON as bytes or str, or a dict"),
        ({"body": [1]}, TypeError, "body is of type list"),
        ({"body": {"a": object()}}, TypeError, "JSON does not have"),
        ({"prompt": ["p"]}, TypeError, "prompt is of type list"),
        ({"messages": "Hello"}, TypeError, "messages is of type str; it must be a list"),
        ({"messages": {"role": "user"}}, TypeError, "messages is of type dict"),
        ({"token_ids": [1, -1]}, ValueError, r"token_ids\[1\] is -1; a token id is an integer between 0 and"),
        ({"token_ids": [2**32]}, ValueError, "4294967296"),
        ({"token_ids": [10**30]}, ValueError, r"token_ids\[0\]"),
        ({"token_ids": [1.5]}, TypeError, r"token_ids\[0\] is of type float; it must be an integer"),
        ({"token_ids": ["1"]}, TypeError, r"token_ids\[0\] is of type str; it must be an integer"),
        ({"token_ids": 5}, TypeError, "token_ids is of type int; it must be an array of uint32"),
        ({"token_ids": np.arange(3)}, TypeError, "dtype int64; it must be uint32; pass np.ascontiguousarray"),
        ({"token_ids": np.zeros((2, 2), np.uint32)}, ValueError, "2 dimensions"),
        ({"token_ids": np.zeros(8, np.uint32)[::2]}, ValueError, "not contiguous"),
        ({"token_ids": np.zeros(2, ">u4")}, TypeError, "dtype >u4"),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused_with_a_remedy(ring, request_, error, says):
    with pytest.raises(error, match=says):
        ring.select(**request_)


def test_what_the_policy_does_not_need_is_not_read():
    class Unreadable:
        def __getattribute__(self, name):
            raise AssertionError(f"somebody read {name}")

    for policy in ("random", "round_robin"):
        Router(policy, URLS).select(headers=Unreadable(), token_ids=Unreadable(), messages=Unreadable())
    ring = Router("consistent_hash", URLS)
    ring.select(messages=Unreadable(), headers={"x-session-id": "s"})
    Router("least_load", URLS).select(prompt="p", headers={})


def test_large_requests_are_read_without_the_gil_and_alike(ring):
    text = json.dumps({"prompt": "x" * 300_000, "user": "user-67890"})
    for body in (text, text.encode(), bytearray(text.encode()), json.loads(text)):
        assert ring.select(body).worker_url == "http://w1:8000"
    ids = np.zeros(100_000, np.uint32)
    assert ring.select(token_ids=ids).worker_url == ring.select(prompt=ids.tobytes()).worker_url


# Excluding


def test_excluded_workers_are_not_chosen(router):
    assert router.select(exclude=URLS[:2]).worker_url == URLS[2]
    assert router.select(exclude={URLS[0], URLS[2]}).worker_url == URLS[1]
    assert router.select(exclude=(url for url in URLS[1:])).worker_url == URLS[0]
    with pytest.raises(NoWorkersError, match="3 excluded"):
        router.select(exclude=URLS)


def test_excluding_nobody_or_a_stranger_changes_nothing(router):
    for exclude in ((), [], None, ["http://gone:1"], ["no url"], [URLS[0] + "/x"], [URLS[0] + "@1"]):
        assert router.select(exclude=exclude).worker_url in URLS


def test_an_excluded_url_may_be_spelled_in_another_way(router):
    assert router.select(exclude=["HTTP://W1:8000/", "http://w2:08000"]).worker_url != URLS[0]
    assert router.select(exclude=["HTTP://W1:8000/", "http://W2:8000"]).worker_url == URLS[2]


def test_excluding_a_host_excludes_its_ranks():
    router = Router("least_load", ["http://a:1", "http://b:1"], intra_node_data_parallel_size=2)
    assert router.select(exclude=["http://a:1", "http://b:1@0"]).worker_url == "http://b:1@1"


def test_one_url_is_not_a_collection_of_urls(router):
    with pytest.raises(TypeError, match=r"pass \['http://w1:8000'\]"):
        router.select(exclude=URLS[0])
    with pytest.raises(TypeError, match="worker URLs as str"):
        router.select(exclude=[5])


def test_a_retry_is_the_same_question_with_a_smaller_fleet(ring):
    request = {"headers": {"X-Session-ID": "sess-0"}}
    tried = []
    for _ in URLS:
        with ring.select(**request, exclude=tried) as ticket:
            tried.append(ticket.worker_url)
    assert tried[0] == URLS[0]
    assert sorted(tried) == URLS
    assert ring.select(**request, exclude=tried[:1]).reason == "failover"


# The ticket


def test_a_ticket_tells_who_and_why(ring):
    ticket = ring.select(headers={"x-session-id": "conversation-12345"})
    assert (ticket.worker_url, ticket.base_url, ticket.rank) == (URLS[2], URLS[2], None)
    assert (ticket.reason, ticket.unit, ticket.matched, ticket.total) == ("session_hash", "none", 0, 0)
    assert repr(ticket) == "<Ticket http://w3:8000 session_hash open>"
    ticket.finish()
    assert repr(ticket) == "<Ticket http://w3:8000 session_hash finished>"
    assert ticket.worker_url == URLS[2], "still readable afterwards"


def test_a_ticket_of_a_rank_tells_where_to_send_and_which_rank():
    ticket = Router("least_load", ["http://a:1/@3"]).select()
    assert (ticket.worker_url, ticket.base_url, ticket.rank) == ("http://a:1@3", "http://a:1", 3)


def test_finish_returns_the_load_once(router):
    ticket = router.select(prompt="x" * 400)
    assert total_load(router) == 1 + 100 + 256 + 100
    assert not ticket.finished
    assert ticket.finish(status=200, prompt_tokens=90, cached_tokens=64, output_tokens=12, first_token_ms=1.5)
    assert ticket.finished
    assert not ticket.finish()
    assert total_load(router) == 0


@pytest.mark.parametrize("end", ["finished", "client_gone", "worker_failed", "not_sent"])
def test_every_end_returns_the_load(router, end):
    assert router.select().finish(end=end)
    assert total_load(router) == 0


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"end": "finish"}, ValueError, r"end is 'finish'; .*did you mean finished\?"),
        ({"end": "xyz"}, ValueError, "must be one of finished, client_gone, worker_failed, not_sent$"),
        ({"status": 99}, ValueError, "status is 99; .* between 100 and 599, or 0"),
        ({"status": 600}, ValueError, "status is 600"),
        ({"prompt_tokens": -1}, TypeError, "prompt_tokens"),
    ],
)
def test_a_wrong_end_is_refused_and_the_load_stays(router, arguments, error, says):
    ticket = router.select()
    with pytest.raises(error, match=says):
        ticket.finish(**arguments)
    assert not ticket.finished
    assert sum(loads(router)) == 1


def test_a_with_block_finishes_its_ticket(router):
    with router.select() as ticket:
        assert sum(loads(router)) == 1
    assert ticket.finished
    with router.select() as ticket:
        ticket.finish(end="client_gone")
    with pytest.raises(KeyError, match="boom"), router.select() as ticket:
        raise KeyError("boom")
    assert ticket.finished


def test_a_ticket_can_be_made_by_select_only():
    with pytest.raises(TypeError, match=r"made by Router.select\(\)"):
        Ticket()


def test_load_of_a_worker_that_comes_back_starts_at_zero(router):
    ticket = router.select(exclude=URLS[1:])
    router.remove_worker(URLS[0])
    router.add_worker(URLS[0])
    assert loads(router) == [0, 0, 0]
    ticket.finish()
    assert loads(router) == [0, 0, 0], "the old worker's counter died with its last ticket"


# A ticket that nobody finishes


def test_a_dropped_ticket_returns_its_load_at_once(router):
    gc.disable()
    try:
        ticket = router.select()
        assert sum(loads(router)) == 1
        del ticket
        assert sum(loads(router)) == 0
    finally:
        gc.enable()


class Holder:
    """What an application keeps per request."""

    def __init__(self, router):
        self.ticket = router.select(prompt="x" * 400)
        self.self = self


def test_a_ticket_in_a_garbage_cycle_returns_its_load_when_collected(router):
    gc.disable()
    try:
        for _ in range(10):
            Holder(router)
        assert sum(loads(router)) == 10
        gc.collect()
        assert total_load(router) == 0
    finally:
        gc.enable()


def test_a_finished_ticket_in_a_garbage_cycle_returns_nothing_more(router):
    holder = Holder(router)
    other = router.select()
    holder.ticket.finish()
    del holder
    gc.collect()
    assert sum(loads(router)) == 1
    other.finish()


def test_a_ticket_that_a_finalizer_finishes_returns_its_load_once(router):
    class Careful(Holder):
        def __del__(self):
            self.ticket.finish(end="client_gone")

    Careful(router)
    gc.collect()
    assert total_load(router) == 0


def test_a_ticket_held_by_a_traceback_returns_its_load_when_that_goes(router):
    def fail():
        ticket = router.select()  # noqa: F841, the frame holds it
        raise ValueError

    try:
        fail()
    except ValueError as error:
        kept = error
        kept.cycle = kept
    assert sum(loads(router)) == 1
    del kept
    gc.collect()
    assert sum(loads(router)) == 0


def test_a_ticket_in_a_generator_that_is_never_resumed_returns_its_load(router):
    def stream():
        with router.select() as ticket:
            yield ticket.worker_url

    running = stream()
    next(running)
    assert sum(loads(router)) == 1
    del running
    gc.collect()
    assert sum(loads(router)) == 0


def test_a_cancelled_task_returns_its_load(router):
    async def request(started):
        with router.select():
            started.set()
            await asyncio.Event().wait()

    async def main():
        started = asyncio.Event()
        task = asyncio.create_task(request(started))
        await started.wait()
        assert sum(loads(router)) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert sum(loads(router)) == 0


def test_a_ticket_takes_no_attributes_and_so_is_in_no_cycle_of_its_own(router):
    ticket = router.select()
    with pytest.raises(AttributeError):
        ticket.mine = ticket
    assert not gc.is_tracked(ticket)
    alive = weakref.ref(ticket)
    del ticket
    assert alive() is None


def test_tickets_that_live_to_the_end_of_the_process_do_no_harm():
    program = """
import vllm_router
router = vllm_router.Router("least_load", ["http://a:1"])
ticket, batch = router.select(), router.select_batch(["p"])
"""
    assert subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stderr == b""


# How a with block reads


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (None, "finished"),
        (ValueError, "worker_failed"),
        (asyncio.CancelledError, "client_gone"),
        (GeneratorExit, "client_gone"),
        (KeyboardInterrupt, "client_gone"),
    ],
)
def test_the_way_out_of_a_with_block_says_how_it_ended(error, end):
    assert testing.end_of_exit(error) == end


# Many decisions


def test_a_batch_chooses_as_many_selects_would():
    urls = [f"http://w{i}:8000" for i in range(20)]
    sessions = [f"s{i}" for i in range(200)]
    prompts = [f"p{i}" for i in range(200)]
    for policy in (
        "round_robin",
        "least_load",
        "power_of_two",
        "consistent_hash",
        "rendezvous_hash",
        "random",
    ):
        one, many = Router(policy, urls, seed=5), Router(policy, urls, seed=5)
        for request in ({"session_ids": sessions}, {"prompts": prompts}):
            batch = many.select_batch(**request)
            tickets = [
                one.select(headers={"x-session-id": session})
                if "session_ids" in request
                else one.select(prompt=prompt)
                for session, prompt in zip(sessions, prompts, strict=True)
            ]
            assert [batch.worker_urls[w] for w in batch.workers] == [ticket.worker_url for ticket in tickets]
            assert loads(one) == loads(many)
            assert total_load(one) == total_load(many)


def test_a_batch_is_arrays_of_one_row_per_request(ring):
    batch = ring.select_batch(session_ids=[f"sess-{i}" for i in range(8)])
    assert batch.workers.dtype == np.int32
    assert batch.matched.dtype == batch.total.dtype == np.int64
    assert batch.workers.shape == batch.matched.shape == batch.total.shape == (8,)
    assert batch.workers.tolist() == [0, 0, 0, 1, 0, 2, 2, 0]
    assert not batch.matched.any()
    assert not batch.total.any()
    assert len(batch) == 8
    assert repr(batch) == "<Batch of 8, 8 open>"
    assert batch.worker_urls == URLS
    assert loads(ring) == [5, 1, 2]
    assert batch.finish() == 8
    assert batch.finish() == 0
    assert repr(batch) == "<Batch of 8, 0 open>"


def test_a_batch_names_the_model_of_its_prompts():
    router = Router(policy="vllm_cache_aware", worker_urls=URLS, seed=1)
    prompts = ["What is the weather like in Oslo? " * 20] * 2
    for model in ("m", b"m"):
        router.select_batch(prompts, model=model).finish()
    assert router.select_batch(prompts, model="m").matched.all()
    assert router.select_batch(prompts, model="other").matched.tolist()[0] == 0
    ids = np.arange(200, dtype=np.uint32)
    router.select_batch(token_ids=ids, offsets=np.array([0, 200]), model="m").finish()
    assert router.select(token_ids=ids, model="m").matched == 12
    assert router.select(token_ids=ids).matched == 0
    with pytest.raises(TypeError, match="model is of type int"):
        router.select_batch(prompts, model=7)


def test_a_batch_of_nothing_is_empty(router):
    for batch in (
        router.select_batch([]),
        router.select_batch(session_ids=[]),
        router.select_batch(token_ids=np.zeros(0, np.uint32), offsets=np.zeros(1, np.int64)),
    ):
        assert (len(batch), batch.workers.shape, batch.finish()) == (0, (0,), 0)


def test_rows_of_token_ids_are_slices_at_the_offsets():
    router = Router("least_load", ["http://a:1"])
    ids = np.arange(100, dtype=np.uint32)
    batch = router.select_batch(token_ids=ids, offsets=np.array([0, 10, 10, 40], np.int64))
    assert len(batch) == 3
    assert router.workers[0].context_tokens == 10 + 1 + 30, "an empty row counts as one token"
    del batch
    ring = Router("consistent_hash", [f"http://w{i}:8000" for i in range(500)])
    batch = ring.select_batch(token_ids=ids, offsets=np.array([5, 20, 60], np.int64))
    alone = [ring.select(token_ids=ids[5:20]).worker_url, ring.select(token_ids=ids[20:60]).worker_url]
    assert [batch.worker_urls[w] for w in batch.workers] == alone


def test_a_session_counts_before_the_prompt_and_none_means_there_is_none(ring):
    prompts = ["p0", "p1", "p2"]
    batch = ring.select_batch(prompts, session_ids=["sess-3", None, " "])
    alone = [
        ring.select(headers={"x-session-id": "sess-3"}).worker_url,
        ring.select(prompt="p1").worker_url,
        ring.select(prompt="p2").worker_url,
    ]
    assert [batch.worker_urls[w] for w in batch.workers] == alone


def test_a_batch_ends_like_a_ticket(router):
    with router.select_batch(["a", "b"]) as batch:
        assert sum(loads(router)) == 2
    assert batch.finish() == 0
    with pytest.raises(KeyError), router.select_batch(["a", "b"]):
        raise KeyError
    assert sum(loads(router)) == 0
    router.select_batch(["a", "b"])
    assert sum(loads(router)) == 0, "dropped"
    cycle = [router.select_batch(["a"])]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert sum(loads(router)) == 0


def test_the_arrays_outlive_the_batch(router):
    batch = router.select_batch(["a"] * 1000)
    workers = batch.workers
    del batch
    assert sum(loads(router)) == 0
    assert sorted(set(workers.tolist())) == [0, 1, 2]


def test_indices_of_a_batch_stay_right_when_the_fleet_changes(router):
    batch = router.select_batch(["a"] * 3)
    router.remove_worker(URLS[0])
    router.add_worker("http://new:1")
    assert sorted(batch.worker_urls[w] for w in batch.workers) == URLS


def test_a_batch_with_nobody_to_choose_reserves_nothing(router):
    for url in URLS:
        router.set_healthy(url, False)
    with pytest.raises(NoWorkersError, match="3 unhealthy"):
        router.select_batch(["a", "b"])
    assert total_load(router) == 0


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({}, TypeError, r"got no requests; pass prompts, token_ids with offsets, or session_ids"),
        ({"prompts": "one"}, TypeError, "prompts is one str; select_batch takes a list"),
        ({"session_ids": b"one"}, TypeError, "session_ids is one bytes"),
        ({"prompts": ["a", 5]}, TypeError, r"prompts\[1\] is of type int"),
        ({"prompts": ["a", None]}, TypeError, r"prompts\[1\] is of type NoneType; it must be str or bytes$"),
        ({"session_ids": [5]}, TypeError, r"session_ids\[0\] .* or None or NaN for a request without one"),
        ({"prompts": 5}, TypeError, "^prompts is of type int; select_batch takes a list of str or bytes$"),
        ({"session_ids": 5}, TypeError, "session_ids is of type int.*, with None for a request without one"),
        ({"prompts": (1 / zero for zero in [0])}, ZeroDivisionError, "division"),
        (
            {"prompts": ["a"], "session_ids": ["s", "t"]},
            ValueError,
            "session_ids has 2 rows and prompts has 1",
        ),
        ({"token_ids": np.zeros(3, np.uint32)}, TypeError, r"token_ids came without offsets; row i is"),
        ({"offsets": np.zeros(3, np.int64)}, TypeError, "offsets came without token_ids"),
    ],
)
def test_a_batch_of_the_wrong_shape_is_refused(router, arguments, error, says):
    with pytest.raises(error, match=says):
        router.select_batch(**arguments)


@pytest.mark.parametrize(
    ("ids", "offsets", "error", "says"),
    [
        (
            5,
            np.array([0, 2]),
            TypeError,
            "token_ids is of type int; it must be an array of uint32",
        ),
        (np.zeros(2, np.int64), np.array([0, 2]), TypeError, "token_ids has dtype int64; it must be uint32"),
        (
            np.zeros(2, np.uint32),
            [0.0, 2],
            TypeError,
            r"offsets\[0\] is of type float; it must be an integer",
        ),
        (np.zeros(2, np.uint32), np.array([0, 2], np.int32), TypeError, "offsets has dtype int32"),
        (np.zeros((1, 2), np.uint32), np.array([0, 2]), ValueError, "token_ids has 2 dimensions"),
        (np.zeros(4, np.uint32)[::2], np.array([0, 2]), ValueError, "token_ids is not contiguous"),
        (np.zeros(2, np.uint32), np.array([0, 0, 2, 2])[::2], ValueError, "offsets is not contiguous"),
        (np.zeros(2, np.uint32), np.zeros(0, np.int64), ValueError, "offsets is empty"),
        (np.zeros(2, np.uint32), np.array([-1, 2]), ValueError, r"offsets\[0\] is -1"),
        (
            np.zeros(2, np.uint32),
            np.array([0, 2, 1]),
            ValueError,
            r"offsets\[2\] is 1; .* the one before it is 2",
        ),
        (
            np.zeros(2, np.uint32),
            np.array([0, 3]),
            ValueError,
            r"offsets\[1\] is 3; token_ids has only 2 ids",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_refused(router, ids, offsets, error, says):
    with pytest.raises(error, match=says):
        router.select_batch(token_ids=ids, offsets=offsets)
    assert total_load(router) == 0


def test_a_batch_finishes_with_an_end_that_exists(router):
    batch = router.select_batch(["a"])
    with pytest.raises(ValueError, match="did you mean client_gone"):
        batch.finish(end="client-gone")
    assert batch.finish(end="client_gone", status=0) == 1
    assert isinstance(batch, Batch)


def test_a_batch_lets_other_threads_run(ring):
    sessions = [f"s{i}" for i in range(200_000)]
    go, ran = threading.Event(), threading.Event()

    def other():
        go.wait()
        ran.set()

    before = sys.getswitchinterval()
    thread = threading.Thread(target=other)
    thread.start()
    # From here on this thread keeps the GIL unless a call gives it up.
    sys.setswitchinterval(1000)
    try:
        go.set()
        batches = []
        while not ran.is_set() and len(batches) < 20:
            batches.append(ring.select_batch(session_ids=sessions))
        assert ran.is_set()
    finally:
        sys.setswitchinterval(before)
        thread.join()


# The fleet


def test_workers_show_what_was_done_to_them(router):
    router.set_healthy(URLS[0], False)
    router.drain_worker(URLS[1])
    router.add_worker("http://w4:8000@1", weight=0.5)
    assert [(w.url, w.healthy, w.draining, w.weight, w.rank) for w in router.workers] == [
        (URLS[0], False, False, 1.0, None),
        (URLS[1], True, True, 1.0, None),
        (URLS[2], True, False, 1.0, None),
        ("http://w4:8000@1", True, False, 0.5, 1),
    ]
    router.set_healthy(URLS[0], True)
    router.remove_worker(URLS[1])
    assert router.worker_urls == [URLS[0], URLS[2], "http://w4:8000@1"]


def test_threads_that_select_and_finish_while_the_fleet_changes_leave_no_load(seed):
    import random

    def hammer(policy):
        router = Router(policy, [f"http://w{i}:8000" for i in range(6)], seed=seed)
        refused = [0] * 6

        def requests(number):
            rng = random.Random(seed + number)
            kept = []
            for i in range(1500):
                try:
                    if i % 50 == 0:
                        kept.append(
                            router.select_batch(session_ids=[f"s{rng.randrange(99)}" for _ in range(20)])
                        )
                        continue
                    ticket = router.select(
                        prompt="p" * rng.randrange(50),
                        headers={"x-session-id": f"s{rng.randrange(99)}"},
                        exclude=[f"http://w{rng.randrange(9)}:8000"] if i % 7 == 0 else (),
                    )
                except NoWorkersError:
                    refused[number] += 1
                    continue
                if rng.random() < 0.3:
                    ticket.first_token()
                if rng.random() < 0.5:
                    ticket.finish(end=rng.choice(["finished", "client_gone", "worker_failed"]))
                elif rng.random() < 0.5:
                    kept.append(ticket)
                if len(kept) > 20:
                    kept.pop(rng.randrange(20))

        def operator(number):
            rng = random.Random(seed - number)
            for _ in range(400):
                url = f"http://w{rng.randrange(9)}:8000"
                change = rng.choice(["add", "add", "remove", "drain", "failing", "healthy"])
                try:
                    if change == "add":
                        router.add_worker(url, weight=rng.choice([1.0, 1.0, 2.5]))
                    elif change == "remove":
                        router.remove_worker(url)
                    elif change == "drain":
                        router.drain_worker(url)
                    else:
                        router.set_healthy(url, change == "healthy")
                except (WorkerExistsError, WorkerNotFoundError):
                    pass

        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            with ThreadPoolExecutor(6) as pool:
                for done in [
                    *[pool.submit(requests, i) for i in range(4)],
                    *[pool.submit(operator, i) for i in range(2)],
                ]:
                    done.result()
        finally:
            sys.setswitchinterval(before)
        gc.collect()
        assert total_load(router) == 0

    for policy in (
        "random",
        "round_robin",
        "least_load",
        "power_of_two",
        "consistent_hash",
        "rendezvous_hash",
    ):
        hammer(policy)


RESPONSES = {"model": "m", "instructions": "Be kind. " * 20, "input": "Hello there."}


@for_each_row("path", ["/v1/responses", "/v1/responses?x=1", b"/v1/responses", None])
@for_each_row("form", [dict, json.dumps, lambda body: json.dumps(body).encode()])
def test_instructions_of_a_responses_body_are_part_of_its_prompt(form, path):
    """mending row 39: where `input` is a string, `path` or `instructions` beside it tell what it is."""
    router = Router("cache_aware", ["http://a:8000", "http://b:8000"])
    text = "\x1esystem\x1f" + RESPONSES["instructions"] + "\x1euser\x1f" + RESPONSES["input"]
    assert router.explain(form(RESPONSES), path=path).text_bytes == len(text)
    router.select(form(RESPONSES), path=path).finish()
    as_items = RESPONSES | {"input": [{"role": "user", "content": RESPONSES["input"]}]}
    ticket = router.select(as_items, path="/v1/responses")
    assert (ticket.matched, ticket.total) == (len(text), len(text))
    other = router.select(RESPONSES | {"instructions": "Be brief. " * 20}, path=path)
    assert other.matched < len("\x1esystem\x1fBe kind.")


def test_input_alone_is_a_conversation_if_the_path_says_so():
    """mending row 39: without `instructions` only the path tells `/v1/responses` from `/v1/embeddings`."""
    router = Router("cache_aware", ["http://a:8000"])
    body = {"model": "m", "input": "Hello there."}
    assert router.explain(body).text_bytes == len("Hello there.")
    assert router.explain(body, path="/v1/embeddings").text_bytes == len("Hello there.")
    assert router.explain(body, path="/v1/responses").text_bytes == len("\x1euser\x1fHello there.")
    assert router.explain(RESPONSES, path="/v1/embeddings").text_bytes == len("Hello there.")
    with pytest.raises(TypeError, match="path is of type int; it must be the request's path"):
        router.select(body, path=5)
