"""How soon the dashboard shows something: headless Chromium, in front of a router with 100 workers.

    PYTHONPATH=build/release/python python -m benchmarks.first_paint
    ... benchmarks.first_paint --workers 100 --rounds 15

Chromium comes from Debian (`make test-browser` installs it and Selenium). Each round opens the page anew,
without a cache, which the router forbids, in a browser that has been used before. All times are milliseconds
since the navigation began, by the page's own clock: *first paint* is the first pixel, *contentful* the first
text, *numbers* the first tick of the events, with all workers' rows.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence

from benchmarks import own_endpoints
from benchmarks.own_endpoints import free_port, raise_file_limit, running, url_of, wait_for
from tests.dashboard.browser import Browser, missing

COLUMNS = ("what", "median, ms", "best", "worst")
PAINTS = {"first paint": "first-paint", "contentful": "first-contentful-paint"}
# Runs before the page's own script, and looks once a frame for a number.
NOTE_NUMBERS = """
    const look = () => {
      if (document.querySelector('#tiles .big') !== null) window.numbersAt = performance.now();
      else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
"""
# Gives the times once there are all.
WAIT = """
    const done = arguments[arguments.length - 1];
    const look = () => {
      const paints = performance.getEntriesByType('paint').map((each) => [each.name, each.startTime]);
      if (window.numbersAt === undefined || paints.length < 2) requestAnimationFrame(look);
      else done([...paints, ['numbers', window.numbersAt]]);
    };
    look();
"""


def measure(browser: Browser, url: str) -> dict[str, float]:
    """One opening of the page."""
    browser.driver.get("about:blank")
    browser.open(url)
    found = dict(browser.driver.execute_async_script(WAIT))
    times = {name: float(found[entry]) for name, entry in PAINTS.items()}
    return {**times, "numbers": float(found["numbers"])}


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a row for each of the three."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args(argv)
    if (reason := missing()) is not None:
        print(reason, file=sys.stderr)
        return 2
    raise_file_limit()
    rounds: list[dict[str, float]] = []
    with running([sys.executable, own_endpoints.__file__, "--serve"]) as workers:
        assert workers.stdout is not None
        worker_port = int(workers.stdout.readline())
        port = free_port()
        command = [
            sys.executable, "-m", "vllm_router", "--port", str(port), "--host", "127.0.0.1",
            "--policy", "auto", "--health-check-interval-secs", "0", "--kv-events", "off",
            "--model-refresh-secs", "0", "--log-level", "error", "--prometheus-port", str(free_port()),
            "--worker-urls", *[url_of(number, worker_port) for number in range(args.workers)],
        ]  # fmt: skip
        with running(command) as router, Browser() as browser:
            wait_for(router, port)
            browser.size(1280, 900)
            browser.command("Page.addScriptToEvaluateOnNewDocument", source=NOTE_NUMBERS)
            url = f"http://127.0.0.1:{port}/dashboard"
            measure(browser, url)  # what a browser does once in its life
            rounds = [measure(browser, url) for _ in range(args.rounds)]
    print(" | ".join(COLUMNS))
    for name in rounds[0]:
        times = [each[name] for each in rounds]
        figures = (statistics.median(times), min(times), max(times))
        print(" | ".join((name, *(f"{figure:.0f}" for figure in figures))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
