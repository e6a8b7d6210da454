"""The command `vllm-router` in front of simulated workers, each of which is a pod of a real cluster."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.wire import eventually
from tests.kubernetes.cluster import Namespace
from tests.kubernetes.processes import Router, Server
from vllm_router.testing import SimulatedWorker

pytestmark = pytest.mark.cluster

REQUEST = {"model": "simulated-model", "prompt": "hello", "max_tokens": 10}
LONG_REQUEST = {**REQUEST, "max_tokens": 200}  # more than a second
START = Callable[..., Router]


class Pod:
    """A pod, and the simulated worker in it. Its address is one of loopback, and its port its own."""

    def __init__(self, space: Namespace, number: int) -> None:
        self.name = f"vllm-{number}"
        self._space = space
        self._ip = f"127.0.0.{number}"
        self.worker = SimulatedWorker(host=self._ip)
        self.url = self.worker.url
        space.create_pod(self.name, None, ports={"http": self.worker.port})

    def set_ready(self, ready: bool) -> None:
        self._space.set_status(self.name, self._ip, ready=ready)

    def requests(self) -> int:
        return int(self.worker.stats()["requests"])

    def running(self) -> int:
        return int(self.worker.stats()["running"])

    def end(self) -> None:
        """What a kubelet does once the grace period is over."""
        self.worker.stop()
        self._space.end_pod(self.name)


@pytest.fixture
def make_pod(space: Namespace) -> Iterator[Callable[[], Pod]]:
    made: list[Pod] = []

    def make() -> Pod:
        """One that runs and is ready."""
        made.append(Pod(space, len(made) + 2))
        made[-1].set_ready(True)
        return made[-1]

    yield make
    for one in made:
        one.worker.stop()


@pytest.fixture
def start(space: Namespace, server: Server, tmp_path: Path) -> Iterator[START]:
    """Starts the command as docs/how-to/discover_workers.md does."""
    made: list[Router] = []
    token = space.token()

    def begin(*flags: str) -> Router:
        config = server.kubeconfig(tmp_path, token)
        which = ["--selector", "app=vllm", "--service-discovery-port", "http", "--kubeconfig", str(config)]
        where = ["--service-discovery-namespace", space.name]
        quick = ["--policy", "round_robin", "--health-check-interval-secs", "1"]
        made.append(Router("vllm-router", "--service-discovery", *which, *where, *quick, *flags))
        return made[-1]

    yield begin
    for one in made:
        one.stop()
        assert token not in one.log.read_text()


class Traffic:
    """Clients that send one request after the other until the end."""

    def __init__(self, router: Router, clients: int) -> None:
        self.statuses: list[int] = []
        self._router = router
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                status, body = self._router.post("/v1/completions", REQUEST)
            except (OSError, ValueError) as error:  # a response that was cut
                status, body = 0, repr(error)
            self.statuses.append(status if status != 200 or body["choices"][0]["text"] else -1)

    def wait_for_more(self, count: int) -> None:
        """So many responses more than there are now."""
        before = len(self.statuses)
        eventually(lambda: len(self.statuses) >= before + count, "no responses come")

    def stop(self) -> list[int]:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        return self.statuses


def test_a_rollout_loses_no_request(space: Namespace, make_pod: Callable[[], Pod], start: START) -> None:
    """Three pods are replaced, one after the other: a new one is ready, then an old one goes."""
    space.allow()
    pods = [make_pod() for _ in range(3)]
    router = start()
    eventually(lambda: router.states() == {one.url: "serving" for one in pods})
    traffic = Traffic(router, clients=4)
    try:
        for _ in range(3):
            old, new = pods.pop(0), make_pod()
            pods.append(new)
            eventually(lambda new=new: new.requests() > 0, "the new pod gets no request")
            space.delete_pod(old.name)
            eventually(lambda old=old: router.states().get(old.url) in ("draining", "left"))
            eventually(lambda old=old: old.running() == 0, "its requests do not end")
            before = old.requests()
            traffic.wait_for_more(20)
            assert old.requests() == before
            old.end()
            eventually(lambda old=old: old.url not in router.states())
    finally:
        statuses = traffic.stop()
    assert set(statuses) == {200}
    assert router.states() == {one.url: "serving" for one in pods}


def test_a_request_that_runs_ends_before_its_pod_does(
    space: Namespace, make_pod: Callable[[], Pod], start: START
) -> None:
    space.allow()
    pod = make_pod()
    router = start()
    eventually(lambda: router.states() == {pod.url: "serving"})
    responses: list[tuple[int, object]] = []
    client = threading.Thread(
        target=lambda: responses.append(router.post("/v1/completions", LONG_REQUEST)), daemon=True
    )
    client.start()
    eventually(lambda: pod.running() == 1)
    other = make_pod()
    eventually(lambda: router.states().get(other.url) == "serving")
    space.delete_pod(pod.name)
    eventually(lambda: router.states()[pod.url] == "draining")
    assert pod.running() == 1
    client.join()
    status, body = responses[0]
    assert status == 200
    assert json.dumps(body).count(" ") > 200  # all of its words
    eventually(lambda: router.states()[pod.url] == "left")


def test_a_pod_that_is_not_ready_gets_no_new_requests(
    space: Namespace, make_pod: Callable[[], Pod], start: START
) -> None:
    space.allow()
    a, b = make_pod(), make_pod()
    router = start()
    eventually(lambda: router.states() == {a.url: "serving", b.url: "serving"})
    a.set_ready(False)
    eventually(lambda: router.states() == {a.url: "resting", b.url: "serving"})
    before = a.requests()
    assert {router.post("/v1/completions", REQUEST)[0] for _ in range(10)} == {200}
    assert a.requests() == before
    a.set_ready(True)
    eventually(lambda: router.states() == {a.url: "serving", b.url: "serving"})
    assert {router.post("/v1/completions", REQUEST)[0] for _ in range(10)} == {200}
    assert a.requests() > before


def test_without_rights_it_waits_and_says_what_is_missing(
    space: Namespace, make_pod: Callable[[], Pod], start: START
) -> None:
    pod = make_pod()
    router = start()
    eventually(lambda: "403" in str(router.get("/readiness")[1]))
    status, body = router.get("/readiness")
    assert status == 503
    assert body["reason"].startswith(
        f"waiting for kubernetes: pods in namespace {space.name}: cannot list: 403"
    )
    line = f'cannot list resource "pods" in API group "" in the namespace "{space.name}"'
    eventually(lambda: line in router.log.read_text(), "the log does not say it")
    space.allow()
    eventually(lambda: router.get("/readiness")[0] == 200, patience=60)
    assert router.states() == {pod.url: "serving"}


def test_it_serves_while_the_api_server_is_away_and_catches_up(
    space: Namespace,
    server: Server,
    uncached: Server,
    make_pod: Callable[[], Pod],
    start: START,
) -> None:
    space.allow()
    space.write_to(uncached)
    old = make_pod()
    router = start()
    eventually(lambda: router.states() == {old.url: "serving"})
    try:
        server.kill()
        eventually(lambda: "the API server cannot be reached" in router.log.read_text())
        new = make_pod()
        assert {router.post("/v1/completions", REQUEST)[0] for _ in range(10)} == {200}
        assert router.states() == {old.url: "serving"}
    finally:
        server.start()
    eventually(lambda: router.states() == {old.url: "serving", new.url: "serving"}, patience=60)
    space.delete_pod(old.name)
    eventually(lambda: router.states()[old.url] in ("draining", "left"))
    assert router.post("/v1/completions", REQUEST)[0] == 200
