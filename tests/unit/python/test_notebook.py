"""python/vllm_router: what a notebook or a prompt shows of objects, and what a wrong call is told."""

import copy
import inspect
import pickle
import types
import warnings

import numpy as np
import pytest

import vllm_router
import vllm_router.replay
from tests.rows import for_each_row
from vllm_router import Batch, BlockCacheTracker, Router, RouterArgs, Ticket, hash_blocks

URLS = ["http://a:8000", "http://b:8000"]


# What is shown


def test_workers_are_a_list_that_a_notebook_shows_as_a_table() -> None:
    router = Router("least_load", ["ray://<b>x</b>", "ray://y"])
    ticket = router.select(prompt="x" * 400)
    assert isinstance(router.workers, list)
    assert router.workers == [*router.workers]
    for shown in (router, router.workers):
        html = shown._repr_html_()  # type: ignore[attr-defined]
        assert html.count("<tr>") == html.count("</tr>") == 1 + 2
        assert "<th>queued_prefill_tokens</th>" in html
        assert "<td>100</td>" in html
        assert "ray://&lt;b&gt;x&lt;/b&gt;" in html
    assert "<p>Router least_load, 2 workers</p>" in router._repr_html_()
    ticket.finish()


def test_a_batch_shows_its_first_rows() -> None:
    router = Router("auto", URLS)
    batch = router.select_batch(["x" * 640] * 23)
    html = batch._repr_html_()
    assert "<p>Batch of 23, 23 open</p>" in html
    assert html.count("<tr>") == 1 + 20 + 1
    assert "<td>3 more rows</td>" in html
    assert "<td>lowest_cost</td><td>0</td><td>10</td><td>blocks</td>" in html
    assert batch.finish() == 23  # showing it took no ticket out
    assert router.select_batch([])._repr_html_().count("<tr>") == 1


def test_what_a_ticket_explains_has_its_lines_at_a_prompt() -> None:
    ticket = Router("auto", URLS).select(prompt="x", explain=True)
    text = ticket.explain()
    assert isinstance(text, str)
    assert repr(text) == text
    assert len(text.splitlines()) > 3
    assert pickle.loads(pickle.dumps(text)) == text


def test_settings_show_what_differs_from_the_defaults() -> None:
    assert repr(RouterArgs()) == "RouterArgs()"
    assert repr(RouterArgs(policy="random", port=80)) == "RouterArgs(port=80, policy='random')"


def test_a_server_that_has_stopped_says_so() -> None:
    with Router("random", URLS).serve(log_level="error") as server:
        assert repr(server) == f"<Server {server.url}>"
    assert repr(server) == f"<Server {server.url} stopped>"


def test_completion_offers_public_names_alone() -> None:
    strangers = set(dir(vllm_router)) - set(vllm_router.__all__)
    assert all(isinstance(getattr(vllm_router, name), types.ModuleType) for name in strangers)


def test_the_constructor_says_nothing_of_internal_functions() -> None:
    assert inspect.getdoc(Router.__init__) == "The arguments are those of the class."


# What a wrong call says


