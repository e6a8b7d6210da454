"""vllm_router.settings.kinds: values as they come from the command line, YAML and Python."""

import pytest

from vllm_router.router_args import FLAGS, RouterArgs
from vllm_router.settings.kinds import JsonObject, Unfit


def test_numpy_like_numbers_are_numbers() -> None:
    np = pytest.importorskip("numpy")
    args = RouterArgs(port=np.int64(8080), connect_timeout_secs=np.float64(0.5))
    args._validate_router_args()
    assert args.server_options()["port"] == 8080


def test_a_text_with_a_nul_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"record_log.* must be a text without NUL characters"):
        RouterArgs(record_log="log\0", record_log_salt_file="salt")._validate_router_args()


def test_a_json_object_may_be_a_mapping() -> None:
    kind = JsonObject()
    assert kind.check({"page_size": 64}) == '{"page_size": 64}'
    assert kind.check('{"page_size": 64}') == '{"page_size": 64}'
    for value in ("[]", "{", "", 7, None, {1: object()}):
        with pytest.raises(Unfit):
            kind.check(value)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:8600", "::1", "[::1]", "[fd00::1]:65535"])
def test_an_address_of_a_dns_server(address: str) -> None:
    RouterArgs(dns_server=address)._validate_router_args()


@pytest.mark.parametrize(
    "address",
    ["", "dns.local", "127.0.0.1:", "127.0.0.1:0", "1.2.3.4:65536", "[127.0.0.1]:53", "256.1.1.1", "::1]"],
)
def test_what_is_no_address_of_a_dns_server(address: str) -> None:
    with pytest.raises(
        ValueError,
        match=r"dns_server is .* must be an IP address with|dns_server is .* an IP address, with or",
    ):
        RouterArgs(dns_server=address)._validate_router_args()


@pytest.mark.parametrize("name", ["a", "blue-1", "A_b.c", "9" * 64])
def test_a_name_that_may_be_part_of_keys(name: str) -> None:
    assert FLAGS["peer_sync_fleet"].check(name) == name


@pytest.mark.parametrize("name", ["a" * 65, "a b", "a:b", "a/b", "{a}", "\u00e4", "a\n", "*"])
def test_what_may_not_be_part_of_keys(name: str) -> None:
    with pytest.raises(
        ValueError, match=r"it is the name of the fleet.* and must be 1 to 64 letters, digits"
    ):
        FLAGS["peer_sync_fleet"].check(name)
