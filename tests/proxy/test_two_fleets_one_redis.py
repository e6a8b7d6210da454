"""Fleets with one Redis and default settings, and routers of one fleet."""

import contextlib
import json
import urllib.request

import pytest

from tests.fakes.redis_server import RedisServer
from tests.fakes.wire import eventually
from vllm_router import Router
from vllm_router.testing import SimulatedWorker


@pytest.fixture
def site(tmp_path):
    """A Redis, and what serves workers with stored responses in it: its ask() is X-Cache."""
    with RedisServer(tmp_path) as redis, contextlib.ExitStack() as open_now:

        def serve(*workers):
            server = Router(worker_urls=[worker.url for worker in workers]).serve(
                response_cache=True, response_cache_backend="redis", redis_url=redis.url, kv_events="off"
            )
            open_now.callback(server.stop, 0)

            def ask(prompt="hi"):
                body = b'{"model": "m", "temperature": 0, "prompt": "%s"}' % prompt.encode()
                header = {"Content-Type": "application/json"}
                request = urllib.request.Request(server.url + "/v1/completions", body, header)
                with urllib.request.urlopen(request, timeout=30) as answer:
                    assert json.load(answer)["choices"]
                    return answer.headers["X-Cache"]

            def uses_redis():
                found = ask(str(server.port)) == "HIT"
                with urllib.request.urlopen(server.url + "/admin/response-cache/stats?detail=1") as answer:
                    return found and json.load(answer)["detail"]["memory"]["entries"] == 0

            eventually(uses_redis)
            return ask

        def workers(count):
            return [
                open_now.enter_context(SimulatedWorker(engine="instant", model="m")) for _ in range(count)
            ]

        yield serve, workers, lambda: [key for key in redis.call("KEYS", "cr:resp:*") if b"~" not in key]


def test_a_fleet_is_not_sent_what_a_worker_of_another_said(site):
    """Row 20 of the third list: staging and production, whose models have one name."""
    serve, workers, stored = site
    a, b = workers(2)
    staging, production = serve(a), serve(b)
    assert (staging(), production()) == ("MISS", "MISS")
    eventually(lambda: (staging(), production()) == ("HIT", "HIT"))
    eventually(lambda: len({key.rpartition(b":")[0] for key in stored()}) == 2)


def test_routers_of_one_fleet_share_whatever_order_they_name_their_workers_in(site):
    serve, workers, stored = site
    a, b = workers(2)
    one, other = serve(a, b), serve(b, a)
    before = len(stored())
    assert one() == "MISS"
    eventually(lambda: len(stored()) > before)
    assert other() == "HIT"
