"""cpp/proxy/peer_sync/joined_peers.h and Router.join_peers(): routers that are not served know of each other.

one      chat 0 1 2 ... 7          loads of both on each worker
another  chat 7 6 5 ... 0          without peers the first of each would meet at a worker
"""

import json
import subprocess
import sys
import textwrap

import pytest

from tests.fakes import litellm_host
from tests.fakes.wire import eventually, free_port
from vllm_router import Router

WORKERS = [f"ray://replica-{n}" for n in range(4)]
CHATS = [f"chat {n}: " + f"{n} and so on. " * 200 for n in range(8)]
JOINED = {"peer_sync_stride_tokens": 64, "peer_sync_interval_ms": 50}


def made(**options):
    return Router("auto", WORKERS, **{**JOINED, **options})


def choices(router, chats):
    chosen = {}
    for chat in chats:
        with router.select(prompt=chat) as ticket:
            chosen[chat] = ticket.worker_url
    return chosen


def live(peers):
    return [member["name"] for member in peers.status()["members"] if member["state"] == "live"]


def wait_until_connected(*joined):
    for peers in joined:
        eventually(lambda peers=peers: len(live(peers)) == len(joined) - 1, "they do not hear each other")
        eventually(lambda peers=peers: peers.status()["redis"]["up"])


def wait_until_known(router, chats=CHATS):
    """What another router decided."""
    knows = lambda: all(router.explain(prompt=chat).matched > 0 for chat in chats)  # noqa: E731
    eventually(knows, "decisions are not heard")


@pytest.fixture
def pair(redis):
    routers = [made(peer_sync=redis.url, router_name=name) for name in ("one", "another")]
    joined = [router.join_peers() for router in routers]
    wait_until_connected(*joined)
    yield *routers, *joined
    for peers in joined:
        peers.stop()


def test_two_routers_choose_as_one(pair):
    one, another, *_ = pair
    chosen = choices(one, CHATS)
    assert len(set(chosen.values())) > 1
    wait_until_known(another)
    assert choices(another, CHATS[::-1]) == chosen


def test_what_one_has_open_the_other_counts_until_it_leaves(pair):
    one, another, leaving, peers = pair
    tickets = [one.select(prompt="x", among=[WORKERS[0]]) for _ in range(9)]
    least = lambda: another.explain(prompt="y").workers[-1].url  # noqa: E731
    eventually(lambda: least() == WORKERS[0], "its load is not heard")
    leaving.stop()
    leaving.stop()
    assert not leaving.running
    eventually(lambda: live(peers) == [])
    tickets += [another.select(prompt="x", among=[WORKERS[1]]) for _ in range(2)]
    eventually(lambda: least() == WORKERS[1], "its load is still counted")
    with one.join_peers() as again:
        wait_until_connected(again, peers)
        assert live(peers) == ["one"]
    for ticket in tickets:
        ticket.finish()


def test_a_router_that_has_left_counts_its_own_load_alone(pair):
    one, another, peers, _ = pair
    tickets = [another.select(prompt="x", among=[WORKERS[0]]) for _ in range(9)]
    tickets.append(one.select(prompt="x", among=[WORKERS[1]]))
    most = lambda: one.explain(prompt="y").workers[-1].url  # noqa: E731
    eventually(lambda: most() == WORKERS[0], "its load is not heard")
    peers.stop()
    assert most() == WORKERS[1]
    for ticket in tickets:
        ticket.finish()


def test_one_that_joins_later_knows_what_was_before(redis, pair):
    one, _, leaving, _ = pair
    chosen = choices(one, CHATS)
    eventually(lambda: leaving.status()["decisions"]["sent"] >= len(CHATS))
    leaving.stop()
    late = made(peer_sync=redis.url)
    with late.join_peers():
        wait_until_known(late)
        assert choices(late, CHATS[::-1]) == chosen


def test_a_cache_that_is_forgotten_is_forgotten_by_all(pair):
    one, another, *_ = pair
    choices(one, CHATS[:1])
    wait_until_known(another, CHATS[:1])
    one.forget()
    eventually(lambda: another.explain(prompt=CHATS[0]).matched == 0, "it is not told")


