"""Routers that meet in a Redis: what one does the others know; a Redis that dies, hangs or lies; forgery."""

import contextlib
import json
import time

import pytest

from tests.fakes.data_plane import planes, post
from tests.fakes.harness import Streaming
from tests.fakes.prometheus_text import parse
from tests.fakes.redis_server import RedisServer
from tests.fakes.wire import eventually, request
from tests.models import peer_frame

FRESH = 50  # ms between two messages, so that tests are short
PROMPT = "You are a helpful assistant. " * 100  # some 700 tokens: eleven strides of 64


@pytest.fixture
def workers(harness):
    return [harness.worker(), harness.worker(), harness.worker()]


def open_router(harness, workers, redis, policy="auto", **options):
    settings = {
        "peer_sync": redis.url,
        "peer_sync_interval_ms": FRESH,
        "decision_headers": True,
        "admin_port": 0,
    }
    settings |= options
    routing = {"seed": 1} | ({"peer_sync_stride_tokens": 64} if policy == "auto" else {})
    return harness.router(*workers, policy=policy, routing=routing, **settings)


def get(harness, router, path):
    if not hasattr(router, "admin_client"):
        router.admin_client = harness.client_at(getattr(router.server, "admin_port", None) or router.port)
    return router.admin_client.ask("GET", path)


def status(harness, router):
    reply = get(harness, router, "/ha/status")
    assert reply.status == 200
    return json.loads(reply.body)


def metric(router, name, **labels):
    return parse(router.server.metrics_text())[f"vllm_router_{name}"].value(**labels)


def states(harness, router):
    return sorted(member["state"] for member in status(harness, router)["members"])


def wait_until_connected(harness, *routers):
    """Each hears all others."""
    expected = ["live"] * (len(routers) - 1)
    for router in routers:
        eventually(lambda router=router: states(harness, router) == expected, "they do not hear each other")
        eventually(lambda router=router: get(harness, router, "/ha/health").status == 200)


def body_of(text):
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()


def chat(harness, router, text=PROMPT, client=None):
    if client is None and not hasattr(router, "chat_client"):
        router.chat_client = harness.client(router)
    client = client or router.chat_client
    return client.ask("POST", "/v1/chat/completions", body=body_of(text))


def chosen(harness, router, text=PROMPT):
    reply = chat(harness, router, text)
    assert reply.status == 200
    return reply.get("x-vllm-router-worker")


def strides(router):
    return metric(router, "coarse_index_strides")


def wait_until_idle(router, worker):
    """As far as the router knows: a frame may have told the decision while its request was under way."""
    peers = metric(router, "peer_sync_peers", state="live")
    frames = metric(router, "peer_sync_frames_read_total", result="ok")
    eventually(lambda: metric(router, "peer_sync_frames_read_total", result="ok") > frames + 2 * peers)
    eventually(lambda: metric(router, "remote_requests", worker=worker) == 0, "the load was not taken back")


def test_a_prompt_sent_through_one_router_is_known_to_all(harness, redis, workers):
    routers = [open_router(harness, workers, redis) for _ in range(4)]
    wait_until_connected(harness, *routers)
    holder = chosen(harness, routers[0])
    for router in routers[1:]:
        eventually(lambda router=router: strides(router) >= 11, "the decision was not told")
        wait_until_idle(router, holder)
        assert chosen(harness, router) == holder
        assert int(chat(harness, router).get("x-vllm-router-cache-status").split("/")[0]) >= 40
    assert metric(routers[0], "peer_sync_decisions_total", result="sent") == 1


def test_pickers_that_are_active_together_choose_as_one_and_as_their_proxies(harness, redis, workers):
    routers = [open_router(harness, workers, redis, epp_port=0) for _ in range(3)]
    wait_until_connected(harness, *routers)
    with contextlib.contextmanager(planes)(harness) as data_plane:
        holder = data_plane(routers[0]).pick(*post(body_of(PROMPT)))
        for router in routers[1:]:
            eventually(lambda router=router: strides(router) >= 11, "the decision was not told")
            wait_until_idle(router, f"http://{holder}")
        assert data_plane(routers[1]).pick(*post(body_of(PROMPT))) == holder
    assert chosen(harness, routers[2]) == f"http://{holder}"


