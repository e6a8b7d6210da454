"""Faults as they happen, a real Prometheus with the shipped rules, and what `vllm-router status` says.

A minute of the rules takes three seconds; the router judges by real minutes, as ever. All fleets have the
same traffic, in bursts. The healthy one stays without an alert for an hour of the rules.
"""

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.deploy.monitoring import CHAT, prometheus
from tests.fakes.harness import Client, Harness, RunningRouter
from tests.fakes.wire import Message, Wire, eventually, response
from vllm_router.testing import SimulatedWorker

pytestmark = [pytest.mark.release, pytest.mark.timeout(600)]

MINUTE = 3  # of the rules, in seconds
PATIENCE = 150.0
BURST = 12  # requests
MODEL = "simulated-model"


class Site:
    """What a fleet is made of."""

    def __init__(self, harness: Harness, stack: contextlib.ExitStack) -> None:
        self.harness = harness
        self.stack = stack

    def engines(self, **options: Any) -> list[SimulatedWorker]:
        return [self.stack.enter_context(SimulatedWorker(engine="instant", **options)) for _ in range(3)]

    def workers(self, status: int, fails: Callable[[int, bytes], bool], page: bytes = b"{}") -> list[Any]:
        """Each responds with the status where `fails(its number, body)`, else with 200, and has the page."""

        def handler(number: int) -> Callable[[Wire, Message], None]:
            def respond(connection: Wire, message: Message) -> None:
                is_bad = message.method == "POST" and fails(number, message.body)
                body = b"{}" if message.method == "POST" else page
                connection.send(
                    response(status if is_bad else 200, body, ("content-type", "application/json"))
                )

            return respond

        return [self.harness.worker(handler(number)) for number in range(3)]

    def router(self, workers: list[Any], **options: Any) -> RunningRouter:
        options = {"policy": "round_robin", "prometheus_port": 0, **options}
        return self.harness.router(*(worker.url for worker in workers), **options)


class Fleet(NamedTuple):
    router: RunningRouter
    alert: str | None
    said: tuple[str, ...]  # among what `vllm-router status` says
    models: tuple[str, ...] = (MODEL,)
    tiers: tuple[str, ...] = ("auto",)  # of service, by turns
    code: int = 1  # of `vllm-router status`; 0: nothing is wrong with the workers


def healthy(site: Site) -> Fleet:
    router = site.router(site.engines(kv_events_port=0), policy="auto", kv_events="auto")
    return Fleet(router, None, ("All 3 workers serve",))


def slow_worker(site: Site) -> Fleet:
    workers = site.engines(latency_ms=60)
    workers[0].set_faults(latency_ms=600)
    return Fleet(site.router(workers), "VllmRouterWorkerIsSlow", (workers[0].url, "slow"))


def failing_model(site: Site) -> Fleet:
    workers = site.workers(500, lambda number, body: number == 0 and b'"bad"' in body)
    router = site.router(workers, policy="auto", disable_retries=False)
    return Fleet(router, "VllmRouterModelFails", (workers[0].url, "bad", "500"), ("good", "bad"))


def silent_events(site: Site) -> Fleet:
    workers = site.engines(kv_events_port=0)
    workers[0].set_faults(kv_stall=True)
    router = site.router(workers, policy="auto", kv_events="auto")
    return Fleet(router, "VllmRouterKVEventsAreNotTrusted", (workers[0].url, "KV events", "silent"))


def wrong_key_of_one(site: Site) -> Fleet:
    workers = site.workers(401, lambda number, _: number == 0)
    return Fleet(site.router(workers), "VllmRouterWorkersRejectRequests", (workers[0].url, "401", "key"))


def wrong_key_of_all(site: Site) -> Fleet:
    router = site.router(site.workers(401, lambda *_: True))
    return Fleet(router, "VllmRouterWorkersRejectRequests", ("All 3 workers", "401", "key"))


def no_redis(site: Site) -> Fleet:
    url = f"redis://127.0.0.1:{site.harness.refusing_port().port}"
    router = site.router(site.engines(), response_cache=True, response_cache_backend="redis", redis_url=url)
    return Fleet(router, "VllmRouterResponseCacheIsNotShared", (url, "does not reply", "response cache"))


