"""How an exchange can end: a metric label and a field of the log, so the names are stable."""

from vllm_router import _core_testing as testing


def test_the_names_of_the_ends():
    assert testing.exchange_ends() == [
        "done",
        "no_done",
        "client_gone",
        "slow_client",
        "worker_gone",
        "worker_error",
        "timeout",
        "drain",
        "worker_aborted",
    ]