def run(program, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_processes_choose_as_one(pair, redis):
    one, *_ = pair
    told = run(
        """
        import json, sys
        from tests.fakes.wire import eventually
        from tests.unit.proxy.peer_sync.test_joined_peers import CHATS, choices, live, made
        router = made()
        peers = router.join_peers(sys.argv[1])
        eventually(lambda: len(live(peers)) == 2)
        print(json.dumps(choices(router, CHATS)))
        eventually(lambda: peers.status()["decisions"]["sent"] >= len(CHATS))
        told = peers.status()["self"]["sequence"]
        eventually(lambda: all(m["heard_of_this_router"] >= told for m in peers.status()["members"]))
        """,
        redis.url,
    )
    wait_until_known(one)
    assert choices(one, CHATS[::-1]) == json.loads(told)


def test_a_child_that_was_forked_leaves_the_others_alone(redis):
    """It ends as any program, with the copies of its parent; a router of its own joins."""
    said = run(
        """
        import os, sys
        from tests.unit.proxy.peer_sync.test_joined_peers import live, made, wait_until_connected
        router = made()
        peers = router.join_peers(sys.argv[1], router_name="parent")
        wait_until_connected(peers)
        child = os.fork()
        if child == 0:
            assert not peers.running
            assert not peers.status()["redis"]["up"]
            peers.stop()
            own = made()
            with own.join_peers(sys.argv[1], router_name="child") as joined:
                wait_until_connected(joined, joined)
                assert live(joined) == ["parent"]
            del peers, router
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert peers.running and peers.status()["redis"]["up"]
        print("both ended")
        """,
        redis.url,
    )
    assert said == "both ended\n"


def test_without_redis_a_router_chooses_and_stops():
    router = made()
    with router.join_peers(f"redis://127.0.0.1:{free_port()}") as peers:
        choices(router, CHATS)
        eventually(lambda: peers.status()["redis"]["trouble"])
        assert not peers.status()["redis"]["up"]
        assert repr(peers) == "<Peers running>"
    assert repr(peers) == "<Peers stopped>"


def test_a_router_that_gets_its_workers_later_knows_what_was_told_before(pair, redis):
    one, *_ = pair
    late = Router("auto", **JOINED)
    with late.join_peers(redis.url):
        chosen = choices(one, CHATS)
        for worker in WORKERS:
            late.add_worker(worker)
        wait_until_known(late)
        assert choices(late, CHATS[::-1]) == chosen
    with Router("auto", **JOINED).join_peers(redis.url) as idle:  # it never gets any
        assert not idle.status()["redis"]["up"]


def test_the_end_of_a_router_is_told(redis, pair):
    *_, peers = pair
    third = made()
    third.join_peers(redis.url, router_name="third")
    eventually(lambda: sorted(live(peers)) == ["one", "third"])
    del third
    eventually(lambda: live(peers) == ["one"])


@pytest.mark.parametrize(
    ("url", "options", "error", "words"),
    [
        (None, {}, ValueError, "redis_url is None, and the router was made without peer_sync"),
        ("http://redis:6379", {}, ValueError, "peer_sync"),
        ("redis://user@127.0.0.1", {}, ValueError, "user and no password"),
        ("redis://127.0.0.1", {"peer_sync_interval_ms": 1}, ValueError, "between 50 and 2000"),
        ("redis://127.0.0.1", {"peer_sync_secret": "x"}, TypeError, "did you mean peer_sync_secret_file"),
        ("redis://127.0.0.1", {"host": "x"}, TypeError, "host is not an option of join_peers"),
        ("redis://127.0.0.1", {"peer_sync_secret_file": "/no/such"}, OSError, "peer_sync_secret_file"),
    ],
)
def test_what_cannot_be_used_is_named(url, options, error, words):
    with pytest.raises(error, match=words):
        made().join_peers(url, **options)


def test_an_index_that_keeps_no_strides_is_rejected(redis):
    with pytest.raises(ValueError, match="made without peer_sync_stride_tokens"):
        Router("auto", WORKERS).join_peers(redis.url)


def test_processes_of_litellm_choose_as_one(redis):
    addresses = [f"http://worker-{n}:8000/v1" for n in range(4)]
    with litellm_host.load() as adapter:
        hosts = [litellm_host.FakeRustCore(*addresses) for _ in range(2)]
        strategies = [
            adapter.install(host, policy="auto", peer_sync=redis.url, **JOINED, router_name=name)
            for host, name in zip(hosts, ("one", "another"), strict=True)
        ]
        joined = [strategy.core._peers for strategy in strategies]
        wait_until_connected(*joined)

        def pick(number, chat):
            request = {"litellm_trace_id": chat, "metadata": {}}
            asked = {"messages": [{"role": "user", "content": chat}], "request_kwargs": request}
            found = strategies[number]._pick("m", hosts[number].healthy, asked)
            adapter.proxy_handler.log_success_event(litellm_host.event(request, found), None)
            return found["litellm_params"]["api_base"]

        chosen = {chat: pick(0, chat) for chat in CHATS}
        heard = lambda: joined[1].status()["decisions"]["applied"] >= len(CHATS)  # noqa: E731
        eventually(heard, "decisions are not heard")
        assert {chat: pick(1, chat) for chat in CHATS[::-1]} == chosen
        for peers in joined:
            peers.stop()