def test_load_through_one_router_is_seen_by_the_others(harness, redis, workers):
    one, other = (open_router(harness, workers, redis) for _ in range(2))
    wait_until_connected(harness, one, other)
    worker = workers[0]

    def peers():
        rows = json.loads(get(harness, other, "/ha/workers").body)["workers"]
        return {row["url"]: row["peers"]["requests"] for row in rows}

    with Tickets(one, worker, 3):
        eventually(lambda: peers()[worker.url] == 3, "the load was not told")
        assert status(harness, other)["members"][0]["requests"] == 3
        assert metric(other, "remote_requests", worker=worker.url) == 3
    eventually(lambda: peers()[worker.url] == 0, "the load was not taken back")


class Tickets:
    """Open requests of one worker, through the library."""

    def __init__(self, router, worker, count):
        self._router, self._worker, self._count = router, worker, count
        self._tickets = []

    def __enter__(self):
        while len([t for t in self._tickets if t.worker_url == self._worker.url]) < self._count:
            self._tickets.append(self._router.core.select(prompt="x"))
        for ticket in self._tickets:
            if ticket.worker_url != self._worker.url:
                ticket.finish()
        return self

    def __exit__(self, *_):
        for ticket in self._tickets:
            if ticket.worker_url == self._worker.url:
                ticket.finish()


def test_a_router_that_stops_says_so_and_leaves_what_it_knew(harness, redis, workers):
    one, other = (open_router(harness, workers, redis) for _ in range(2))
    wait_until_connected(harness, one, other)
    holder = chosen(harness, one)
    eventually(lambda: strides(other) >= 11)
    for router in (one, other):
        router.must_rest()
        router.shutdown()
        router.must_end()
    assert redis.call("ZCARD", "vr:{default}:members") == 0
    third = open_router(harness, workers, redis)
    eventually(lambda: get(harness, third, "/ha/health").status == 200)
    assert metric(third, "peer_sync_snapshots_total", direction="read") == 1
    assert strides(third) >= 11
    assert chosen(harness, third) == holder


def test_a_stopped_router_is_gone_at_once(harness, redis, workers):
    one, other = (open_router(harness, workers, redis) for _ in range(2))
    wait_until_connected(harness, one, other)
    one.shutdown()
    one.must_end()
    eventually(lambda: states(harness, other) == ["gone"])
    assert metric(other, "peer_sync_peers", state="gone") == 1


def test_fleets_of_other_names_do_not_meet(harness, redis, workers):
    one = open_router(harness, workers, redis, peer_sync_fleet="blue")
    other = open_router(harness, workers, redis, peer_sync_fleet="green")
    for router in (one, other):
        eventually(lambda router=router: get(harness, router, "/ha/health").status == 200)
    eventually(lambda: metric(other, "peer_sync_rounds_total", result="ok") > 5)
    assert states(harness, one) == states(harness, other) == []
    keys = {key.decode().split(":")[1] for key in redis.call("KEYS", "vr:*")}
    assert keys == {"{blue}", "{green}"}


@pytest.mark.parametrize("end", ["kill", "pause"])
def test_requests_go_on_without_a_redis_and_routers_meet_again(harness, redis, workers, end):
    one, other = (open_router(harness, workers, redis) for _ in range(2))
    wait_until_connected(harness, one, other)
    getattr(redis, end)()
    eventually(lambda: get(harness, one, "/ha/health").status == 503, "the outage was not noticed")
    client = harness.client(one)
    for number in range(20):
        assert chat(harness, one, f"{number} {PROMPT}", client).status == 200
    for router in (one, other):
        eventually(lambda router=router: metric(router, "peer_sync_alone") == 1, "it never was alone")
    # Alone, workers are polled for what others sent them.
    eventually(lambda: metric(other, "load_polls_total", result="failed") > 0)  # these workers tell no load
    assert chosen(harness, one, "alone " + PROMPT) == chosen(harness, other, "alone " + PROMPT)
    redis.start() if end == "kill" else redis.resume()
    wait_until_connected(harness, one, other)
    eventually(lambda: metric(one, "peer_sync_alone") == 0)
    assert metric(one, "peer_sync_outage_seconds_total") > 4
    # What waited during the outage is told with the first frame.
    frames = metric(other, "peer_sync_frames_read_total", result="ok")
    eventually(lambda: metric(other, "peer_sync_frames_read_total", result="ok") > frames + 2)
    applied = metric(other, "peer_sync_decisions_total", result="applied")
    holder = chosen(harness, one, "again " + PROMPT)
    eventually(lambda: metric(other, "peer_sync_decisions_total", result="applied") > applied)
    wait_until_idle(other, holder)
    assert chosen(harness, other, "again " + PROMPT) == holder


