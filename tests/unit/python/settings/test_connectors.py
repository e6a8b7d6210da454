"""vllm_router.settings.connectors: what the core says of them, as settings."""

import pytest

from tests.rows import for_each_row
from tests.unit.python.settings.values import parsed
from vllm_router import _core
from vllm_router.router_args import RouterArgs
from vllm_router.settings.connectors import REGISTERING

NAMES = [one["name"] for one in _core.kv_connectors()]


@for_each_row("name", ["auto", *NAMES])
def test_a_connector_of_the_core_can_be_chosen(name: str) -> None:
    address = "--vllm-discovery-address 127.0.0.1:30001" if name in REGISTERING else ""
    assert parsed(f"--kv-connector {name} {address}").kv_connector == name


@for_each_row("name", sorted(REGISTERING))
def test_workers_that_register_need_an_address(name: str) -> None:
    with pytest.raises(ValueError, match=f"kv_connector is {name}, whose workers register with the router"):
        RouterArgs(kv_connector=name)._validate_router_args()
