"""cpp/proxy/response_cache/cached_request.h: equal requests at once, captures, the pace of replays."""

import time

from tests.fakes.cached import (
    CHAT,
    EVENTS,
    JSON,
    Engine,
    GatedEngine,
    answer_of,
    ask,
    body_of,
    cache_of,
    cached,
    counted,
    followers,
    led_and_followed,
)
from tests.fakes.wire import chunked, eventually, request, response


def test_equal_requests_reach_a_worker_once(harness):
    engine = GatedEngine(harness)
    router = cached(harness, engine)
    clients = [harness.client(router) for _ in range(50)]
    for client in clients:
        client.send(request("POST", CHAT, JSON, body=body_of()))
    engine.wait_for_request()
    eventually(lambda: followers(router) == 49, "they do not wait for it")
    engine.gates[0].open()
    messages = [client.read_response() for client in clients]
    assert [message.body for message in messages] == [answer_of(1)] * 50
    assert sorted(cache_of(message) for message in messages) == ["HIT"] * 49 + ["MISS"]
    assert engine.count == 1
    assert counted(router, "vllm_router_response_cache_coalesced_total") == 49
    assert followers(router) == 0
    router.must_rest()


def test_off_each_asks_for_itself(harness):
    engine = GatedEngine(harness)
    router = cached(harness, engine, response_cache_coalesce="off")
    clients = [harness.client(router) for _ in range(3)]
    for client in clients:
        client.send(request("POST", CHAT, JSON, body=body_of()))
    for _ in clients:
        engine.wait_for_request()
    for gate in engine.gates:
        gate.open()
    assert [cache_of(client.read_response()) for client in clients] == ["MISS"] * 3


def test_a_leader_whose_client_leaves_passes_on_its_place(harness):
    engine = GatedEngine(harness)
    router = cached(harness, engine)
    leader, (second, third) = led_and_followed(harness, router, engine, 2)
    leader.close()
    engine.wait_for_request()  # for the second
    engine.gates[1].open()
    assert [second.read_response().body, third.read_response().body] == [answer_of(2)] * 2
    engine.gates[0].open()
    assert counted(router, "vllm_router_response_cache_promotions_total") == 1
    router.must_rest()


def test_errors_are_not_shared_and_the_third_failure_frees_all(harness):
    failure = response(400, b'{"error":{"message":"no"}}', JSON)
    engine = GatedEngine(
        harness, lambda number: failure if number <= 3 else response(200, answer_of(number), JSON)
    )
    router = cached(harness, engine, disable_retries=True)
    leader, others = led_and_followed(harness, router, engine, 5)
    engine.gates[0].open()
    assert leader.read_response().status == 400
    for number in (1, 2):
        engine.wait_for_request()
        engine.gates[number].open()
        assert others[number - 1].read_response().status == 400
    # All others go on alone.
    for _ in range(3):
        engine.wait_for_request()
    for gate in engine.gates:
        gate.open()
    assert [client.read_response().status for client in others[2:]] == [200] * 3
    assert followers(router) == 0
    router.must_rest()


def test_a_follower_leaves(harness):
    engine = GatedEngine(harness)
    router = cached(harness, engine)
    leader, (second, third) = led_and_followed(harness, router, engine, 2)
    second.close()
    eventually(lambda: followers(router) == 1)
    engine.gates[0].open()
    assert leader.read_response().body == third.read_response().body == answer_of(1)
    assert engine.count == 1
    router.must_rest()


def test_a_follower_waits_no_longer_than_it_may(harness):
    engine = GatedEngine(harness)
    router = cached(harness, engine, response_cache_coalesce_wait_ms=50)
    leader, _ = led_and_followed(harness, router, engine, 0)
    second = harness.client(router)  # which may have waited before anybody can see it
    second.send(request("POST", CHAT, JSON, body=body_of()))
    engine.wait_for_request()
    engine.gates[1].open()
    assert second.read_response().body == answer_of(2)
    engine.gates[0].open()
    assert leader.read_response().body == answer_of(1)
    router.must_rest()


def test_more_than_may_follow_go_alone(harness):
    engine = GatedEngine(harness)
    router = cached(harness, engine, response_cache_coalesce_max_followers=1)
    leader, (second,) = led_and_followed(harness, router, engine, 1)
    third = harness.client(router)
    third.send(request("POST", CHAT, JSON, body=body_of()))
    engine.wait_for_request()
    for gate in engine.gates:
        gate.open()
    assert leader.read_response().body == second.read_response().body == answer_of(1)
    assert third.read_response().body == answer_of(2)
    router.must_rest()


def test_a_response_too_large_to_be_kept_sends_followers_on(harness):
    large = 10_000
    engine = GatedEngine(harness, lambda number: response(200, answer_of(number) + b" " * large, JSON))
    router = cached(harness, engine, response_cache_max_response_size=4096)
    leader, others = led_and_followed(harness, router, engine, 3)
    engine.gates[0].open()
    leader.read_response()
    for _ in others:  # all at once, none waits for another
        engine.wait_for_request()
    for gate in engine.gates:
        gate.open()
    assert len({client.read_response().body for client in others}) == 3
    router.must_rest()


def test_a_stop_ends_what_follows(harness):
    engine = GatedEngine(harness)
    router = cached(harness, engine, shutdown_grace_period_secs=1)
    leader, others = led_and_followed(harness, router, engine, 3)
    router.may_cut = True
    router.shutdown()
    router.must_end()
    engine.gates[0].open()
    for client in (leader, *others):
        client.ending()


def test_what_is_captured_of_all_has_a_limit(harness):
    body = answer_of(1) + b" " * 100_000

    def send(connection, _message, _number):
        connection.send(response(200, body, JSON))

    engine = Engine(harness, send=send)
    router = cached(harness, engine, response_cache_capture_memory_bytes=65_536)
    client = harness.client(router)
    for _ in range(2):
        assert cache_of(ask(client)) == "MISS"
    assert counted(router, 'vllm_router_response_cache_not_stored_total{reason="memory"}') == 2
    assert counted(router, "vllm_router_response_cache_capture_bytes") == 0


def test_a_replay_may_be_paced_by_events(harness):
    router = cached(harness, Engine(harness), response_cache_replay_events_per_second=10)
    client = harness.client(router)
    ask(client, body_of(stream=True))
    began = time.monotonic()
    message = ask(client, body_of(stream=True))
    assert message.chunks == list(EVENTS)
    assert time.monotonic() - began >= 0.25  # 3 pauses of a tenth


def test_events_may_end_with_either_line_break(harness):
    events = [event.replace(b"\n", b"\r\n") if number % 2 else event for number, event in enumerate(EVENTS)]

    def send(connection, _message, _number):
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.send(head + chunked(*events))

    router = cached(harness, Engine(harness, send=send), response_cache_replay_events_per_second=10)
    client = harness.client(router)
    ask(client, body_of(stream=True))
    assert ask(client, body_of(stream=True)).chunks == events