def test_a_router_starts_without_a_redis(harness, redis, workers):
    redis.kill()
    router = open_router(harness, workers, redis)
    assert get(harness, router, "/ha/health").status == 503
    assert get(harness, router, "/readiness").status == 200
    assert chat(harness, router).status == 200
    assert status(harness, router)["redis"]["up"] is False
    redis.start()
    eventually(lambda: get(harness, router, "/ha/health").status == 200)


def test_a_redis_that_lost_its_data_is_as_good_as_before(harness, redis, workers):
    one, other = (open_router(harness, workers, redis) for _ in range(2))
    wait_until_connected(harness, one, other)
    redis.call("FLUSHALL")
    holder = chosen(harness, one)
    eventually(lambda: strides(other) >= 11)
    wait_until_idle(other, holder)
    assert chosen(harness, other) == holder
    assert states(harness, one) == states(harness, other) == ["live"]


def publish(redis, frame, fleet="default"):
    """A frame of a router that is in Redis alone."""
    router = peer_frame.u64(frame["router"])[::-1].hex()
    words = ["XADD", f"vr:{{{fleet}}}:x:{router}", "*", "f"]
    redis.call(*words, frame["bytes"])
    now = int(redis.call("TIME")[0]) * 1000
    redis.call("ZADD", f"vr:{{{fleet}}}:members", str(now), router)


def forged(workers, secret=b"", **members):
    frame = peer_frame.empty(
        router=99,
        full=True,
        names=[(0, 0, workers[0].url)],
        loads=[(0, (1000, 1000, 10**6, 10**6, 10**6))],
        **members,
    )
    return {"router": 99, "bytes": peer_frame.write(frame, secret)}


def test_frames_without_the_secret_count_for_nothing(harness, redis, workers, tmp_path):
    (tmp_path / "secret").write_text("0123456789abcdef\n")
    one, other = (
        open_router(harness, workers, redis, peer_sync_secret_file=str(tmp_path / "secret")) for _ in range(2)
    )
    wait_until_connected(harness, one, other)
    publish(redis, forged(workers))
    publish(redis, forged(workers, secret=b"another secret..", sequence=2))
    publish(redis, {"router": 99, "bytes": b"garbage"})
    eventually(lambda: metric(one, "peer_sync_frames_read_total", result="bad_seal") == 2)
    eventually(lambda: metric(one, "peer_sync_frames_read_total", result="malformed") == 1)
    assert states(harness, one) == ["live"]
    assert metric(one, "remote_requests", worker=workers[0].url) == 0
    # What routers tell shows neither workers nor prompts.
    stream = f"vr:{{default}}:x:{status(harness, one)['self']['router']}"
    told = b"".join(entry[1][1] for entry in redis.call("XRANGE", stream, "-", "+"))
    assert b"http" not in told
    holder = chosen(harness, one)
    eventually(lambda: strides(other) >= 11)
    wait_until_idle(other, holder)
    assert chosen(harness, other) == holder


def test_a_frame_that_is_sent_again_counts_once(harness, redis, workers):
    one = open_router(harness, workers, redis)
    eventually(lambda: get(harness, one, "/ha/health").status == 200)
    for _ in range(3):
        publish(redis, forged(workers))
    eventually(lambda: metric(one, "peer_sync_frames_read_total", result="repeated") == 2)
    eventually(lambda: metric(one, "remote_requests", worker=workers[0].url) == 1000)
    # It is silent, so it is late after 2 s, and its load fades.
    eventually(lambda: states(harness, one) == ["late"])
    eventually(lambda: metric(one, "remote_requests", worker=workers[0].url) < 900)


@pytest.mark.parametrize("junk", ["", "zz", "x" * 1000, "0123456789abcdeg", "00000000000000001"])
def test_members_that_are_no_routers_are_left_alone(harness, redis, workers, junk):
    redis.call("ZADD", "vr:{default}:members", str(2**50), junk)
    one, other = (open_router(harness, workers, redis) for _ in range(2))
    wait_until_connected(harness, one, other)


