"""cpp/base/check.h: our own mistakes end the process, with a sentence."""

import signal
import subprocess
import sys

from vllm_router import _core_testing as testing


def test_a_true_condition_costs_nothing_but_the_look():
    testing.check(True)


def test_a_false_condition_ends_the_process_and_names_sentence_condition_and_place():
    script = "from vllm_router import _core_testing as testing; testing.check(False)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == -signal.SIGABRT
    assert "vllm-router: internal error: the caller wanted to see it fail [condition] at" in run.stderr
    assert "testing_base.cc:" in run.stderr
