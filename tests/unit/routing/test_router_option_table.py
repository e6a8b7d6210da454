"""cpp/routing/router_option_table.h: options that are set by name, and ranges that Router.create() checks."""

import re

import pytest

from vllm_router import _core
from vllm_router import _core_testing as testing


def test_every_option_of_the_table_may_be_left_out_or_given_at_its_default():
    defaults = {name: row["default"] for name, row in testing.router_options().items()}
    for given in ({}, defaults):
        assert _core.Router([], {"policy": "random", **given}).policy == "random"


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        (
            "intra_node_data_parallel_size",
            4097,
            "it is the number of ranks per worker URL and must be between 1 and 4096 (default 1)",
        ),
        (
            "max_prefix_length",
            0,
            "it is the length of a prefix in bytes and must be between 1 and 1048576 (default 1024)",
        ),
        (
            "routing_text_limit",
            1023,
            "it is the length in bytes up to which a prompt is matched and must be between 1024 and "
            "1073741824 (default 4194304)",
        ),
    ],
)
def test_a_value_out_of_range_is_answered_with_the_range(option, value, message):
    with pytest.raises(ValueError, match=f"^{option} is {value}; {re.escape(message)}$"):
        _core.Router([], {"policy": "random", option: value})
