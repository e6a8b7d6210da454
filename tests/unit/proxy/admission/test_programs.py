"""cpp/proxy/admission/programs.h: the settings in force, and what the service finds once a second.

tests/proxy/test_programs.py has the requests.
"""

import re

import pytest

from tests.fakes.wire import eventually, request

SAME = {"health_check_interval_secs": 0, "retry_max_retries": 0}
NAMED = ("x-session-id", "s")


def states(router):
    found = re.findall(r'^vllm_router_programs\{state="(\w+)"\} (\d+)$', router.server.metrics_text(), re.M)
    return {state: int(count) for state, count in found}


def ask(harness, router, *fields):
    client = harness.client(router)
    client.send(request("POST", "/v1/completions", *fields, body=b'{"model":"m","prompt":"hi"}'))
    assert client.read_response().status == 200


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"program_admission": "maybe"}, 'program_admission, the mode is "maybe"'),
        (
            {"program_admission": "on", "epp_port": 0, "epp_only": True},
            "program_admission is not off and epp_only is set",
        ),
    ],
    ids=["mode", "epp_only"],
)
def test_options_are_checked_before_a_server_starts(harness, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        harness.router(harness.worker(), **options)


def test_a_program_whose_worker_has_gone_is_paused_and_one_that_is_not_used_is_forgotten(harness):
    worker = harness.worker()
    router = harness.router(worker, program_admission="on forget_ms=1500")
    ask(harness, router, NAMED)
    eventually(lambda: states(router)["acting"] == 1)
    router.core.remove_worker(worker.url)
    eventually(lambda: states(router)["paused"] == 1)
    eventually(lambda: not any(states(router).values()))


def test_programs_that_are_turned_off_are_forgotten_in_time(harness):
    router = harness.router(harness.worker(), program_admission="on forget_ms=1")
    ask(harness, router, NAMED)
    router.server.apply({**SAME, "program_admission": "off forget_ms=1"}, None, 0.5, 60.0, False)
    ask(harness, router, NAMED)
    eventually(lambda: not any(states(router).values()))
