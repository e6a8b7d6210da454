"""python/vllm_router/explanation.py and `Router.explain()`: what a dry run shows."""

import hashlib

import pytest

from vllm_router import Explanation, RankedWorker, Router

URLS = ["http://a:8000", "http://b:8000", "http://c:8000"]
SECRET = "the launch code is 0000"
BODY = {"model": "m", "messages": [{"role": "system", "content": SECRET}, {"role": "user", "content": "Hi"}]}


def explain(policy: str = "cache_aware", **request: object) -> Explanation:
    return Router(policy, URLS, seed=1).explain(**(request or {"body": BODY}))  # type: ignore[arg-type]


def test_what_was_derived_from_a_request_is_shown() -> None:
    """mending row 48: session key, prefix digest, length of the routing text, blocks."""
    router = Router("vllm_cache_aware", URLS, block_size=2)
    shown = router.explain(BODY, headers={"X-Session-ID": "ada"})
    assert shown.session_key == "header:x-session-id:ada"
    assert shown.prefix_digest == hashlib.sha256(b"m\0S" + SECRET.encode()).hexdigest()
    text = f"\x1esystem\x1f{SECRET}\x1euser\x1fHi"
    assert shown.text_bytes == len(text)
    assert shown.token_ids is None
    assert shown.blocks == len(text) // 8
    assert shown.prompt_tokens == -(-len(text) // 4)
    assert shown.reads == ("blocks", "prompt_tokens")
    assert (shown.unit, shown.matched, shown.total) == ("blocks", 0, shown.blocks)


def test_token_ids_are_counted() -> None:
    """mending row 48: of a prompt that is token ids their number."""
    shown = explain("auto", token_ids=list(range(40)))
    assert (shown.text_bytes, shown.token_ids, shown.blocks) == (None, 40, 2)
    assert shown.session_key is not None
    assert shown.session_key.startswith("request_hash:")


def test_a_request_of_nothing_has_nothing() -> None:
    shown = explain("consistent_hash", headers={})
    assert (shown.session_key, shown.prefix_digest, shown.text_bytes, shown.token_ids) == (None,) * 4
    assert shown.reason == "fallback"


@pytest.mark.parametrize(
    ("policy", "field"),
    [("auto", "cost"), ("prefix_aware", "limit"), ("cache_aware", "matched")],
)
def test_the_numbers_behind_the_choice(policy: str, field: str) -> None:
    """mending row 44: what the policy compares stands beside each worker."""
    shown = explain(policy)
    assert all(getattr(worker, field) is not None for worker in shown.workers)


def test_costs_of_auto_ascend_with_the_rank() -> None:
    """mending row 44: the first worker has the minimum of the cost."""
    router = Router("auto", URLS, seed=1)
    tickets = [
        router.select(prompt="x" * 4000, exclude=URLS[1:]),
        router.select(prompt="y", exclude=URLS[2:]),
    ]
    costs = [worker.cost for worker in router.explain(prompt="z" * 100).workers]
    assert None not in costs
    assert costs == sorted(costs)  # type: ignore[type-var]
    assert len(tickets) == 2


def test_workers_that_may_not_be_chosen_say_why() -> None:
    """mending row 44: unhealthy, draining, excluded and full workers are listed, without a rank."""
    router = Router("least_load", [*URLS, "http://d:8000"], max_worker_requests=1)
    router.set_healthy(URLS[0], False)
    router.drain_worker(URLS[1])
    ticket = router.select(prompt="x", exclude=["http://d:8000"])
    shown = router.explain(prompt="x", exclude=["http://d:8000"])
    assert ticket.worker_url == URLS[2]
    assert [worker.status for worker in shown.workers] == ["unhealthy", "draining", "full", "excluded"]
    assert {worker.rank for worker in shown.workers} == {None}
    assert shown.worker_url is None
    assert repr(shown).startswith("least_load: no worker can take the request\n")


def test_the_table_names_the_choice_and_holds_no_prompt() -> None:
    """mending row 44: a table for people, without content of the prompt."""
    shown = explain("cache_aware", body=BODY, headers={"X-Session-ID": "ada"})
    lines = repr(shown).splitlines()
    assert lines[0] == f"cache_aware would choose {shown.worker_url} (prefix_miss)"
    assert [line.split()[1] for line in lines[3:6]] == [worker.url for worker in shown.workers]
    assert "session key: header:x-session-id:ada" in lines
    assert "routing text *: 39 bytes" in lines
    for text in (repr(shown), shown._repr_html_(), repr(shown.workers)):
        assert "launch" not in text


def test_html_is_escaped() -> None:
    """mending row 44: whatever a client writes into a session key is text in a notebook."""
    shown = explain("consistent_hash", headers={"X-Session-ID": "<script>alert(1)</script>" * 10})
    html = shown._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert "(270 characters)" in html
    assert html.count("<tr>") == html.count("</tr>") == 1 + 3 + 5


def test_rows_are_tuples() -> None:
    """mending row 44: `pandas.DataFrame(explanation.workers)` is a table."""
    first = explain("random").workers[0]
    assert isinstance(first, RankedWorker)
    assert first._fields[:3] == ("rank", "url", "reason")


def test_arguments_are_checked_as_those_of_select() -> None:
    """mending row 44: the same errors as select()."""
    router = Router("least_load", URLS)
    with pytest.raises(TypeError, match="both body and prompt"):
        router.explain(BODY, prompt="x")
    with pytest.raises(TypeError, match="did you mean prompt"):
        router.explain(promt=SECRET)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"pass \['http://a:8000'\]"):
        router.explain(prompt="x", exclude=URLS[0])