def shed_class(site: Site) -> Fleet:
    """None may wait, and each worker takes one at a time."""
    router = site.router(
        site.engines(latency_ms=300),
        routing={"max_worker_requests": 1},
        admission_config="class default queue_size=0",
        load_poll_interval_secs=0,
    )
    return Fleet(router, "VllmRouterClassIsShed", ("All 3 workers serve",), code=0)


def starving_class(site: Site) -> Fleet:
    """The workers' caches are fuller than a batch class may find them."""
    workers = site.workers(200, lambda *_: False, FULL)
    router = site.router(workers, admission_config=STARVING, load_poll_interval_secs=1)
    said = ("All 3 workers serve",)
    return Fleet(router, "VllmRouterClassStarves", said, tiers=("auto", "flex"), code=0)


def limited_tenant(site: Site) -> Fleet:
    router = site.router(site.engines(), admission_config="tenant requests_per_minute=1 default")
    return Fleet(router, "VllmRouterTenantIsLimited", ("All 3 workers serve",), code=0)


FULL = b"vllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0.8\n"
STARVING = "class batch kv_ceiling=0.5 queue_timeout_ms=1000"
OF_WORKERS = (slow_worker, failing_model, silent_events, wrong_key_of_one, wrong_key_of_all, no_redis)
FAULTS = (*OF_WORKERS, shed_class, starving_class, limited_tenant)


def burst(fleet: Fleet, number: int) -> None:
    def one(client: Client, at: int) -> None:
        body = {
            "model": fleet.models[at % len(fleet.models)],
            "service_tier": fleet.tiers[at % len(fleet.tiers)],
            "max_tokens": 4,
            "messages": [{"role": "user", "content": f"{number} {at} " + "again and again " * 40}],
        }
        client.ask("POST", CHAT, body=json.dumps(body).encode())

    clients = [fleet.router.connect() for _ in range(BURST)]
    threads = [threading.Thread(target=one, args=pair) for pair in zip(clients, range(BURST), strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for client in clients:
        client.close()


def status(fleet: Fleet) -> tuple[int, str]:
    command = [sys.executable, "-m", "vllm_router.launch_router", "status"]
    url = f"http://127.0.0.1:{fleet.router.port}"
    done = subprocess.run([*command, url], capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, done.stdout + done.stderr


def test_each_fault_has_its_alert_and_its_sentence_and_a_healthy_hour_has_none(
    harness: Harness, tmp_path: Path
) -> None:
    with contextlib.ExitStack() as stack:
        site = Site(harness, stack)
        well = healthy(site)
        fleets = {make.__name__: make(site) for make in FAULTS}
        ports = {name: fleet.router.server.metrics_port for name, fleet in fleets.items()}
        well_port = well.router.server.metrics_port
        server = stack.enter_context(prometheus([well_port, *ports.values()], tmp_path, MINUTE))
        hour_ends = time.monotonic() + 60 * MINUTE
        fired: dict[str, set[str]] = {name: set() for name in fleets}
        bursts = 0

        def all_fire() -> bool:
            nonlocal bursts
            bursts += 1
            for fleet in (well, *fleets.values()):
                burst(fleet, bursts)
            for name, port in ports.items():
                fired[name] |= server.firing(port)
            return all(fleet.alert in fired[name] for name, fleet in fleets.items())

        try:
            eventually(all_fire, "an alert does not fire", PATIENCE)
        except AssertionError:
            pytest.fail(f"alerts that fired: {fired}")
        for name, fleet in fleets.items():
            code, text = status(fleet)
            assert code == fleet.code, (name, text)
            assert all(part in text for part in fleet.said), (name, text)

        while time.monotonic() < hour_ends:
            bursts += 1
            burst(well, bursts)
        assert server.series(f'max_over_time(ALERTS{{instance="127.0.0.1:{well_port}"}}[1h])') == []
        code, text = status(well)
        assert code == 0, text
        assert all(part in text for part in well.said), text
