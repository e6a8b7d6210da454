"""python/vllm_router/router.py: names, options and what is made of them."""

import inspect
import json
import urllib.request

import pytest

import vllm_router
from tests.rows import for_each_row
from vllm_router import PolicyType, Router, UnusedOptionWarning, WorkerExistsError, WorkerInfo, _core
from vllm_router.launch_router import main
from vllm_router.router import policy_from_str
from vllm_router.router_args import BUILT_POLICIES, RouterArgs

URLS = ["http://w1:8000", "http://w2:8000"]


def test_the_default_policy_is_auto():
    assert Router().policy == Router(None).policy == RouterArgs().policy == "auto"
    assert repr(Router(worker_urls=URLS)) == "<Router auto, 2 workers>"
    assert repr(Router(worker_urls=URLS[:1])) == "<Router auto, 1 worker>"
    assert Router.from_args(RouterArgs()).policy == "auto"


@pytest.mark.parametrize("option", [{"cache_threshold": 0.3}, {"eviction_interval": 120}])
def test_an_option_of_cache_aware_chooses_it_as_before_it_ceased_to_be_the_default(option, caplog):
    assert Router(**option).policy == "cache_aware"
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("policy cache_aware is chosen because of --")
    caplog.clear()
    with pytest.warns(UnusedOptionWarning):
        assert Router("auto", **option | {"cache_threshold": 0.4}).policy == "auto"
    assert Router(block_size=32).policy == Router(auto_objective="ttft").policy == "auto"
    assert caplog.messages == []


@for_each_row("policy", BUILT_POLICIES)
def test_every_policy_that_is_built_can_be_named(policy):
    assert Router(policy).policy == policy
    assert Router(policy.replace("_", "-")).policy == policy
    assert Router(policy=policy.upper()).policy == policy


@pytest.mark.parametrize(
    ("alias", "policy"),
    [
        ("least_loaded", "least_load"),
        ("least-request", "least_load"),
        ("consistent_hashing", "consistent_hash"),
    ],
)
def test_aliases_mean_their_policy(alias, policy):
    assert Router(alias).policy == policy


@pytest.mark.parametrize("kind", PolicyType)
def test_a_policy_type_is_as_good_as_its_name(kind):
    assert Router(kind).policy == kind.value
    assert policy_from_str(kind.value) is kind
    assert policy_from_str(None) is None


def test_a_policy_that_is_not_offered_is_refused_alike_everywhere(capsys):
    with pytest.raises(ValueError, match="precise_cache_aware itself is not offered") as refused:
        Router("precise_cache_aware", URLS)
    with pytest.raises(SystemExit, match="2"):
        main(["--policy", "precise_cache_aware"])
    assert str(refused.value) in capsys.readouterr().err


def test_a_name_without_a_policy_type_is_a_key_error():
    with pytest.raises(KeyError, match="least_load"):
        policy_from_str("least_load")


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("least_lod", "did you mean least_load"),
        ("conistent_hash", "did you mean consistent_hash"),
        ("quantum", "one of random, round_robin"),
        ("precise_cache_aware", "kv_overlap"),
        ("", "policy is"),
    ],
)
def test_an_unknown_policy_is_answered_with_the_nearest(policy, says):
    with pytest.raises(ValueError, match=says):
        Router(policy)


def test_an_unknown_option_is_answered_with_the_nearest():
    with pytest.raises(TypeError, match=r"virtual_node .*did you mean virtual_nodes"):
        Router("consistent_hash", virtual_node=5)
    with pytest.raises(TypeError, match=r"prot is not a known setting; docs"):
        Router("consistent_hash", prot=5)


def test_serve_takes_options_of_the_server_only():
    router = Router(worker_urls=URLS)
    with pytest.raises(TypeError, match=r"treads is not a known setting; did you mean threads\?"):
        router.serve(treads=2)
    for name, value in (("policy", "random"), ("worker_urls", URLS), ("seed", 1)):
        with pytest.raises(TypeError, match=f"{name} is not an option of serve.* but of Router"):
            router.serve(**{name: value})
    with pytest.raises(ValueError, match=r"retry_max_retries is 0; .* between 1 and 1000"):
        router.serve(retry_max_retries=0)


