"""A collector for each test, whose file is its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collector.real_collector import RealCollector, binary
from tests.fakes.fixtures import harness

__all__ = ["harness"]


@pytest.fixture
def collector(pytestconfig: pytest.Config, tmp_path: Path) -> Iterator[RealCollector]:
    if "collector" not in pytestconfig.option.markexpr:
        pytest.skip("starts a collector; run `make test-collector`, or pytest with `-m collector`")
    if not binary().exists():
        pytest.skip(f"{binary()} is missing; `make test-collector` builds it")
    made = RealCollector(tmp_path)
    try:
        yield made
    finally:
        made.kill()
