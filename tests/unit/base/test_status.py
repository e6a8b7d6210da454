"""cpp/base/status.h."""

from vllm_router import _core_testing as testing


def test_return_if_error_goes_on_while_all_is_well():
    assert testing.run_steps(["", "", ""]) == (3, "ok")


def test_return_if_error_returns_the_first_failure_as_it_is():
    assert testing.run_steps(["", "port 80 is taken", "never reached"]) == (1, "port 80 is taken")