@for_each_row(
    ("options", "says"),
    [
        ({"virtual_nodes": 0}, "virtual_nodes is 0; .* between 1 and 65536 .*default 160"),
        ({"virtual_nodes": 65537}, "65537"),
        ({"virtual_nodes": 1.5}, "whole number"),
        ({"hash_function": "md5"}, "furc, xxh3"),
        ({"hash_failover": "nxt"}, "did you mean next"),
        ({"hash_load_factor": 0.5}, "hash_load_factor is 0.5; .* 0 .* or a number between 1.0 and 10.0"),
        ({"hash_load_factor": 10.5}, "10.5"),
        ({"hash_load_factor": float("nan")}, "nan"),
        ({"hash_key_order": "mine"}, "seed, reference"),
        ({"hash_key_headers": "x-shop"}, "hash_key_headers"),
        ({"hash_key_headers": [f"x-{i}" for i in range(65)]}, "hash_key_headers has 65 names; at most 64"),
        ({"hash_key_fallback": "conversation"}, "opening, body"),
        ({"session_header_aliases": 1}, "true or false"),
        ({"fallback_policy": "consistent_hash"}, "fallback_policy is consistent_hash"),
        ({"intra_node_data_parallel_size": 0}, "between 1 and 4096"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "seed is"),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_limit(options, says):
    with pytest.raises(ValueError, match=says):
        Router("consistent_hash", URLS, **options)


def test_least_load_metric_is_checked():
    with pytest.raises(ValueError, match="drain_time is not implemented"):
        Router("least_load", least_load_metric="drain_time")
    assert Router("least_load", least_load_metric="tokens").policy == "least_load"


def test_tokens_come_first_when_least_load_is_told_so():
    for metric, chosen in (("requests", URLS[1]), ("tokens", URLS[0])):
        router = Router("least_load", URLS, least_load_metric=metric)
        small = [router.select(prompt="x", exclude=URLS[1:]) for _ in range(2)]
        large = router.select(prompt="x" * 40_000, exclude=URLS[:1])
        assert router.select().worker_url == chosen
        for ticket in [*small, large]:
            ticket.finish()


def test_an_option_of_another_policy_is_accepted_with_a_warning():
    with pytest.warns(
        UnusedOptionWarning, match="virtual_nodes has no effect on the policy random"
    ) as caught:
        router = Router("random", URLS, virtual_nodes=200)
    assert router.worker_urls == URLS
    assert [warning.filename for warning in caught] == [__file__], (
        "it points at the line that made the router"
    )


def test_options_that_the_policy_reads_are_taken_without_a_warning():
    Router(
        "consistent_hash",
        URLS,
        seed=2**64 - 1,
        virtual_nodes=10,
        hash_function="xxh3",
        hash_failover="first",
        hash_load_factor=1.25,
        hash_key_order="reference",
        hash_key_headers=["X-Shop"],
        session_header_aliases=False,
        hash_key_fallback="body",
        consistent_hash_compat=True,
        fallback_policy="random",
        intra_node_data_parallel_size=2,
    )


def test_a_bounded_load_overflows():
    router = Router("consistent_hash", URLS, hash_load_factor=1.0)
    tickets = [router.select(headers={"x-session-id": "s"}) for _ in range(4)]
    assert [ticket.reason for ticket in tickets] == ["session_hash", "overflow", "session_hash", "overflow"]
    assert {ticket.worker_url for ticket in tickets} == set(URLS)


def test_a_request_without_a_key_goes_to_the_fallback_policy():
    router = Router("consistent_hash", URLS, fallback_policy="round_robin")
    tickets = [router.select() for _ in range(4)]
    assert [ticket.worker_url for ticket in tickets] == URLS * 2
    assert {ticket.reason for ticket in tickets} == {"fallback"}


def test_worker_urls_are_any_collection_but_not_one_string():
    assert Router(worker_urls=(url for url in URLS)).worker_urls == URLS
    with pytest.raises(TypeError, match=r"pass \['http://w1:8000'\]"):
        Router("random", URLS[0])
    with pytest.raises(WorkerExistsError, match="http://w1:8000"):
        Router("random", [URLS[0], URLS[0] + "/"])
    with pytest.raises(ValueError, match="not-a-url"):
        Router("random", ["not-a-url"])


def test_workers_are_named_tuples():
    (worker,) = Router("random", URLS[:1]).workers
    assert worker == WorkerInfo(URLS[0], True, False, 0, 1.0, None, 0, 0, 0, 0, 0)
    assert worker.url == URLS[0]
    assert worker.selections == 0


def test_from_args_takes_fleet_policy_and_options():
    args = RouterArgs(worker_urls=URLS, policy="consistent_hash", hash_failover="first", seed=3)
    router = Router.from_args(args)
    assert (router.policy, router.worker_urls) == ("consistent_hash", URLS)
    ticket = router.select(headers={"x-session-id": "sess-0"}, exclude=[])
    assert ticket.reason == "session_hash"


@pytest.mark.parametrize("policy", ["random", "consistent_hash", "vllm_cache_aware", "prefix_aware"])
def test_from_args_warns_of_no_default(policy):
    assert Router.from_args(RouterArgs(worker_urls=URLS, policy=policy)).policy == policy


def test_a_subclass_may_add_to_the_router():
    class Counting(Router):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.count = 0

        def select(self, *arguments, **request):
            self.count += 1
            return super().select(*arguments, **request)

    router = Counting("round_robin", URLS)
    assert [router.select().worker_url for _ in range(2)] == URLS
    assert router.count == 2


def test_select_has_no_python_frame():
    assert "select" not in vars(Router)
    assert not inspect.isfunction(Router.select)


@for_each_row("name", vllm_router.__all__)
def test_public_names_are_one_dot_deep(name):
    assert getattr(vllm_router, name) is not None
    assert name in dir(vllm_router)


def test_serve_sets_up_the_log_that_it_is_told_to(tmp_path, capfd):
    def served(**log):
        with Router().serve(port=0, **log) as server:
            urllib.request.urlopen(server.url + "/liveness", timeout=30).close()
        return capfd.readouterr().out

    _core.configure_log()
    try:
        assert '"GET /liveness" 200' in served()
        assert served(log_level="warn") == ""
        assert served() == ""  # the log is the process's, and stays as it was
        assert json.loads(served(log_level="info", log_format="json", log_dir=str(tmp_path)))["status"] == 200
        _core.flush_log()
        (file,) = tmp_path.iterdir()
        assert json.loads(file.read_text().splitlines()[-1])["path"] == "/liveness"
        with pytest.raises(ValueError, match="cannot be written"):
            Router().serve(log_dir=str(file))
    finally:
        _core.configure_log()
