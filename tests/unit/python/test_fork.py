"""vllm_router.router: a router that a child process has inherited by fork."""

import subprocess
import sys

PROGRAM = """
import os, sys, warnings
from vllm_router import Router

router = Router("least_load", ["http://a:1"])
reader, writer = os.pipe()
if os.fork() == 0:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Router("least_load", ["http://a:1"]).select().finish()
        own = len(caught)
        for _ in range(3):
            router.select().finish()
    os.write(writer, repr((own, [(w.category.__name__, str(w.message)) for w in caught])).encode())
    os._exit(0)
os.wait()
with warnings.catch_warnings():
    warnings.simplefilter("error")
    router.select().finish()
print(os.getpid(), os.read(reader, 4096).decode())
"""


def test_a_router_that_is_used_after_a_fork_warns_once() -> None:
    """Row 46 of the third list: it went on as a copy, without a word."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    parent, _, told = done.stdout.partition(" ")
    own, caught = eval(told)
    assert own == 0, "a router of the child's own is none"
    ((category, message),) = caught
    assert category == "RuntimeWarning"
    assert message.startswith(f"this Router was made in process {parent} and is used in ")
    assert "make a Router in each process" in message
