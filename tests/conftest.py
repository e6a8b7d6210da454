"""What every test may use: one seed per run, printed in the header, and the Hypothesis profiles."""

import os
import random
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# A red run should mean that the change is wrong, so examples are the same on every run; `make property` looks
# for new ones, with the profile `search`. Machines differ in speed, so tests have deadlines, examples not.
common = {"print_blob": True, "deadline": None}
hypothesis.settings.register_profile("repeat", derandomize=True, database=None, **common)
hypothesis.settings.register_profile("search", max_examples=1000, **common)
hypothesis.settings.load_profile("repeat")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=1, help="seed of the fixtures `seed` and `rng`")


def pytest_configure() -> None:
    # Who starts the tests in the background ignores Ctrl-C and hang-ups, and so would all that they start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.option.seed}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.failed and "seed" in getattr(item, "fixturenames", ()):
        command = shlex.join(
            [sys.executable, "-m", "pytest", item.nodeid, "--seed", str(item.config.option.seed)]
        )
        report.sections.append(("Replay with", command))
    return report


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The run's seed; a failing test shows the command that replays it."""
    return request.config.option.seed


@pytest.fixture
def rng(seed: int) -> random.Random:
    """Random numbers that `--seed` repeats."""
    return random.Random(seed)


@pytest.fixture(autouse=True)
def _log_level() -> Iterator[None]:
    """The level of the core's log is the process's, so what one test sets holds for none after it."""
    yield
    core = sys.modules.get("vllm_router._core")
    if core is not None:
        core.set_log_level("info")


def _write_the_log() -> None:
    """Waits for what the core's log has taken, which threads of its own write."""
    core = sys.modules.get("vllm_router._core")
    if core is not None:
        core.flush_log()


@pytest.fixture
def capfd(capfd: pytest.CaptureFixture[str]) -> pytest.CaptureFixture[str]:
    """The same, with the lines that the log has taken by then."""
    read = capfd.readouterr

    def readouterr() -> Any:
        _write_the_log()
        return read()

    capfd.readouterr = readouterr  # type: ignore[method-assign]
    return capfd


@pytest.fixture
def written_to(tmp_path: Path) -> Iterator[Callable[[int], Callable[[], str]]]:
    """`err = written_to(2)`: from then on `err()` is all that the process has written there.

    For tests that wait for what threads of the core write: capfd loses what comes while it is asked.
    """
    kept: dict[int, int] = {}

    def begin(descriptor: int) -> Callable[[], str]:
        path = tmp_path / f"written_to_{descriptor}"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        kept[descriptor] = os.dup(descriptor)
        os.dup2(file, descriptor)
        os.close(file)
        return lambda: path.read_text(errors="replace")

    yield begin
    for descriptor, before in kept.items():
        os.dup2(before, descriptor)
        os.close(before)