def test_an_entry_that_is_too_large_does_not_keep_the_others_apart(harness, redis, workers, capfd):
    one, other = (open_router(harness, workers, redis) for _ in range(2))
    wait_until_connected(harness, one, other)
    redis.call("XADD", "vr:{default}:x:0000000000000063", "*", "f", b"x" * (18 << 20))
    redis.call("ZADD", "vr:{default}:members", str(int(time.time() * 1000) + 30_000), "0000000000000063")
    logged = []

    def said():
        logged.append(capfd.readouterr().err)
        return "".join(logged).count("too large in vr:{default}:x:0000000000000063") == 2

    eventually(said)
    for router in (one, other):
        eventually(lambda router=router: get(harness, router, "/ha/health").status == 200)
    wait_until_connected(harness, one, other)


@pytest.mark.parametrize("key", ["members", "snap:{}", "x:{}"])
def test_a_key_of_another_type_harms_no_request_and_is_put_right(harness, redis, workers, key):
    one = open_router(harness, workers, redis)
    eventually(lambda: get(harness, one, "/ha/health").status == 200)
    name = f"vr:{{default}}:{key.format(status(harness, one)['self']['router'])}"
    redis.call("EVAL", "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], 'a', 'b')", "1", name)
    assert chat(harness, one).status == 200
    if not key.startswith("snap"):
        eventually(lambda: "hash" not in str(redis.call("TYPE", name)))
    eventually(lambda: get(harness, one, "/ha/health").status == 200)


def test_a_worker_that_one_router_cannot_reach_is_checked_by_the_others(harness, redis, workers):
    refusing = harness.worker()
    fleet = [*workers, refusing]
    options = {"health_check_interval_secs": 3600, "health_failure_threshold": 1}
    one, other = (open_router(harness, fleet, redis, policy="round_robin", **options) for _ in range(2))
    wait_until_connected(harness, one, other)
    for router in (one, other):
        eventually(lambda router=router: all(worker.healthy for worker in router.core.workers))
    refusing.stop()
    for _ in fleet:
        chat(harness, one)
    for router in (one, other):
        router.wait_until_unhealthy(refusing)


def test_a_rate_limit_is_of_all_routers_together(harness, redis, workers):
    limit = 20
    routers = [open_router(harness, workers, redis, rate_limit_tokens_per_second=limit) for _ in range(2)]
    wait_until_connected(harness, *routers)
    for router in routers:
        eventually(lambda router=router: metric(router, "rate_limit_leases_total", result="ok") > 0)
    clients = [harness.client(router) for router in routers]
    begun = time.monotonic()
    admitted = 0
    while time.monotonic() - begun < 2.5:
        for router, client in zip(routers, clients, strict=True):
            admitted += chat(harness, router, "x", client).status == 200
    taken = time.monotonic() - begun
    # A second's worth at once, and each router one more than its lease.
    assert admitted <= limit * (taken + 1) + 2
    assert admitted >= limit * 2


def test_a_limit_is_shared_out_while_redis_is_down(harness, redis, workers):
    routers = [open_router(harness, workers, redis, rate_limit_tokens_per_second=10) for _ in range(2)]
    wait_until_connected(harness, *routers)
    redis.kill()
    for router in routers:
        eventually(lambda router=router: get(harness, router, "/ha/health").status == 503)
    begun = time.monotonic()
    client = harness.client(routers[0])
    admitted = 0
    while time.monotonic() - begun < 2:
        admitted += chat(harness, routers[0], "x", client).status == 200
    assert admitted <= 5 * (time.monotonic() - begun + 1) + 1


def tenant(harness, router):
    """What the page says of the only tenant that there is."""
    page = json.loads(get(harness, router, "/admin/admission").body)
    return next(iter(page["tenants"]), {"open": 0})


