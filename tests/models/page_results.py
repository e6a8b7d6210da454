"""The slow twin of cpp/shared_pool/page_results.h: a dictionary in order of use."""

from __future__ import annotations

MS = 1_000_000


class PageResults:
    def __init__(self, most: int) -> None:
        self.most = most
        self.entries: dict[bytes, tuple[str, int]] = {}  # state, and until when; least recently used first

    def find(self, page: bytes, now_ns: int) -> str:
        state, until_ns = self.entries.pop(page, ("unknown", now_ns))
        if now_ns >= until_ns:
            return "unknown"
        self.entries[page] = (state, until_ns)
        return state

    def store(self, page: bytes, state: str, now_ns: int) -> None:
        self.entries.pop(page, None)
        if len(self.entries) == self.most:
            self.entries.pop(next(iter(self.entries)))
        self.entries[page] = (state, now_ns + (200 if state == "absent" else 1000) * MS)
