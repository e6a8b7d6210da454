"""The endpoint picker protocol 1.0.0 of the Gateway API Inference Extension (its proposal 004), rule by rule.

RULES names each rule that a picker can be held to without a cluster, and the test of it. Rules of gateways
and of controllers are not the router's; tests/envoy has what a real Envoy makes of it.
"""

import inspect
import re
import sys

import pytest

from tests.fakes.data_plane import (
    DESTINATION,
    DUPLEX,
    body,
    chat,
    head,
    planes,
    post,
    response_body,
    response_head,
)

PROCESSOR = "envoy.service.ext_proc.v3.ExternalProcessor"
ENDPOINT = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){3}:[0-9]{1,5}")


@pytest.fixture
def data_plane(harness):
    yield from planes(harness)


@pytest.fixture
def workers(harness):
    return [harness.worker() for _ in range(3)]


@pytest.fixture
def names(workers):
    return [worker.authority for worker in workers]


def picked(plane, count=6, **of_head):
    return {plane.pick(head(**of_head)) for _ in range(count)}


def rejected(plane, *messages):
    """The status of the immediate response."""
    stream = plane.stream()
    stream.send(*messages)
    status, _, _ = stream.rejection()
    stream.close()
    return status


# ---- streams


def test_a_request_is_streamed_in_full_duplex(harness, data_plane, workers):
    stream = data_plane(harness.router(*workers, policy="cache_aware", epp_port=0)).stream()
    data = chat("hello " * 40_000)
    pieces = [data[at : at + 50_000] for at in range(0, len(data), 50_000)]
    stream.send(head(method="POST", path="/v1/chat/completions"))
    stream.send(*(body(piece, end=piece is pieces[-1]) for piece in pieces))
    stream.choice()
    came, ended = b"", False
    while not ended:
        part = stream.receive().request_body.response.body_mutation.streamed_response
        came, ended = came + part.body, part.end_of_stream
    assert came == data
    stream.close()


def test_a_response_is_streamed_in_full_duplex(harness, data_plane, workers):
    stream = data_plane(harness.router(*workers, epp_port=0)).stream()
    first = head()
    first.protocol_config.response_body_mode = DUPLEX
    stream.send(first)
    stream.choice()
    stream.send(response_head(200))
    assert stream.receive().WhichOneof("response") == "response_headers"
    for number in range(5):
        event = b"data: %d\n\n" % number
        stream.send(response_body(event, end=number == 4))
        part = stream.receive().response_body.response.body_mutation.streamed_response
        assert (part.body, part.end_of_stream) == (event, number == 4)
    stream.close()


def test_a_request_without_a_body_is_picked_by_its_head(harness, data_plane, workers, names):
    assert picked(data_plane(harness.router(*workers, policy="cache_aware", epp_port=0))) <= set(names)


# ---- the subset


@pytest.mark.parametrize("as_text", [False, True], ids=["list", "text"])
def test_only_endpoints_of_the_subset_are_picked(harness, data_plane, workers, names, as_text):
    plane = data_plane(harness.router(*workers, epp_port=0))
    subset = ",".join(names[1:]) if as_text else names[1:]
    assert picked(plane, subset=subset) == set(names[1:])


def test_an_element_of_the_subset_may_have_commas(harness, data_plane, workers, names):
    plane = data_plane(harness.router(*workers, epp_port=0))
    assert picked(plane, subset=[",".join(names[:2])]) == set(names[:2])


def test_an_address_without_a_port_stands_for_all_its_ports(harness, data_plane, workers, names):
    assert picked(data_plane(harness.router(*workers, epp_port=0)), subset=["127.0.0.1"]) == set(names)


def test_a_subset_without_an_eligible_endpoint_gets_503(harness, data_plane, workers, names):
    router = harness.router(*workers, epp_port=0)
    router.core.set_healthy(workers[0].url, False)
    plane = data_plane(router)
    assert rejected(plane, head(subset=["10.9.9.9:1"])) == 503
    assert rejected(plane, head(subset=names[:1])) == 503


@pytest.mark.parametrize("subset", [[], ""], ids=["list", "text"])
def test_an_empty_subset_gets_503(harness, data_plane, workers, subset):
    assert rejected(data_plane(harness.router(*workers, epp_port=0)), head(subset=subset)) == 503


def test_without_a_subset_all_workers_are_eligible(harness, data_plane, workers, names):
    assert picked(data_plane(harness.router(*workers, epp_port=0))) == set(names)


def test_the_namespace_of_the_subset_is_an_option(harness, data_plane, workers, names):
    router = harness.router(*workers, epp_port=0, epp_subset_namespace="own.hint")
    plane = data_plane(router)
    other = head(subset=names[:1])  # in the usual namespace, which is not read
    assert {plane.pick(other) for _ in range(6)} == set(names)
    mine = head()
    mine.metadata_context.filter_metadata["own.hint"].update({f"{DESTINATION}-subset": names[:1]})
    assert {plane.pick(mine) for _ in range(6)} == set(names[:1])


# ---- the choice


def test_header_and_metadata_name_the_same_endpoint(harness, data_plane, workers):
    stream = data_plane(harness.router(*workers, epp_port=0)).stream()
    stream.send(head())
    response = stream.receive()
    (field,) = response.request_headers.response.header_mutation.set_headers
    assert field.header.key == DESTINATION
    assert response.dynamic_metadata["envoy.lb"][DESTINATION] == field.header.raw_value.decode()
    assert ENDPOINT.fullmatch(field.header.raw_value.decode())
    stream.close()