def test_the_limits_of_a_tenant_are_of_all_routers_together(harness, redis, workers):
    four = {"admission_config": "tenant requests_per_minute=1 burst_ms=240000 default"}
    one, other = (open_router(harness, workers, redis, **four) for _ in range(2))
    wait_until_connected(harness, one, other)
    assert [chat(harness, one).status for _ in range(3)] == [200] * 3
    eventually(lambda: tenant(harness, other).get("requests", {}).get("remaining") == 1)
    assert [chat(harness, other).status for _ in range(2)] == [200, 429]
    eventually(lambda: tenant(harness, one)["requests"]["remaining"] == 0)
    assert chat(harness, one).status == 429
    late = open_router(harness, workers, redis, **four)
    eventually(lambda: tenant(harness, late).get("requests", {}).get("remaining") == 0)
    # Who limits requests per second for itself does so for its tenants.
    alone = open_router(harness, workers, redis, rate_limit_scope="router", **four)
    wait_until_connected(harness, one, other, late, alone)
    assert chat(harness, alone).status == 200
    assert "tenant_limit_parts" not in alone.server.metrics_text()


def test_requests_at_a_time_are_of_all_routers_and_of_each_a_part_without_redis(harness, redis):
    streaming = Streaming(harness)
    two = {"admission_config": "tenant concurrency=2 default"}
    one, other = (open_router(harness, [streaming], redis, **two) for _ in range(2))
    wait_until_connected(harness, one, other)
    clients = [harness.client(router) for router in (one, other)]
    for client in clients:
        client.send(request("POST", "/v1/chat/completions", body=body_of(PROMPT)))
        assert client.read_head().status == 200
    for router in (one, other):
        eventually(lambda router=router: tenant(harness, router).get("open_at_other_routers") == 1)
        assert chat(harness, router, client=harness.client(router)).status == 429
    streaming.gate.open()
    for client in clients:
        client.read_to_last_chunk()
    eventually(lambda: "open_at_other_routers" not in tenant(harness, one))
    assert chat(harness, one).status == 200
    redis.kill()
    eventually(lambda: metric(one, "tenant_limit_parts") == 2)


def test_a_router_for_itself_says_so(harness, workers):
    router = harness.router(*workers)
    for path in ("/ha/status", "/ha/health", "/ha/workers"):
        reply = get(harness, router, path)
        assert reply.status == 404
        assert b"--peer-sync" in reply.body
    assert "router_peer_sync" not in router.server.metrics_text()


def test_names_of_routers_may_repeat(harness, redis, workers):
    routers = [open_router(harness, workers, redis, router_name="same") for _ in range(3)]
    wait_until_connected(harness, *routers)
    assert [member["name"] for member in status(harness, routers[0])["members"]] == ["same", "same"]
    assert metric(routers[0], "peer_sync_heard_seconds", peer="same") < 2


@pytest.fixture
def secret(tmp_path):
    (tmp_path / "secret").write_text("0123456789abcdef\n")
    return {"peer_sync_secret_file": str(tmp_path / "secret")}


def ask(harness, router, method, path, body=None):
    client = harness.client_at(router.server.admin_port)
    reply = client.ask(method, path, body=b"" if body is None else json.dumps(body).encode())
    return reply.status, json.loads(reply.body)


def urls(router):
    return {worker.url for worker in router.core.workers if not worker.draining}


def test_what_an_admin_says_at_one_router_happens_at_all(harness, redis, workers, secret):
    routers = [open_router(harness, workers, redis, peer_sync_admin=True, **secret) for _ in range(3)]
    wait_until_connected(harness, *routers)
    one, other, third = routers
    added = harness.worker()
    before = urls(one)
    status_, reply = ask(harness, one, "POST", "/workers", {"url": added.url})
    assert (status_, reply["scope"]) == (200, "all 3 routers")
    for router in routers:
        eventually(lambda router=router: urls(router) == before | {added.url}, "it was not added")
    status_, reply = ask(harness, other, "POST", "/admin/drain", {"url": workers[0].url, "timeout_secs": 60})
    assert (status_, reply["scope"]) == (202, "all 3 routers")
    expected = (before - {workers[0].url}) | {added.url}
    for router in routers:
        eventually(lambda router=router: urls(router) == expected, "it was not drained")
    # One that starts later knows of the added one; what was drained it has by its own settings.
    late = open_router(harness, workers[1:], redis, peer_sync_admin=True, **secret)
    eventually(lambda: urls(late) == expected)
    wait_until_connected(harness, *routers, late)
    quoted = added.url.replace(":", "%3A").replace("/", "%2F")
    status_, reply = ask(harness, third, "DELETE", f"/workers/{quoted}")
    assert (status_, reply["scope"]) == (200, "all 4 routers")
    for router in (*routers, late):
        eventually(lambda router=router: added.url not in urls(router), "it was not removed")


