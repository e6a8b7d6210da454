"""What every test may use: one seed per run, said aloud, and the Hypothesis profile."""

import os
import random
import shlex
import signal
import sys
from collections.abc import Iterator

import hypothesis
import pytest

# In CI a red build should mean that the change is wrong, so examples are the same on every run; at a desk
# they are new each time. Machines differ in speed, so no example has a deadline: the test has one.
hypothesis.settings.register_profile("desk", print_blob=True, deadline=None)
hypothesis.settings.register_profile("ci", parent=hypothesis.settings.get_profile("desk"), derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "desk")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="seed of the fixtures `seed` and `rng`")


def pytest_configure(config: pytest.Config) -> None:
    # Who starts the tests in the background ignores Ctrl-C and hang-ups, and so would all that they start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if config.option.seed is None:
        # pytest-xdist's workers have to agree with the process that prints the seed.
        # CI takes the same one every time.
        workerinput = getattr(config, "workerinput", None)
        drawn = 1 if os.environ.get("CI") else random.SystemRandom().getrandbits(32)
        config.option.seed = workerinput["seed"] if workerinput else drawn


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    node.workerinput["seed"] = node.config.option.seed  # type: ignore[attr-defined]


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
