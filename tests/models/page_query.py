"""The slow twin of cpp/shared_pool/page_query.h: looks at all that is known for each request."""

from __future__ import annotations

Key = tuple[int, str]  # page, suffix

GROUP_KEYS = 64
MOST_IN_FLIGHT = 4


class PageQuery:
    def __init__(
        self, pages: int, suffixes: list[str], trailing: list[str], trailing_pages: int, all_keys: bool
    ) -> None:
        self.pages, self.suffixes = pages, suffixes
        self.trailing, self.trailing_pages, self.all_keys = trailing, trailing_pages, all_keys
        self.given: dict[int, str] = {}  # states known before
        self.there: dict[Key, bool] = {}  # responses to what was asked of pages
        self.edges: dict[int, dict[Key, bool | None]] = {}  # and of edges, by page; None: no response yet
        # A key, and the page whose edge it belongs to.
        self.in_flight: dict[int, list[tuple[int | None, Key]]] = {}
        self.backlog: list[tuple[int | None, Key]] = []  # of the group, or the edges, that was begun last
        self.begun = 0
        self.failed = self.in_edges = False
        self.number = 0

    def know(self, page: int, state: str) -> None:
        self.given[page] = state

    def _keys(self, page: int) -> list[Key]:
        return [(page, suffix) for suffix in (self.suffixes if self.all_keys else self.suffixes[:1])]

    def state(self, page: int) -> str:
        """As `know()` has it, or by the responses."""
        if page in self.edges and all(there is not None for there in self.edges[page].values()):
            return "whole" if all(self.edges[page].values()) else "absent"
        if self.given.get(page, "unknown") != "unknown":
            return self.given[page]
        told = [self.there.get(key) for key in self._keys(page)]
        if None in told:
            return "unknown"
        if not all(told):
            return "absent"
        return "whole" if len(told) == len(self.suffixes) and not self.trailing else "first"

    def ranges(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for page in range(self.pages):
            if self.state(page) in ("first", "whole"):
                begin = found.pop()[0] if found and found[-1][1] == page else page
                found.append((begin, page + 1))
        return found

    def _groups(self) -> list[range]:
        size = max(1, GROUP_KEYS // len(self.suffixes)) if self.all_keys else GROUP_KEYS
        return [range(at, min(at + size, self.pages)) for at in range(0, self.pages, size)]

    def _stopped(self) -> bool:
        """One of the groups that were begun is known, without a hit."""
        states = [[self.state(page) for page in group] for group in self._groups()[: self.begun]]
        return self.failed or any(set(group) == {"absent"} for group in states)

    def next(self) -> tuple[int, list[Key]] | None:
        if len(self.in_flight) == MOST_IN_FLIGHT:
            return None
        while not self.backlog:
            if not self.in_edges and not self._stopped() and self.begun < len(self._groups()):
                group = self._groups()[self.begun]
                self.begun += 1
                unknown = [page for page in group if self.state(page) == "unknown"]
                self.backlog = [(None, key) for page in unknown for key in self._keys(page)]
            elif self.in_flight or self.in_edges or self.failed:
                return None
            else:
                self.in_edges = True
                for begin, end in self.ranges():
                    if self.state(end - 1) == "whole":
                        continue
                    known = len(self._keys(0))
                    wanted = [(end - 1, suffix) for suffix in self.suffixes[known:]]
                    for page in range(end - min(self.trailing_pages, end - begin), end):
                        wanted += [(page, suffix) for suffix in self.trailing]
                    if wanted:
                        self.edges[end - 1] = dict.fromkeys(wanted)
                        self.backlog += [(end - 1, key) for key in wanted]
        sent, self.backlog = self.backlog[:GROUP_KEYS], self.backlog[GROUP_KEYS:]
        self.in_flight[self.number] = sent
        self.number += 1
        return self.number - 1, [key for _, key in sent]

    def take(self, number: int, there: list[bool]) -> None:
        for (edge, key), is_there in zip(self.in_flight.pop(number), there, strict=True):
            if edge is None:
                self.there[key] = is_there
            else:
                self.edges[edge][key] = is_there

    def fail(self, number: int) -> None:
        self.in_flight.pop(number)
        self.backlog = []
        self.failed = True
