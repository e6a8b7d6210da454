"""cpp/proxy/server/option_checks.h: options that make no sense together end the start."""

import pytest


def test_nobody_can_be_passed_over_without_polls(harness):
    with pytest.raises(
        ValueError, match=r"exclude_waiting_above is 4 and load_poll_interval_secs is 0.*leave it out"
    ):
        harness.router(harness.worker(), exclude_waiting_above=4, load_poll_interval_secs=0)