@for_each_row(
    ("call", "error", "says"),
    [
        (lambda: Ticket(), TypeError, r"made by Router.select\(\)"),
        (lambda: Batch(3), TypeError, r"made by Router.select_batch\(\)"),
        (lambda: Router(URLS), TypeError, r"policy is of type list; .* URLs of workers come as worker_urls="),
        (lambda: Router("auto", 3), TypeError, "worker_urls is 3; it must be a list of URLs"),
        (lambda: Router("auto", [3]), TypeError, "worker_urls holds 3; it must hold URLs as str"),
        (lambda: Router("auto", [(URLS[0], 2.0)]), TypeError, "pass a mapping of URLs to weights"),
        (lambda: Router(worker_url=URLS), TypeError, "did you mean worker_urls"),
        (lambda: Router(workers=URLS), TypeError, "did you mean worker_urls"),
        (lambda: copy.copy(Router("auto")), TypeError, r"a Router belongs to one process"),
        (lambda: pickle.dumps(Router("auto")), TypeError, r"a Router belongs to one process"),
        (lambda: vllm_router.replay.run("chat"), TypeError, r"trace is of type str; .*generate\("),
        (
            lambda: vllm_router.replay.run(vllm_router.replay.generate("chat", size=5), ["auto"], 3),
            TypeError,
            r"fleet is of type int; .* Fleet\(workers=3\)",
        ),
    ],
)
def test_a_wrong_first_call_says_what_to_write_instead(call, error, says) -> None:
    with pytest.raises(error, match=says):
        call()


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ({"messages": ["hello"]}, "messages holds a str; each message is a dict with role and content"),
        ({"messages": [{"role": "user", "content": "x"}, None]}, "messages holds a NoneType"),
        ({"messages": [[{"role": "user", "content": "x"}]]}, "messages holds a list"),
        ({"prompt": "x", "model": 3}, "model is of type int; it must be str or bytes, or None"),
    ],
)
def test_a_request_of_the_wrong_form_is_a_type_error(request_, says) -> None:
    router = Router("auto", URLS)
    with pytest.raises(TypeError, match=says):
        router.select(**request_)
    with pytest.raises(TypeError, match=says):
        router.explain(**request_)
    assert [worker.load for worker in router.workers] == [0, 0]


def test_a_prompt_in_the_place_of_the_body_is_warned_of() -> None:
    """No prompt is found there, so nothing would ever match."""
    router = Router("auto", URLS)
    with pytest.warns(UserWarning, match="body is a str that is no JSON object.* prompt=") as caught:
        assert router.select("Tell me about rivers").reason == "fallback"
    assert [warning.filename for warning in caught] == [__file__]
    assert "rivers" not in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        router.select(' {"prompt": "x"}')
        router.select("")
        router.select(b"what a client has sent")
        Router("random", URLS).select("nothing is read")
        Router("consistent_hash", URLS).select("hashed as it is")
        with pytest.raises(UserWarning):
            router.select("Tell me about rivers")
    assert [worker.load for worker in router.workers] == [0, 0]


def test_finish_takes_names_alone() -> None:
    with pytest.raises(TypeError, match="no arguments by position and got 1; give them by name: status"):
        Router("random", URLS).select().finish(200)  # type: ignore[call-arg, misc]


# What is taken


def test_a_header_without_a_value_is_none() -> None:
    router = Router("consistent_hash", URLS)
    for missing in (None, float("nan")):
        shown = router.explain(prompt="x", headers={"X-Session-ID": missing})  # type: ignore[dict-item]
        assert shown == router.explain(prompt="x")


def test_worker_urls_may_have_weights() -> None:
    router = Router("auto", {URLS[0]: 1, URLS[1]: 2.5})
    assert [(worker.url, worker.weight) for worker in router.workers] == [(URLS[0], 1.0), (URLS[1], 2.5)]
    with pytest.raises(ValueError, match=r"between 0\.01 and 100"):
        Router("auto", {URLS[0]: 0})


@pytest.mark.parametrize("whole", [int, np.int64, np.uint16, np.array])
def test_numbers_of_blocks_may_be_those_of_numpy(whole) -> None:
    router = Router("auto", URLS)
    router.set_cache(URLS[0], block_size=whole(16), blocks=whole(4))
    assert hash_blocks(range(64), block_size=whole(32)).shape == (2,)
    tracker = BlockCacheTracker(whole(16), max_blocks_per_worker=whole(2))
    tracker.record_request(range(64), "w")
    assert (tracker.block_count("w"), tracker.evict_worker("w", whole(1))) == (2, 1)
    for wrong in (16.0, "16", None):
        with pytest.raises(TypeError, match="block_size is of type"):
            BlockCacheTracker(wrong)
