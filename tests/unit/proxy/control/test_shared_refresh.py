"""When a shared value is refreshed; tests/property/test_shared_refresh.py has random histories."""

from vllm_router import _core_testing as testing


def test_one_refresh_runs_and_the_value_is_served_while_it_is_fresh():
    refresh = testing.SharedRefresh(fresh=10, usable=100)
    assert [refresh.ask(0, 1) for _ in range(3)] == ["start", "join", "join"]
    assert not refresh.is_usable(0)
    assert refresh.begun == 0
    refresh.end(5)
    assert [refresh.ask(now, 1) for now in (5, 14, 15, 16)] == ["serve", "serve", "start", "join"]
    assert refresh.begun == 15
    assert [refresh.is_usable(now) for now in (16, 104, 105)] == [True, True, False]
