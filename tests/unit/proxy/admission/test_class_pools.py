"""cpp/proxy/admission/class_pools.h: the settings in force, and a pool for each number."""

import pytest

from vllm_router import _core_testing as testing


def test_settings_are_followed_as_a_whole():
    pools = testing.ClassPools()
    assert not pools.on
    pools.follow("class batch queue_size=1")
    assert pools.on
    version = pools.version
    pools.follow("class batch queue_size=1")
    assert pools.version == version
    with pytest.raises(ValueError, match="admission_config, line 1: class is"):
        pools.follow("class gold")
    assert pools.on
    assert pools.version == version
    pools.follow("")
    assert not pools.on


def test_a_number_has_one_pool():
    pools = testing.ClassPools()
    pools.follow("class batch")
    assert pools.find(0) == pools.find(0)
    assert pools.find(0) != pools.find(7)
    assert pools.pools == 2
