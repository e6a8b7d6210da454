"""python/vllm_router/_log_streams.py: what Python writes while it serves goes through the log of the core."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from tests.fakes.full_pipe import FullPipe
from vllm_router import _core
from vllm_router._log_streams import LogStream, through_the_log


def run(script, **streams):
    """Of a process that writes `script` within the streams of the log."""
    head = "import logging, os, sys, threading, warnings\n"
    head += "from vllm_router._log_streams import own_the_process, through_the_log\n"
    return subprocess.run([sys.executable, "-c", head + script], timeout=60, check=False, **streams)


def test_lines_are_whole_and_in_order_with_those_of_the_log(capfd):
    assert _core.flush_log()  # of what other tests left behind
    capfd.readouterr()
    stream = LogStream(2, sys.__stderr__)
    print("one", "two", file=stream)
    stream.write("thr")
    _core.log("info", "of the core")
    stream.write("ee\nfour")
    stream.flush()
    assert _core.flush_log()
    first, second, *rest = capfd.readouterr().err.split("\n")
    assert first == "one two"
    assert second.endswith(" INFO of the core")
    assert rest == ["three", "four"]
    assert (stream.fileno(), stream.writable(), stream.isatty()) == (2, True, os.isatty(2))


def test_a_line_without_an_end_is_not_kept_forever(capfd):
    stream = LogStream(2, sys.__stderr__)
    for _ in range(100):
        stream.write("x" * 1000)
    assert _core.flush_log()
    assert 60_000 < len(capfd.readouterr().err) < 100_000
    stream.flush()
    assert _core.flush_log()
    assert capfd.readouterr().err.count("x") < 40_000


def test_all_that_python_writes_by_itself_goes_there_and_ends_no_thread():
    """Row 1: both streams are a pipe that is not read, until all threads have ended."""
    script = """
with through_the_log(1, 2):
    logging.basicConfig()
    def work():
        for number in range(200):
            print("p" * 500)
            logging.warning("l" * 500)
            warnings.warn("w" * 500 + str(number))
        1 / 0
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
sys.exit(7)
"""
    with FullPipe() as pipe:
        assert run(script, stdout=pipe.write_end, stderr=pipe.write_end).returncode == 7


def test_what_was_written_last_arrives_and_the_streams_are_put_back():
    script = """
before = sys.stdout, sys.stderr
with through_the_log(1, 2):
    assert sys.stdout is not before[0]
    print("to stdout \\u00e9 \\udcff", end="")
    raise_ = threading.Thread(target=lambda: 1 / 0)
    raise_.start()
    raise_.join()
assert (sys.stdout, sys.stderr) == before
"""
    done = run(script, capture_output=True)
    assert done.stdout.decode() == "to stdout \u00e9 \\udcff"
    assert b"ZeroDivisionError: division by zero\n" in done.stderr


@pytest.mark.usefixtures("capsys")
def test_a_stream_that_a_program_has_replaced_stays():
    before = sys.stdout, sys.stderr
    with through_the_log(1, 2):
        assert (sys.stdout, sys.stderr) == before


def test_without_the_core_lines_go_where_they_went(monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "vllm_router._core", None)
    with os.fdopen(os.dup(2), "w") as former:
        stream = LogStream(2, former)
        stream.write("the module is missing\n")
    assert capfd.readouterr().err == "the module is missing\n"


@pytest.mark.parametrize("ignored", [False, True])
def test_a_handler_of_the_program_that_calls_stays(ignored):
    script = """
import signal
before = signal.signal(signal.SIGUSR1, lambda *_: None) if {keep} else None
mine = signal.getsignal(signal.SIGUSR1)
own_the_process()
now = signal.getsignal(signal.SIGUSR1)
sys.exit(0 if now is (mine if {keep} else signal.SIG_IGN) else 1)
"""
    assert run(script.format(keep=not ignored)).returncode == 0


def test_in_another_thread_it_touches_no_signal():
    from vllm_router._log_streams import own_the_process

    before = signal.getsignal(signal.SIGUSR1)
    thread = threading.Thread(target=own_the_process)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGUSR1) is before
