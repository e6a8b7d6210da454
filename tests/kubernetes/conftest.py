"""One etcd and API server for the whole run, a namespace for each test, and logs where a test fails."""

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.followed import Followed
from tests.fakes.wire import PATIENCE
from tests.kubernetes.cluster import Namespace
from tests.kubernetes.processes import LOGS, ControlPlane, Server, missing
from vllm_router.discovery.kubernetes import KubernetesOptions, KubernetesSource
from vllm_router.discovery.kubernetes_client import ApiServer
from vllm_router.discovery.kubernetes_watch import Timing

LINES = 60  # of each log, below a test that failed
FIGURES: list[str] = []  # printed when all tests are over
NUMBERS = itertools.count(1)

# One list, and a watch that lasts as long as the test.
STEADY = Timing(
    resync=2 * PATIENCE,
    window=(2 * PATIENCE, 2 * PATIENCE),
    slack=PATIENCE,
    short=0.02,
    backoff=(0.01, 0.05),
    forbidden=0.05,
)


class Observed(ApiServer):
    """The client of the source, with what it has requested, and what is done before each request."""

    def __init__(self, options: KubernetesOptions) -> None:
        super().__init__(options)
        self.requests: list[dict[str, Any]] = []
        self.before: Callable[[dict[str, Any]], None] | None = None

    def get(self, namespace: str, read_secs: float, **query: Any) -> Any:
        if self.before is not None:
            self.before(query)
        self.requests.append(query)
        return super().get(namespace, read_secs, **query)

    def count(self, verb: str) -> int:
        return sum(bool(query.get("watch")) == (verb == "watch") for query in self.requests)


Follow = Callable[..., tuple[Followed, Observed]]


@pytest.fixture(scope="session")
def plane(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    if "cluster" not in pytestconfig.option.markexpr:
        pytest.skip("starts a Kubernetes API server; run `make test-kubernetes`, or pytest with `-m cluster`")
    if (reason := missing()) is not None:
        pytest.skip(reason)
    for log in LOGS.glob("*.log"):
        log.unlink()
    plane = ControlPlane(tmp_path_factory.mktemp("plane"))
    try:
        yield plane
    finally:
        memory = {"etcd": plane.etcd.resident_bytes()}
        memory |= {one.name: one.resident_bytes() for one in plane.servers}
        FIGURES.append(
            "most memory: " + ", ".join(f"{name} {size >> 20} MiB" for name, size in memory.items())
        )
        plane.stop()


@pytest.fixture(scope="session")
def server(plane: ControlPlane) -> Server:
    """An API server as clusters run it."""
    return plane.server("kube-apiserver")


@pytest.fixture(scope="session")
def uncached(plane: ControlPlane) -> Server:
    """Another one of the same cluster, which has no cache of pods: it lists and watches etcd itself."""
    return plane.server("kube-apiserver-uncached", "--watch-cache-sizes=pods#0")


@pytest.fixture
def space(server: Server) -> Namespace:
    """A namespace with the router's service account, which may do nothing yet."""
    made = Namespace(server, f"test-{next(NUMBERS)}")
    made.create_account()
    return made


@pytest.fixture
def follow(server: Server, space: Namespace, tmp_path: Path) -> Iterator[Follow]:
    """Follows pods as the router's service account. Options are those of KubernetesOptions."""
    made: list[Followed] = []
    default = server

    def start(
        timing: Timing = STEADY, server: Server | None = None, token: str | None = None, **options: Any
    ) -> tuple[Followed, Observed]:
        options = {"namespaces": [space.name], "ports": 8000, **options}
        if "service" not in options:
            options.setdefault("selector", "app=vllm")
        if "kubeconfig" not in options:
            options["kubeconfig"] = (server or default).kubeconfig(tmp_path, token or space.token())
        given = KubernetesOptions(**options)
        observed = Observed(given)
        made.append(Followed())
        made[-1].start(KubernetesSource(given, server=observed, timing=timing, randomness=random.Random(1)))
        return made[-1], observed

    yield start
    for one in made:
        one.source.close()
        for thread in (one.thread, *one.source._threads):
            thread.join(PATIENCE)
            assert not thread.is_alive()


@pytest.fixture
def print_figure() -> Callable[[str], None]:
    """A line for the end of the run."""
    return FIGURES.append


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.failed and "plane" in getattr(item, "fixturenames", ()):
        for log in sorted(LOGS.glob("*.log")):
            last = log.read_text(errors="replace").splitlines()[-LINES:]
            report.sections.append((f"the end of {log}", "\n".join(last)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in FIGURES:
        terminalreporter.write_line(line)
