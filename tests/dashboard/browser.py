"""Headless Chromium, by Debian's chromium-driver.

with Browser() as browser:
    browser.size(360, 800)
    browser.open(url, dark=True)
    browser.text("#sentence")
"""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.fakes.wire import eventually

SWITCHES = [
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-sandbox",  # it has none as root
    "--js-flags=--expose-gc",
    "--enable-precise-memory-info",
]


def missing() -> str | None:
    """What is not installed, or None."""
    for program, package in (("chromium", "chromium"), ("chromedriver", "chromium-driver")):
        if shutil.which(program) is None:
            return f"{program} is missing; `make test-browser` installs Debian's {package}"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is missing; `make test-browser` installs it"
    return None


class Browser:
    """Its constructor starts Chromium with a profile of its own."""

    def __init__(self) -> None:
        from selenium import webdriver

        self._profile = tempfile.TemporaryDirectory(prefix="dashboard-", ignore_cleanup_errors=True)
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        for switch in [*SWITCHES, f"--user-data-dir={self._profile.name}"]:
            options.add_argument(switch)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
        self.driver = webdriver.Chrome(options, service)

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.driver.quit()
        self._profile.cleanup()

    def command(self, name: str, **parameters: Any) -> Any:
        """One of the DevTools protocol."""
        return self.driver.execute_cdp_cmd(name, parameters)

    def size(self, width: int, height: int) -> None:
        """Of the page. A window is never narrower than 500 pixels, so it is the device that is."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )

    def open(self, url: str, *, dark: bool = False) -> None:
        """Shows a page, and waits until it has a number."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.driver.get(url)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function body returns in the page."""
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str) -> str:
        """What the first element shows; empty if there is none."""
        found = self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)
        return str(found).replace("\u00a0", " ")

    def texts(self, selector: str) -> list[str]:
        """What each element shows."""
        found = self.run(
            "return [...document.querySelectorAll(arguments[0])].map(e => e.innerText)", selector
        )
        return [str(text).replace("\u00a0", " ") for text in found]

    def wait(self, condition: Callable[[], bool], what: str, patience: float = 30) -> None:
        """Until it holds."""
        eventually(condition, what, patience)

    def click(self, selector: str) -> None:
        """The first element, in one step, as rows may be replaced at any time."""
        self.run("document.querySelector(arguments[0]).click()", selector)

    def press(self, keys: str) -> None:
        """Keys for whatever has the focus."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(keys).perform()

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """A screenshot of all of the page, as PNG."""
        made = self.command("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(made["data"]))

    def messages(self) -> list[str]:
        """Of the page's console, since the last call."""
        return [f"{entry['level']} {entry['message']}" for entry in self.driver.get_log("browser")]

    def requested(self) -> list[str]:
        """URLs that the page asked for, since the last call; those of Chromium itself are not among them."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return found

    def heap(self) -> int:
        """Bytes of JavaScript that are in use, after a collection."""
        self.command("HeapProfiler.collectGarbage")
        with contextlib.suppress(KeyError):
            return int(self.command("Runtime.getHeapUsage")["usedSize"])
        return 0
