"""A viewer of the dashboard: a client that reads events.

viewer = Viewer(harness.client(router))
tick = viewer.until("tick")
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.fakes.harness import Client
from tests.fakes.wire import Message, request

EVENTS = "/dashboard/events"


class Viewer:
    def __init__(self, client: Client, query: str = "", *fields: tuple[str, str]) -> None:
        self.client = client
        client.send(request("GET", EVENTS + query, *fields))
        self.head: Message = client.read_head()
        self._text = ""
        self.comments = 0

    def next(self) -> tuple[str, dict[str, Any]]:
        """The next event; comments are counted."""
        while True:
            event, end, rest = self._text.partition("\n\n")
            if not end:
                chunk = self.client.read_chunk()
                if not chunk:
                    raise EOFError
                self._text += chunk.decode()
                continue
            self._text = rest
            if event.startswith(":"):
                self.comments += 1
                continue
            name, data = event.split("\n")
            assert name.startswith("event: ")
            assert data.startswith("data: ")
            return name[7:], json.loads(data[6:])

    def until(self, name: str, wanted: Callable[[dict[str, Any]], bool] = lambda _: True) -> dict[str, Any]:
        """The next event of that name that is wanted."""
        while True:
            found, data = self.next()
            if found == name and wanted(data):
                return data

    def has_ended(self) -> bool:
        """Reads to the end of the body, which has to come."""
        try:
            while True:
                self.next()
        except EOFError:
            return True
