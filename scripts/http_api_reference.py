"""Writes the lists of paths in docs/reference/http_api.md: python scripts/http_api_reference.py.

They are those of a built package: the table of routes, which the endpoints of the features have joined. What
stands around them is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from vllm_router import _core_testing as testing

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "http_api.md"
PLACE = re.compile(r"(?<=<!-- routes -->\n\n).*?(?=\n<!-- end of routes -->)", re.DOTALL)
ACCESS = {"anybody": "no key", "client": "clients", "admin": "admins", "admin port": "admins, without a key"}


def render(page: str) -> str:
    """The page with the paths of this build."""
    routes = [route for route in testing.routes() if route["label"] != "other"]
    own = [route for route in routes if route["own"]]
    lists = "| ids begin with | paths that go to a worker |\n|---|---|\n"
    for prefix in dict.fromkeys(route["id_prefix"] for route in routes):
        lists += (
            f"| `{prefix}` | {_paths(r for r in routes if not r['own'] and r['id_prefix'] == prefix)} |\n"
        )
    lists += "\n| for | methods | paths that the router serves |\n|---|---|---|\n"
    for access, methods in sorted(
        dict.fromkeys((route["access"], route["allow"]) for route in own), key=_order
    ):
        paths = _paths(r for r in own if (r["access"], r["allow"]) == (access, methods))
        lists += f"| {ACCESS[access]} | {methods} | {paths} |\n"
    return PLACE.sub(lambda _: lists, page)


def _paths(routes: Iterable[dict[str, str]]) -> str:
    return ", ".join(f"`{route['label']}`" for route in routes)


def _order(group: tuple[str, str]) -> tuple[int, str]:
    return list(ACCESS).index(group[0]), group[1]


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
