"""vllm_router.Router with prefill and decode workers."""

import pytest

from vllm_router import Router, WorkerExistsError
from vllm_router.discovery import WorkerSpec
from vllm_router.errors import UnusedOptionWarning
from vllm_router.router_args import RouterArgs

P, D, E = (f"http://{host}:8000" for host in "pde")


def types(router):
    return {worker.url: worker.worker_type for worker in router.workers}


def test_urls_of_stages_make_a_fleet_of_two():
    router = Router("round_robin", prefill_urls=[(P, 8998)], decode_urls=[D, E])
    assert types(router) == {P: "prefill", D: "decode", E: "decode"}
    assert types(Router(prefill_urls=[P, "http://q:1"])) == {P: "prefill", "http://q:1": "prefill"}
    assert types(Router(worker_urls=[P])) == {P: "regular"}


def test_select_chooses_the_prefill_worker():
    router = Router("random", prefill_urls=[P], decode_urls=[D, E], seed=1)
    for _ in range(20):
        with router.select(prompt="x") as ticket:
            assert ticket.worker_url == P
    assert router.explain(prompt="x").worker_url == P
    assert {router.select_batch(["x"] * 8)[i].worker_url for i in range(8)} == {P}


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ({}, "auto"),
        ({"policy": "round_robin"}, "round_robin"),
        ({"policy": "round_robin", "prefill_policy": "cache_aware"}, "cache_aware"),
        ({"policy": "cache_aware", "decode_policy": "random"}, "cache_aware"),
    ],
)
def test_the_policy_of_a_router_is_that_of_its_prefill_workers(policies, expected):
    assert Router(prefill_urls=[P], decode_urls=[D], **policies).policy == expected


def test_workers_join_with_their_type():
    router = Router("random", decode_urls=[D])
    router.add_worker(P, worker_type="prefill", bootstrap_port=8998)
    assert types(router) == {D: "decode", P: "prefill"}
    with pytest.raises(ValueError, match="has no stage"):
        router.add_worker(E)
    with pytest.raises(
        ValueError, match='worker_type is "encode"; it must be one of regular, prefill, decode'
    ):
        router.add_worker(E, worker_type="encode")
    with pytest.raises(WorkerExistsError):
        router.add_worker(P, worker_type="decode")
    with pytest.raises(ValueError, match="this fleet has no stages"):
        Router().add_worker(P, worker_type="prefill")


def test_a_worker_of_a_stage_may_have_a_group():
    router = Router("random", decode_urls=[D])
    router.add_worker(P, worker_type="prefill", kv_group="a")
    with pytest.raises(ValueError, match="the kv_group of worker http://e:8000 has 129 bytes"):
        router.add_worker("http://e:8000", worker_type="prefill", kv_group="g" * 129)
    with pytest.raises(ValueError, match="has a kv_group, and no stage"):
        Router().add_worker(P, kv_group="a")


def test_sources_declare_types():
    router = Router("random", prefill_urls=[P])
    specs = [WorkerSpec(D, worker_type="decode"), WorkerSpec(E, worker_type="prefill", bootstrap_port=1)]
    assert router.reconcile("mine", specs).joined == [D, E]
    assert types(router) == {P: "prefill", D: "decode", E: "prefill"}
    with pytest.raises(ValueError, match="has no stage"):
        router.reconcile("mine", [WorkerSpec(D)])
    with pytest.raises(ValueError, match="in the list of mine as decode, but static declares it as prefill"):
        router.reconcile("mine", [WorkerSpec(P, worker_type="decode")])


@pytest.mark.parametrize(
    ("values", "error", "text"),
    [
        ({"worker_type": "encode"}, ValueError, "worker_type is encode; it must be one of regular"),
        ({"bootstrap_port": "8998"}, TypeError, "bootstrap_port is 8998; it must be an int or None"),
        ({"bootstrap_port": 0}, ValueError, "bootstrap_port is 0; it must be between 1 and 65535"),
    ],
)
def test_a_spec_with_a_wrong_role_is_refused(values, error, text):
    with pytest.raises(error, match=text):
        WorkerSpec(P, **values)


def test_settings_make_the_same_router():
    args = RouterArgs(
        vllm_pd_disaggregation=True,
        prefill_urls=[(P, None)],
        decode_urls=[D],
        worker_urls=[E],
        decode_policy="power_of_two",
    )
    assert types(Router.from_args(args)) == {P: "prefill", D: "decode"}
    args.vllm_pd_disaggregation = False
    assert types(Router.from_args(args)) == {E: "regular"}


def test_an_option_that_either_policy_reads_is_used():
    Router("random", prefill_urls=[P], decode_urls=[D], decode_policy="cache_aware", max_tree_size=10_000)
    with pytest.warns(UnusedOptionWarning, match="has no effect on the policy random"):
        Router("random", prefill_urls=[P], decode_urls=[D], max_tree_size=10_000)


def test_a_decode_worker_that_holds_the_prompt_needs_no_prefill():
    router = Router("random", prefill_urls=[P], decode_urls=[D, E], pd_bypass_uncached_tokens=16)
    prompt = "A prompt that is long enough to fill blocks. " * 20
    assert router.select_bypass(prompt=prompt) is None
    with router.select_bypass(prompt="Hello!") as ticket:
        assert ticket.worker_url in (D, E)
        assert ticket.matched == 0
    twice = Router("random", prefill_urls=[P], decode_urls=[D, E], pd_bypass_uncached_tokens=1000)
    with twice.select_bypass(prompt=prompt) as ticket:
        holder = ticket.worker_url
    with twice.select_bypass(prompt=prompt) as ticket:
        assert (ticket.worker_url, ticket.reason) == (holder, "prefix_hit")
        assert ticket.matched == 14


def test_nothing_bypasses_prefill_unless_it_is_set():
    assert Router("random", prefill_urls=[P], decode_urls=[D]).select_bypass(prompt="x") is None
    assert Router("random", [P]).select_bypass(prompt="x") is None


def test_a_secret_in_a_url_of_a_stage_is_not_shown():
    with pytest.raises(ValueError, match="user name") as caught:
        Router(prefill_urls=["http://user:secret@p:8000"])
    assert "secret@" not in str(caught.value)
