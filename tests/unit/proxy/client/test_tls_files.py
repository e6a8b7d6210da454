"""Which files the flags name; over the wire it is tests/proxy/test_tls.py."""

import socket
from pathlib import Path

import pytest

from tests.fakes.authority import Authority
from tests.fakes.wire import PATIENCE, eventually


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.mark.parametrize("named", ["clients", "workers", "nothing"])
def test_there_is_something_to_reload_where_files_are_named(harness, authority, named):
    files = authority.certify("localhost")
    options = {
        "clients": {"tls_cert_path": files.cert, "tls_key_path": files.key},
        "workers": {"worker_ca_file": authority.path},
        "nothing": {},
    }
    router = harness.router(**options[named])
    assert router.server.has_something_to_reload == (named != "nothing")
    assert router.server.tls == (named == "clients")


def test_what_workers_are_trusted_by_is_read_again(harness, authority, tmp_path):
    other = Authority(tmp_path)
    worker = harness.worker(tls=authority.server("127.0.0.1"))
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(Path(other.path).read_bytes())
    router = harness.router(worker, worker_ca_file=str(trusted))
    client = harness.client(router)
    assert client.ask().status == 502
    trusted.write_bytes(Path(authority.path).read_bytes())
    router.server.reload()
    eventually(lambda: client.ask().status == 200)


def test_gateways_get_the_certificate_of_clients_with_http_2_alone(harness, authority):
    """And after a reload the new one."""
    files = authority.certify("127.0.0.1", "old.example")
    options = {"tls_cert_path": files.cert, "tls_key_path": files.key}
    router = harness.router(harness.worker(), epp_port=0, epp_tls=True, **options)

    def seen(port):
        context = authority.client()
        context.set_alpn_protocols(["http/1.1", "h2"])
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped,
        ):
            names = {name for kind, name in wrapped.getpeercert()["subjectAltName"] if kind == "DNS"}
            return names, wrapped.selected_alpn_protocol()

    assert seen(router.server.epp_port) == ({"old.example"}, "h2")
    assert seen(router.port) == ({"old.example"}, "http/1.1")
    authority.replace(files, "127.0.0.1", "new.example")
    router.server.reload()
    eventually(lambda: seen(router.server.epp_port) == ({"new.example"}, "h2"))
