"""Followed: a source in a thread, and what it has declared.

seen = Followed()
seen.start(KubernetesSource(options))
seen.until_urls("http://10.0.0.1:8000")
seen.until_error("forbidden")
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from tests.fakes.wire import PATIENCE
from vllm_router.discovery import Listing, Source, SourceError, WorkerSpec


def urls(listing: Listing) -> list[str]:
    """Of the workers of a list."""
    assert listing.workers is not None
    return [one.url for one in listing.workers]


class Followed:
    """A source in a thread, and what it has declared."""

    def __init__(self) -> None:
        self.listings: list[Listing] = []
        self.times: list[float] = []  # of the listings, by time.monotonic()
        self.errors: list[SourceError] = []
        self.changed = threading.Condition()

    def start(self, source: Source) -> None:
        self.source: Any = source
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while True:
            try:
                listing = self.source.look()
            except SourceError as error:
                if error.kind == "closed":
                    return
                with self.changed:
                    self.errors.append(error)
                    self.changed.notify_all()
                continue
            with self.changed:
                self.listings.append(listing)
                self.times.append(time.monotonic())
                self.changed.notify_all()

    def until(self, condition: Callable[[], bool], patience: float = PATIENCE) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, patience), (self.listings[-3:], self.errors[-3:])

    def until_urls(self, *expected: str) -> Listing:
        self.until(lambda: bool(self.listings) and urls(self.listings[-1]) == list(expected))
        return self.listings[-1]

    def until_worker(self, url: str, condition: Callable[[WorkerSpec], bool]) -> WorkerSpec:
        """The newest list has this worker, and the condition holds for it."""
        self.until(lambda: any(condition(one) for one in self._newest() if one.url == url))
        return next(one for one in self._newest() if one.url == url)

    def until_error(self, kind: str, patience: float = PATIENCE) -> SourceError:
        self.until(lambda: any(error.kind == kind for error in self.errors), patience)
        return next(error for error in self.errors if error.kind == kind)

    @property
    def deleted(self) -> list[str]:
        return [url for listing in self.listings for url in listing.deleted]

    def _newest(self) -> list[WorkerSpec]:
        return list(self.listings[-1].workers or ()) if self.listings else []
