"""Scrapes of threads that a test counts for. Workers here are names; nothing listens behind them."""

from tests.fakes.prometheus_text import parse
from vllm_router import _core_testing as testing

MS = 1_000_000
A, B = "http://a:8000", "http://b:8000@1"
CHAT, EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"


def worker(router, url=A):
    return testing.WorkerHandle.of(router, url)


def exchange(handle=None, **more):
    """A streamed chat: head at 1 s; then, ms by ms, sent, answered, first byte, end."""
    fields = {
        "head_ns": 1000 * MS,
        "body_ns": 1000 * MS,
        "sent_ns": 1001 * MS,
        "answered_ns": 1002 * MS,
        "first_body_ns": 1003 * MS,
        "end_ns": 1004 * MS,
        "route": CHAT,
        "status": 200,
        "stream": True,
    }
    if handle is not None:
        fields |= {"worker": handle, "attempts": 1, "reason": "round_robin"}
    return fields | more


def page_of(lanes):
    return {name.removeprefix("vllm_router_"): family for name, family in parse(lanes.text()).items()}