def test_the_endpoint_that_a_client_names_is_overwritten(harness, data_plane, workers, names):
    stream = data_plane(harness.router(*workers, epp_port=0)).stream()
    stream.send(head(fields={DESTINATION: "10.9.9.9:1"}))
    (field,) = stream.receive().request_headers.response.header_mutation.set_headers
    assert field.header.raw_value.decode() in names
    assert field.append_action == 2  # OVERWRITE_IF_EXISTS_OR_ADD
    stream.close()


def test_further_endpoints_follow_the_first_and_are_of_the_subset(harness, data_plane, workers, names):
    plane = data_plane(harness.router(*workers, epp_port=0, epp_fallbacks=5))
    stream = plane.stream()
    stream.send(head(subset=names[:2]))
    endpoints = stream.choices()
    assert sorted(endpoints) == sorted(names[:2])
    assert all(map(ENDPOINT.fullmatch, endpoints))
    stream.close()


def test_the_namespace_of_the_choice_is_an_option(harness, data_plane, workers):
    plane = data_plane(harness.router(*workers, epp_port=0, epp_metadata_namespace="own.lb"))
    stream = plane.stream()
    stream.send(head())
    assert list(stream.receive().dynamic_metadata) == ["own.lb"]
    stream.close()


# ---- no choice


def test_without_a_ready_endpoint_a_request_gets_503(harness, data_plane, workers):
    router = harness.router(*workers, epp_port=0)
    for worker in workers:
        router.core.set_healthy(worker.url, False)
    assert rejected(data_plane(router), head()) == 503


def test_a_request_that_is_shed_gets_429(harness, data_plane, workers):
    router = harness.router(*workers, epp_port=0, max_concurrent_requests=1, queue_size=0)
    plane = data_plane(router)
    first = plane.stream()
    first.send(head())
    first.choice()
    assert rejected(plane, *post(chat("hello"))) == 429
    first.send(response_head(end=True))
    first.close()


# ---- the endpoint that served


def test_the_endpoint_that_served_has_the_load(harness, data_plane, workers, names):
    router = harness.router(*workers, epp_port=0)
    stream = data_plane(router).stream()
    stream.send(head())
    chosen = stream.choice()
    served = next(name for name in names if name != chosen)
    stream.send(response_head(200, served=served))
    stream.receive()
    assert [worker.url for worker in router.core.workers if worker.load] == [f"http://{served}"]
    stream.close()
    router.must_rest()


# ---- health


def test_the_process_is_alive_whatever_its_workers_are(harness, data_plane, workers):
    router = harness.router(*workers, epp_port=0)
    for worker in workers:
        router.core.set_healthy(worker.url, False)
    assert data_plane(router).health("liveness") == "SERVING"


@pytest.mark.parametrize("service", ["readiness", PROCESSOR, ""], ids=["readiness", "processor", "whole"])
def test_it_is_ready_while_a_worker_is(harness, data_plane, workers, service):
    router = harness.router(*workers, epp_port=0)
    plane = data_plane(router)
    assert plane.health(service) == "SERVING"
    for worker in workers:
        router.core.set_healthy(worker.url, False)
    assert plane.health(service) == "NOT_SERVING"


def test_manifests_may_probe_a_port_of_its_own(harness, data_plane, workers):
    router = harness.router(*workers, epp_port=0, epp_health_port=0)
    plane = data_plane(router, router.server.epp_health_port)
    assert plane.health("inference-extension") == "SERVING"


RULES = {
    "request bodies are streamed in full duplex": test_a_request_is_streamed_in_full_duplex,
    "response bodies are streamed in full duplex": test_a_response_is_streamed_in_full_duplex,
    "each HTTP request has a choice": test_a_request_without_a_body_is_picked_by_its_head,
    "subset: only from it": test_only_endpoints_of_the_subset_are_picked,
    "subset: elements with commas": test_an_element_of_the_subset_may_have_commas,
    "subset: ip without a port": test_an_address_without_a_port_stands_for_all_its_ports,
    "subset: none eligible is 503": test_a_subset_without_an_eligible_endpoint_gets_503,
    "subset: empty is 503": test_an_empty_subset_gets_503,
    "subset: not set is the pool": test_without_a_subset_all_workers_are_eligible,
    "subset: the namespace is a default": test_the_namespace_of_the_subset_is_an_option,
    "choice: header and metadata are equal": test_header_and_metadata_name_the_same_endpoint,
    "choice: a client's is not trusted": test_the_endpoint_that_a_client_names_is_overwritten,
    "choice: a list in the order of attempts": test_further_endpoints_follow_the_first_and_are_of_the_subset,
    "choice: the namespace is a default": test_the_namespace_of_the_choice_is_an_option,
    "no ready endpoint is 503": test_without_a_ready_endpoint_a_request_gets_503,
    "a request that is dropped is 429": test_a_request_that_is_shed_gets_429,
    "the endpoint that served is told": test_the_endpoint_that_served_has_the_load,
    "health: liveness": test_the_process_is_alive_whatever_its_workers_are,
    "health: readiness and the service": test_it_is_ready_while_a_worker_is,
    "health: inference-extension": test_manifests_may_probe_a_port_of_its_own,
}


def test_each_test_has_its_rule():
    found = inspect.getmembers(sys.modules[__name__], inspect.isfunction)
    tests = {value for name, value in found if name.startswith("test_")}
    assert tests - {test_each_test_has_its_rule} == set(RULES.values())
