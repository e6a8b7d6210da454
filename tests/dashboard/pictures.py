"""Takes the pictures of the dashboard: `python -m tests.dashboard.pictures`.

The one that the README shows goes to docs/images, the others to build/browser: wide and narrow, light and
dark, with and without trouble.
"""

from __future__ import annotations

from pathlib import Path

from tests.dashboard.browser import Browser, missing
from tests.dashboard.played_router import Events, PlayedRouter, healthy, large, trouble

ROOT = Path(__file__).parents[2]
SHOWN = ROOT / "docs" / "images" / "dashboard.png"
OTHERS = ROOT / "build" / "browser"
SHOWN_HEIGHT = 800  # pixels; what follows are more decisions


def take(browser: Browser, events: Events, path: Path, width: int, *, dark: bool, height: int = 0) -> None:
    """One picture with the newest decision opened; `height` 0: all of the page."""
    with PlayedRouter(events) as router:
        browser.size(width, height or 900)
        browser.open(router.url, dark=dark)
        browser.wait(lambda: "points" in browser.text("#saved"), "the page is not complete")
        if not height:
            browser.click("#decisions .decision")
            browser.size(width, int(browser.run("return document.documentElement.scrollHeight")))
        browser.picture(path, whole=not height)
        print(path.relative_to(ROOT), path.stat().st_size, "bytes")


def main() -> None:
    """Takes all."""
    if (reason := missing()) is not None:
        raise SystemExit(reason)
    with Browser() as browser:
        take(browser, healthy(), SHOWN, 1280, dark=False, height=SHOWN_HEIGHT)
        for name, events in (("healthy", healthy), ("trouble", trouble), ("large", large)):
            for width in (1280, 360):
                for dark in (False, True):
                    scheme = "dark" if dark else "light"
                    take(browser, events(), OTHERS / f"{name}_{width}_{scheme}.png", width, dark=dark)


if __name__ == "__main__":
    main()
