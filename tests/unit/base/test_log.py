"""cpp/base/log.h: where lines go, what they look like, and that a line stays a line."""

import json
import os
import re
import signal
import subprocess
import sys
import warnings
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.full_pipe import FullPipe
from tests.fakes.wire import eventually
from vllm_router import _core_testing as testing

LEVELS = [testing.LogLevel.DEBUG, testing.LogLevel.INFO, testing.LogLevel.WARNING, testing.LogLevel.ERROR]


@pytest.fixture(autouse=True)
def default_log_afterwards():
    yield
    testing.configure_log()


def configure(**options):
    assert testing.configure_log(**options) == ""


def test_a_message_is_a_utc_time_a_level_and_the_text_on_stderr(capfd):
    configure()
    before = datetime.now(timezone.utc).replace(microsecond=0)
    testing.log(testing.LogLevel.WARNING, "worker http://a:8000 refused")
    testing.flush_log()
    out, err = capfd.readouterr()
    assert out == ""
    time, level_and_text = err[:19], err[19:]
    assert level_and_text == " WARNING worker http://a:8000 refused\n"
    said = datetime.strptime(time, "%Y-%m-%d %H:%M:%S").replace(tzinfo=timezone.utc)
    assert before <= said <= before + timedelta(minutes=1)


def test_a_json_message_is_one_object_per_line(capfd):
    configure(json=True)
    testing.log(testing.LogLevel.ERROR, 'says "no"\nthen\tcloses é')
    testing.flush_log()
    line = capfd.readouterr().err
    entry = json.loads(line)
    assert line.count("\n") == 1
    assert list(entry) == ["time", "level", "message"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", entry["time"])
    assert (entry["level"], entry["message"]) == ("error", 'says "no"\nthen\tcloses é')


@pytest.mark.parametrize("quietest", LEVELS)
def test_messages_below_the_level_are_dropped(capfd, quietest):
    configure(level=quietest)
    for level in LEVELS:
        testing.log(level, f"at {level.name}")
        assert testing.log_enabled(level) == (level.value >= quietest.value)
    testing.flush_log()
    said = [line.split()[2] for line in capfd.readouterr().err.splitlines()]
    assert said == [level.name for level in LEVELS if level.value >= quietest.value]


def test_off_is_off_for_every_level_even_for_itself(capfd):
    configure(level=testing.LogLevel.OFF)
    for level in [*LEVELS, testing.LogLevel.OFF]:
        testing.log(level, "nobody hears this")
    testing.log_access("GET / 200\n")
    testing.flush_log()
    assert capfd.readouterr() == ("", "")


@given(text=st.text(alphabet=st.characters(codec="utf-8")))
def test_no_text_can_begin_a_line_of_its_own(tmp_path_factory, text):
    directory = tmp_path_factory.mktemp("log")
    configure(directory=str(directory))
    testing.log(testing.LogLevel.INFO, text)
    testing.flush_log()
    (file,) = directory.iterdir()
    written = file.read_bytes().decode()
    assert written.endswith("\n")
    assert not re.search(r"[\x00-\x1f\x7f]", written[:-1])


def test_access_lines_go_to_stdout_as_they_are(capfd):
    configure(json=True)
    lines = 'GET /v1/models 200\n{"not": "touched"}\n'
    testing.log_access(lines)
    testing.log_access("")
    testing.flush_log()
    assert capfd.readouterr() == (lines, "")


def test_access_lines_are_dropped_above_level_info(capfd):
    configure(level=testing.LogLevel.WARNING)
    testing.log_access("GET / 200\n")
    testing.flush_log()
    assert capfd.readouterr() == ("", "")


def test_a_directory_gets_both_kinds_in_a_file_of_the_day(tmp_path, capfd):
    configure(directory=str(tmp_path))
    testing.log(testing.LogLevel.INFO, "started")
    testing.log_access("GET / 200\n")
    testing.flush_log()
    (file,) = tmp_path.iterdir()
    assert re.fullmatch(r"vllm-router\.\d{4}-\d\d-\d\d", file.name)
    out, err = capfd.readouterr()
    assert file.read_text() == err + out
    assert err.endswith(" INFO started\n")


def test_a_line_is_in_the_file_soon_though_nothing_flushes(tmp_path, capfd):
    configure(directory=str(tmp_path))
    testing.log(testing.LogLevel.INFO, "look")
    (file,) = tmp_path.iterdir()
    eventually(lambda: file.read_text().endswith(" INFO look\n"))
    testing.flush_log()
    capfd.readouterr()


def test_an_unwritable_directory_is_named_and_leaves_the_log_as_it_was(tmp_path, capfd):
    configure(level=testing.LogLevel.ERROR)
    occupied = tmp_path / "file"
    Path(occupied).touch()
    sentence = testing.configure_log(directory=str(occupied / "logs"), level=testing.LogLevel.DEBUG)
    assert sentence.startswith(f"log directory '{occupied}/logs' cannot be written (")
    assert sentence.endswith("; choose a directory that this user may write to, or leave --log-dir out")
    testing.log(testing.LogLevel.INFO, "still too quiet")
    testing.flush_log()
    assert capfd.readouterr() == ("", "")


# ---- Row 1: a destination that takes no lines


def file_of(directory):
    (file,) = directory.glob("vllm-router.*")
    return file


@pytest.fixture
def stuck():
    """`stuck(2)`: that descriptor is a pipe which is full, and not read until the test does."""
    pipes, kept = [], {}

    def begin(descriptor):
        testing.flush_log()
        pipe = FullPipe()
        pipes.append(pipe)
        kept[descriptor] = os.dup(descriptor)
        os.dup2(pipe.write_end, descriptor)
        return pipe

    yield begin
    for pipe in pipes:
        pipe.drain_in_background()
    testing.flush_log()
    for descriptor, before in kept.items():
        os.dup2(before, descriptor)
        os.close(before)
    for pipe in pipes:
        pipe.close()


def test_a_stuck_destination_keeps_neither_the_caller_nor_the_others(tmp_path, stuck, capfd):
    """Row 1. Written are, while standard error is stuck, the file and standard output."""
    configure(directory=str(tmp_path))
    pipe = stuck(2)
    for number in range(100):
        testing.log(testing.LogLevel.WARNING, f"message {number}")
    testing.log_access("GET / 200\n")
    eventually(lambda: len(file_of(tmp_path).read_text().splitlines()) == 101)
    eventually(lambda: capfd.readouterr().out == "GET / 200\n")
    pipe.drain_in_background()
    assert testing.flush_log()
    numbers = [line.rsplit(" ", 1)[1] for line in pipe.text().splitlines()]
    assert numbers == [str(number) for number in range(100)]


@pytest.mark.parametrize("json_lines", [False, True])
def test_lines_without_room_are_counted_and_told_where_they_are_missing(stuck, json_lines):
    """Row 1. a a a [writer] b b b [queue] c c c dropped, then the notice, then d."""
    configure(json=json_lines)
    before = testing.log_dropped(testing.LogDestination.STDERR)
    pipe = stuck(2)
    room = testing.limits()["kMaxAccessLogBytes"]
    text = "x" * 100_000
    written = 0
    while testing.log_dropped(testing.LogDestination.STDERR) == before:
        testing.log(testing.LogLevel.INFO, f"{written} {text}")
        written += 1
        assert written < 3 * room // len(text)
    for _ in range(5):
        testing.log(testing.LogLevel.INFO, "small, and would have room")
    assert testing.log_dropped(testing.LogDestination.STDERR) == before + 6
    pipe.drain_in_background()
    assert testing.flush_log()
    testing.log(testing.LogLevel.INFO, "again")
    assert testing.flush_log()
    pipe.wait_for("again")
    lines = pipe.text().splitlines()
    if json_lines:
        lines = [json.loads(line)["message"] for line in lines]
    assert "6 lines were dropped here, because standard error took none" in lines[-2]
    assert lines[-1].endswith("again")
    assert len(lines) == written - 1 + 2


def test_access_lines_that_standard_output_did_not_get_are_told_as_a_message(stuck, capfd):
    configure()
    before = testing.log_dropped(testing.LogDestination.STDOUT)
    pipe = stuck(1)
    while testing.log_dropped(testing.LogDestination.STDOUT) == before:
        testing.log_access("GET / 200\n" * 50_000)
    pipe.drain_in_background()
    assert testing.flush_log()
    testing.flush_log()
    told = " WARNING 50000 lines of the access log were dropped, because standard output took none\n"
    assert told in capfd.readouterr().err
    assert set(pipe.text().splitlines()) == {"GET / 200"}


def test_two_streams_in_one_pipe_keep_their_lines_whole():
    """Row 1: a writer per destination, and both destinations are one pipe."""
    script = """
from vllm_router import _core_testing as testing
for number in range(200):
    testing.log(testing.LogLevel.INFO, "m" * 900)
    testing.log_access(("a" * 700 + "\\n") * 20)
"""
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
    lines = [line[-700:] for line in run.stdout.splitlines()]
    assert {line: lines.count(line) for line in set(lines)} == {"a" * 700: 4000, "m" * 700: 200}


def run_with_full_pipes(script):
    """The exit status of a process that writes to pipes which are not read."""
    pipe = FullPipe()
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=pipe.write_end, stderr=pipe.write_end
    ) as run:
        status = run.wait(30)
    pipe.close()
    return status


