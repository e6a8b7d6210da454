"""cpp/proxy/picker/worker_endpoints.h: what a gateway is told of a worker."""

from tests.fakes.data_plane import head


def test_a_literal_address_is_told_as_it_is(harness, data_plane):
    worker = harness.worker()
    assert data_plane(harness.router(worker, epp_port=0)).pick(head()) == f"127.0.0.1:{worker.port}"


def test_an_ipv6_address_has_brackets(harness, data_plane):
    worker = harness.worker(host="::1")
    assert data_plane(harness.router(worker, epp_port=0)).pick(head()) == f"[::1]:{worker.port}"


def test_a_name_is_looked_up(harness, data_plane):
    worker = harness.worker()
    router = harness.router(f"http://localhost:{worker.port}", epp_port=0)
    assert data_plane(router).pick(head()) in (f"127.0.0.1:{worker.port}", f"[::1]:{worker.port}")


def test_a_worker_without_an_address_is_not_chosen(harness, data_plane):
    worker = harness.worker()
    router = harness.router(worker, "http://no-such-host.invalid:1", epp_port=0)
    plane = data_plane(router)
    assert {plane.pick(head()) for _ in range(4)} == {worker.authority}


def test_a_worker_with_a_path_that_joins_later_is_not_chosen(harness, data_plane):
    worker = harness.worker()
    router = harness.router(worker, epp_port=0)
    router.core.add_worker(f"{worker.url}/prefix")
    plane = data_plane(router)
    assert {plane.pick(head()) for _ in range(4)} == {worker.authority}


def test_a_rank_is_a_header_for_the_worker(harness, data_plane):
    worker = harness.worker()
    router = harness.router(f"{worker.url}@1", epp_port=0)
    stream = data_plane(router).stream()
    stream.send(head())
    fields = stream.receive().request_headers.response.header_mutation.set_headers
    assert {f.header.key: f.header.raw_value for f in fields}["x-data-parallel-rank"] == b"1"
    stream.close()
