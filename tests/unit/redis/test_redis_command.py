"""cpp/redis/redis_command.h: commands as Redis reads them."""

import pytest

from tests.models.resp import command_of
from vllm_router import _core_testing as testing


@pytest.mark.parametrize(
    "commands",
    [
        [["PING"]],
        [["SET", "key", ""], ["GET", "key"]],
        [["SET", "a\r\n\0b", "é" * 1000]],
    ],
)
def test_commands_are_arrays_of_texts(commands):
    assert testing.redis_commands(commands) == b"".join(map(command_of, commands))
