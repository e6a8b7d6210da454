"""cpp/index/stick_table.h: names and the workers that they stick to."""

from vllm_router import _core_testing as testing


def test_a_name_sticks_until_it_is_not_used_for_the_time_to_live():
    table = testing.StickTable(10, 60.0)
    table.stick("a", 1, 0.0)
    assert table.find("a", 59.0) == 1
    assert table.find("a", 118.0) == 1  # since its last use
    assert table.find("a", 178.0) is None
    assert len(table) == 0
