"""Conversations whose arms tests know: names of sessions under a secret that they choose."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vllm_router import _core_testing as testing

SECRET = "a secret of the tests"
PERCENT = 20


def secret_file(folder: Path) -> str:
    path = folder / "holdout"
    path.write_text(SECRET)
    return str(path)


def sessions(arm: str) -> Iterator[str]:
    """Names of sessions of that arm, one after the other, at PERCENT."""
    arms = testing.ArmChooser(SECRET, PERCENT)
    for number in range(1_000_000):
        name = f"s{number}"
        if arms.of(testing.conversation_of([("x-session-id", name)])) == arm:
            yield name


def session(arm: str) -> str:
    return next(sessions(arm))