LOGS = """
from vllm_router import _core_testing as testing
for _ in range(100):
    testing.log(testing.LogLevel.ERROR, "m" * 900)
    testing.log_access("a" * 900 + "\\n")
"""


def test_a_process_ends_though_its_last_lines_cannot_be_written():
    assert run_with_full_pipes(LOGS) == 0


def test_a_failed_check_ends_the_process_though_its_sentence_cannot_be_written():
    assert run_with_full_pipes(LOGS + "testing.check(False)") == -signal.SIGABRT


def test_the_last_lines_of_a_process_are_written_when_it_ends():
    run = subprocess.run([sys.executable, "-c", LOGS], capture_output=True, text=True, check=True)
    assert (run.stdout.count("\n"), run.stderr.count("\n")) == (100, 100)


def test_there_is_no_thread_before_a_line():
    """Row 1: for programs that use the library alone."""
    script = """
import os
import vllm_router
from vllm_router import Router, _core
threads = lambda: len(os.listdir("/proc/self/task"))
before = threads()
router = Router(policy="round_robin", worker_urls=["http://a:1"])
_core.configure_log()
assert threads() == before, (before, threads())
_core.log("info", "the first line")
assert threads() == before + 1
"""
    subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)


def test_a_child_by_fork_logs_with_a_thread_of_its_own(tmp_path, stuck, capfd):
    """Row 1: and writes nothing of what waits in its parent."""
    configure(directory=str(tmp_path))
    pipe = stuck(2)
    for number in range(50):
        testing.log(testing.LogLevel.INFO, f"parent {number}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: this process has threads
        child = os.fork()
    if child == 0:
        os.dup2(1, 2)
        testing.log(testing.LogLevel.INFO, "child")
        os._exit(0 if testing.flush_log() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert capfd.readouterr().out.endswith(" INFO child\n")
    eventually(lambda: file_of(tmp_path).read_text().count(" INFO ") == 51)
    pipe.drain_in_background()
    assert testing.flush_log()
    assert pipe.text().count("parent") == 50


def test_a_closed_reader_ends_no_process():
    """Row 1: EPIPE, also where SIGPIPE has its default action."""
    script = (
        "import signal; signal.signal(signal.SIGPIPE, signal.SIG_DFL)"
        + LOGS
        + "assert not testing.flush_log() or testing.log_dropped(testing.LogDestination.STDERR) >= 100"
    )
    read, write = os.pipe()
    os.close(read)
    with subprocess.Popen([sys.executable, "-c", script], stdout=write, stderr=write) as run:
        os.close(write)
        assert run.wait(30) == 0


# ---- Row 31: the file


def test_a_full_disk_is_told_on_standard_error_in_the_log_s_form_and_counted(tmp_path, capfd):
    """Row 31. Told once, since it is the same trouble."""
    configure(directory=str(tmp_path), json=True)
    file = file_of(tmp_path)
    file.unlink()
    file.symlink_to("/dev/full")
    before = testing.log_dropped(testing.LogDestination.FILE)
    for _ in range(3):
        testing.log(testing.LogLevel.INFO, "is lost")
        testing.flush_log()
    testing.log_access("{}\n")
    testing.flush_log()
    out, err = capfd.readouterr()
    messages = [json.loads(line)["message"] for line in err.splitlines()]
    trouble = [message for message in messages if message != "is lost"]
    assert trouble == [
        f"--log-dir {tmp_path} cannot be written: No space left on device; 1 line was lost. Make room, or "
        "name a directory on another disk"
    ]
    assert (messages.count("is lost"), out) == (3, "{}\n")
    assert testing.log_dropped(testing.LogDestination.FILE) == before + 4
    file.unlink()
    testing.log(testing.LogLevel.INFO, "has room")
    testing.flush_log()
    assert json.loads(file.read_text())["message"] == "has room"
    assert "is written again; 3 lines were lost" in capfd.readouterr().err


@pytest.mark.parametrize("directory_too", [False, True])
def test_a_file_that_was_deleted_is_made_anew_by_the_next_line(tmp_path, directory_too, capfd):
    directory = tmp_path / "logs"
    configure(directory=str(directory))
    testing.log(testing.LogLevel.INFO, "one")
    testing.flush_log()
    file_of(directory).unlink()
    if directory_too:
        directory.rmdir()
    testing.log(testing.LogLevel.INFO, "two")
    testing.flush_log()
    assert file_of(directory).read_text().endswith(" INFO two\n")
    capfd.readouterr()


def test_a_file_that_was_moved_away_is_let_go_when_the_log_is_reopened(tmp_path, capfd):
    """Row 7: without another line, since its space is not free before."""
    configure(directory=str(tmp_path))
    testing.log(testing.LogLevel.INFO, "one")
    testing.flush_log()
    file = file_of(tmp_path)
    moved = file.rename(tmp_path / "moved")

    def is_open(path):
        return any(link.exists() and link.samefile(path) for link in Path("/proc/self/fd").iterdir())

    assert is_open(moved)
    testing.reopen_log()
    testing.flush_log()
    assert not is_open(moved)
    assert (file.read_text(), moved.read_text().count("\n")) == ("", 1)
    testing.log(testing.LogLevel.INFO, "two")
    testing.flush_log()
    assert file.read_text().endswith(" INFO two\n")
    capfd.readouterr()


def test_where_no_new_file_can_be_made_lines_go_to_the_former_one(tmp_path, capfd):
    """Row 7. A directory has its name, which root may not write to either."""
    configure(directory=str(tmp_path))
    file = file_of(tmp_path)
    moved = file.rename(tmp_path / "moved")
    file.mkdir()
    for text in ("one", "two"):
        testing.log(testing.LogLevel.INFO, text)
        testing.flush_log()
    assert [line[-3:] for line in moved.read_text().splitlines() if " INFO " in line] == ["one", "two"]
    said = [line for line in capfd.readouterr().err.splitlines() if " INFO " not in line]
    assert len(said) == 1
    assert f"the log file in --log-dir {tmp_path} cannot be opened again: Is a directory" in said[0]


def test_a_pipe_in_the_file_s_place_keeps_nobody(tmp_path, capfd):
    """Row 1: a file system that hangs is like a pipe that is full."""
    configure(directory=str(tmp_path))
    file = file_of(tmp_path)
    file.unlink()
    os.mkfifo(file)
    reader = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(file, os.O_WRONLY | os.O_NONBLOCK)
    with FullPipe(reader, writer) as pipe:
        testing.log(testing.LogLevel.WARNING, "look")
        eventually(lambda: capfd.readouterr().err.endswith(" WARNING look\n"))
        pipe.drain_in_background()
        assert testing.flush_log()
        assert pipe.text().endswith(" WARNING look\n")
        file.unlink()
        testing.configure_log()
