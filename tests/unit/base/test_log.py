"""cpp/base/log.h: where lines go, what they look like, and that a line stays a line."""

import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_a_warning_is_in_the_file_at_once(tmp_path, capfd):
    configure(directory=str(tmp_path))
    testing.log(testing.LogLevel.WARNING, "look")
    (file,) = tmp_path.iterdir()
    assert file.read_text().endswith(" WARNING look\n")
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
