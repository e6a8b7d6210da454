"""cpp/net/listener.h"""

import socket

import pytest

from tests.fakes.wire import eventually
from vllm_router import _core_testing as testing


def connect(port, host="127.0.0.1"):
    return socket.create_connection((host, port), timeout=30)


def test_a_free_port_is_found_and_peers_are_named():
    listener = testing.Listener()
    assert listener.port > 0
    listener.start()
    with connect(listener.port) as client:
        eventually(lambda: listener.peers() == [client.getsockname()])


def test_an_ipv6_peer_is_named():
    listener = testing.Listener("::1")
    listener.start()
    with connect(listener.port, "::1") as client:
        eventually(lambda: listener.peers() == [client.getsockname()[:2]])


def test_an_ipv4_peer_of_an_ipv6_listener_has_its_own_address():
    listener = testing.Listener("::")
    listener.start()
    with connect(listener.port) as client:
        eventually(lambda: listener.peers() == [client.getsockname()])


def test_whoever_knocked_before_the_start_is_let_in():
    listener = testing.Listener()
    with connect(listener.port) as client:
        listener.start()
        eventually(lambda: listener.peers() == [client.getsockname()])


def test_stopping_takes_who_is_queued_and_closes_the_port():
    listener = testing.Listener()
    clients = [connect(listener.port) for _ in range(5)]
    listener.stop()  # was never started
    assert listener.peers() == [client.getsockname() for client in clients]
    with pytest.raises(ConnectionRefusedError):
        connect(listener.port)
    listener.stop()
    for client in clients:
        client.close()


def test_many_at_once_are_all_let_in():
    listener = testing.Listener()
    clients = [connect(listener.port) for _ in range(300)]  # more than one wake-up takes
    listener.start()
    eventually(lambda: len(listener.peers()) == len(clients))
    for client in clients:
        client.close()


def test_listeners_that_join_share_the_port():
    first = testing.Listener()
    second = testing.Listener(port=first.port, join=True)
    assert second.port == first.port
    first.start()
    second.start()
    clients = [connect(first.port) for _ in range(100)]
    eventually(lambda: len(first.peers()) + len(second.peers()) == 100)
    assert first.peers()
    assert second.peers()
    for client in clients:
        client.close()


@pytest.mark.parametrize("share", [True, False])
def test_a_port_on_which_anybody_listens_is_refused(share):
    first = testing.Listener()
    with pytest.raises(
        ValueError, match=f"cannot listen on 127.0.0.1:{first.port}: Address already in use; stop"
    ):
        testing.Listener(port=first.port, share_port=share)


def test_a_port_that_is_not_shared_cannot_be_joined():
    first = testing.Listener(share_port=False)
    with pytest.raises(ValueError, match="Address already in use"):
        testing.Listener(port=first.port, join=True)


def test_an_address_of_another_machine_is_refused():
    with pytest.raises(
        ValueError, match=r"cannot listen on 192\.0\.2\.1:0: .*; choose an address of this machine"
    ):
        testing.Listener("192.0.2.1")


def test_a_name_that_means_nothing_is_refused():
    with pytest.raises(
        ValueError, match=r"cannot listen on no such host:0: .*; give a local address such as"
    ):
        testing.Listener("no such host")
    with pytest.raises(ValueError, match=r"cannot listen on \[::zz\]:0"):
        testing.Listener("::zz")


def test_a_name_with_two_addresses_is_listened_on_at_both():
    """Row 30: clients that take the other address of localhost were refused."""
    found = {row[4][0] for row in socket.getaddrinfo("localhost", 1, type=socket.SOCK_STREAM)}
    listener = testing.Listener("localhost")
    listener.start()
    for count, address in enumerate(sorted(found), start=1):
        with connect(listener.port, address):
            eventually(lambda count=count: len(listener.peers()) == count)
    listener.stop()
    for address in found:
        with pytest.raises(ConnectionRefusedError):
            connect(listener.port, address)


def test_a_port_that_one_of_two_addresses_has_in_use_is_refused():
    """Row 30: half of the clients would reach somebody else."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ValueError, match=r"cannot listen on localhost:.*; stop the process that uses it"):
            testing.Listener("localhost", other.getsockname()[1])


@pytest.mark.parametrize("host", ["[::1]", "[::]"])
def test_an_ipv6_address_may_have_its_brackets(host):
    listener = testing.Listener(host)
    listener.start()
    with connect(listener.port, "::1"):
        eventually(lambda: len(listener.peers()) == 1)