def test_a_worker_that_was_drained_away_does_not_come_back_with_later_routers(
    harness, redis, workers, secret
):
    one = open_router(harness, workers, redis, peer_sync_admin=True, **secret)
    other = open_router(harness, workers, redis, peer_sync_admin=True, **secret)
    wait_until_connected(harness, one, other)
    asked = []

    def answer(connection, message):
        asked.append(message.target)
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    added = harness.worker(answer)
    before = urls(one)
    assert ask(harness, one, "POST", "/workers", {"url": added.url})[0] == 200
    for router in (one, other):
        eventually(lambda router=router: urls(router) == before | {added.url})
    assert ask(harness, other, "POST", "/admin/drain", {"url": added.url})[0] == 202
    for router in (one, other):
        eventually(lambda router=router: added.url not in {worker.url for worker in router.core.workers})
    del asked[:]
    late = open_router(harness, workers, redis, peer_sync_admin=True, **secret)
    wait_until_connected(harness, one, other, late)
    added_later = harness.worker()  # was told after all else
    assert ask(harness, one, "POST", "/workers", {"url": added_later.url})[0] == 200
    eventually(lambda: added_later.url in urls(late))
    assert asked == []
    assert added.url not in {worker.url for worker in late.core.workers}


def open_staged(harness, pair, redis, **options):
    return harness.router(
        policy="round_robin",
        routing={"prefill_urls": [pair[0].url], "decode_urls": [pair[1].url]},
        peer_sync=redis.url,
        peer_sync_interval_ms=FRESH,
        peer_sync_admin=True,
        admin_port=0,
        **options,
    )


def roles(harness, router):
    rows = json.loads(get(harness, router, "/workers").body)["workers"]
    return {row["url"]: (row["worker_type"], row.get("bootstrap_port")) for row in rows}


def test_a_worker_of_a_stage_has_it_at_all_routers(harness, redis, workers, secret):
    p, d, added = workers
    # One without stages, as they stand in one fleet by mistake, or until all are restarted.
    plain = open_router(harness, [p], redis, policy="round_robin", peer_sync_admin=True, **secret)
    one, other = (open_staged(harness, (p, d), redis, **secret) for _ in range(2))
    wait_until_connected(harness, plain, one, other)
    before = {p.url: ("prefill", None), d.url: ("decode", None)}
    assert roles(harness, other) == before
    new = {"url": added.url, "worker_type": "prefill", "bootstrap_port": 8999}
    status_, reply = ask(harness, one, "POST", "/workers", new)
    assert (status_, reply["scope"]) == (200, "all 3 routers")
    expected = before | {added.url: ("prefill", 8999)}
    for router in (one, other):
        eventually(lambda router=router: roles(harness, router) == expected, "it was not added")
    late = open_staged(harness, (p, d), redis, **secret)
    eventually(lambda: roles(harness, late) == expected, "a later router does not know of it")
    quoted = added.url.replace(":", "%3A").replace("/", "%2F")
    assert ask(harness, other, "DELETE", f"/workers/{quoted}")[0] == 200
    for router in (one, other, late):
        eventually(lambda router=router: roles(harness, router) == before, "it was not removed")
    # Added again it has another stage, and is drained.
    assert ask(harness, one, "POST", "/workers", {"url": added.url, "worker_type": "decode"})[0] == 200
    for router in (one, other, late):
        eventually(lambda router=router: roles(harness, router) == before | {added.url: ("decode", None)})
    assert ask(harness, late, "POST", "/admin/drain", {"url": added.url})[0] == 202
    for router in (one, other, late):
        eventually(lambda router=router: roles(harness, router) == before, "it was not drained")
    assert urls(plain) == {p.url}


def test_one_of_the_routers_that_hear_each_other_leads_and_without_redis_none(harness, tmp_path):
    worker = harness.worker()
    with RedisServer(tmp_path) as redis:
        first, second = (open_router(harness, [worker], redis) for _ in range(2))
        wait_until_connected(harness, first, second)
        eventually(lambda: [first.server.leads_peers, second.server.leads_peers] == [True, False])
        first.shutdown()
        first.must_end()
        eventually(lambda: second.server.leads_peers)
        redis.kill()
        eventually(lambda: not second.server.leads_peers)
    assert harness.router(worker).server.leads_peers  # it has no others
