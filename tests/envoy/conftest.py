"""Envoys of a test, which end before the router and its workers do."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.envoy.real_envoy import RealEnvoy, binary
from tests.fakes.fixtures import harness
from tests.fakes.harness import Harness, RunningRouter
from tests.fakes.worker import FakeWorker

__all__ = ["harness"]


@pytest.fixture
def gateway(
    pytestconfig: pytest.Config,
    tmp_path: Path,
    harness: Harness,  # noqa: ARG001 -- what is requested ends later
) -> Iterator[Callable[..., RealEnvoy]]:
    """`gateway(router, *workers, **options)`: options are those of `configuration`."""
    if "envoy" not in pytestconfig.option.markexpr:
        pytest.skip("starts Envoy; run `make test-envoy`, or pytest with `-m envoy`")
    if not binary().exists():
        pytest.skip(f"{binary()} is missing; `make test-envoy` installs it")
    started: list[RealEnvoy] = []

    def start(router: RunningRouter, *workers: FakeWorker, **options: Any) -> RealEnvoy:
        assert router.server.epp_port is not None
        ports = [worker.port for worker in workers]
        started.append(RealEnvoy(tmp_path, router.server.epp_port, ports, **options))
        return started[-1]

    yield start
    for each in started:
        each.stop()
