"""Two engines for the whole run, routers in front of them, and their logs where a test fails."""

import contextlib
from collections.abc import Iterator

import pytest

from tests.engines.processes import LOGS, Engine, Router, missing

LINES = 60  # of each log, below a test that failed
TABLES: list[str] = []  # printed when all tests are over


class Fleet:
    """Engines and what is in front of them."""

    def __init__(self, engines: list[Engine]) -> None:
        self.engines = engines

    def bring_up(self) -> None:
        """Starts the engines that do not run, and waits until all serve."""
        for engine in self.engines:
            if not (engine.is_running() and engine.is_ready()):
                engine.kill()  # what hangs, or is left of one that has ended
                engine.start()
        for engine in self.engines:
            engine.wait_until_ready()

    @contextlib.contextmanager
    def router(self, policy: str, *flags: str, engines: list[Engine] | None = None) -> Iterator[Router]:
        """A new router in front of engines that serve: all of them, or `engines`."""
        self.bring_up()
        router = Router(f"router-{policy}", engines or self.engines, "--policy", policy, *flags)
        try:
            yield router
        finally:
            router.stop()

    def stop(self) -> None:
        for engine in self.engines:
            engine.stop()


def skip_without_engines(pytestconfig: pytest.Config) -> None:
    """Skips what starts engines, unless the run is for that and they are installed."""
    if "engines" not in pytestconfig.option.markexpr:
        pytest.skip("starts two engines of 2 GB; run `make test-engines`, or pytest with `-m engines`")
    if (reason := missing()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def fleet(pytestconfig: pytest.Config) -> Iterator[Fleet]:
    skip_without_engines(pytestconfig)
    for log in LOGS.glob("*.log"):
        log.unlink()
    fleet = Fleet([Engine("engine-a"), Engine("engine-b")])
    try:
        yield fleet
    finally:
        fleet.stop()


@pytest.fixture
def print_table() -> Iterator[list[str]]:
    """Lines for the end of the run, and for a file beside the logs."""
    lines: list[str] = []
    yield lines
    TABLES.append("\n".join(lines))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.failed and {"fleet", "pair"} & set(getattr(item, "fixturenames", ())):
        for log in sorted(LOGS.glob("*.log")):
            last = log.read_text(errors="replace").splitlines()[-LINES:]
            report.sections.append((f"the end of {log}", "\n".join(last)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for table in TABLES:
        terminalreporter.write_line("")
        terminalreporter.write_line(table)
