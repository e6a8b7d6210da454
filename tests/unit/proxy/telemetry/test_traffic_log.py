"""cpp/proxy/telemetry/traffic_log.h:
appended to, opened again, and what becomes of lines that it does not take.
"""

import json
import re
import stat

import pytest

from vllm_router import _core_testing as testing


@pytest.fixture
def path(tmp_path):
    return tmp_path / "traffic.jsonl"


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def is_head(row):
    return "vllm_router_record_log" in row


def test_a_file_begins_with_a_head_and_lines_follow(path):
    log = testing.TrafficLog(str(path), block_size=32)
    assert is_head(rows(path)[0])
    assert rows(path)[0]["block_size"] == 32
    assert log.write('{"a": 1}\n{"a": 2}\n')
    assert rows(path)[1:] == [{"a": 1}, {"a": 2}]
    assert (log.written, log.lost) == (2, 0)
    assert stat.S_IMODE(path.stat().st_mode) & 0o007 == 0


def test_a_second_opening_appends_a_head_under_the_same_salt_or_another(path, tmp_path):
    salts = []
    for salt in ("s", "s", "t", ""):
        log = testing.TrafficLog(str(path), salt_path=str(tmp_path / salt) if salt else "")
        del log
        salts.append(rows(path)[-1]["salt_id"])
    assert salts[0] == salts[1]
    assert len(set(salts)) == 3


def test_a_file_that_was_deleted_is_made_anew_by_the_next_line(path, capfd):
    """Row 31: lines went to a file that nobody can read, until somebody reloaded the settings."""
    directory = path.parent / "logs"
    directory.mkdir()
    path = directory / path.name
    log = testing.TrafficLog(str(path))
    log.write('{"a": 1}\n')
    path.unlink()
    log.write('{"a": 2}\n')
    assert is_head(rows(path)[0])
    assert rows(path)[1:] == [{"a": 2}]
    path.unlink()
    directory.rmdir()
    for _ in range(3):
        log.write('{"a": 3}\n')
    assert capfd.readouterr().err.count("cannot be written: No such file or directory") == 1
    directory.mkdir()
    log.write('{"a": 4}\n')
    assert rows(path)[1:] == [{"a": 4}]


def test_a_path_that_cannot_be_opened_again_leaves_the_file_in_use(path, capfd):
    testing.configure_log()
    log = testing.TrafficLog(str(path))
    moved = path.rename(path.with_suffix(".1"))
    path.mkdir()
    log.reopen()
    log.write('{"a": 1}\n')
    assert rows(moved)[1:] == [{"a": 1}]
    assert (log.written, log.lost) == (1, 0)
    assert f"ERROR --record-log {path} cannot be written: Is a directory" in capfd.readouterr().err


def test_a_disk_without_room_loses_lines_and_says_so_once(path, capfd):
    testing.configure_log()
    log = testing.TrafficLog(str(path))
    path.unlink()
    path.symlink_to("/dev/full")
    log.reopen()
    for _ in range(3):
        log.write('{"a": 1}\n{"a": 2}\n')
    assert (log.written, log.lost) == (0, 6)
    errors = re.findall("ERROR .*", capfd.readouterr().err)
    assert len(errors) == 2  # of the head, and of the first lines
    assert "No space left on device" in errors[1]

    path.unlink()
    log.reopen()
    log.write('{"a": 3}\n')
    assert (log.written, log.lost) == (1, 6)
    assert is_head(rows(path)[0])
    assert rows(path)[1:] == [{"a": 3}]
    assert "is written again; 6 requests are not in it" in capfd.readouterr().err


def test_a_line_that_was_cut_off_ends_before_the_next_head(path):
    path.write_text('{"a": 1}\n{"a": ')
    log = testing.TrafficLog(str(path))
    del log
    lines = path.read_text().splitlines()
    assert lines[:2] == ['{"a": 1}', '{"a": ']
    assert is_head(json.loads(lines[2]))


@pytest.mark.parametrize(
    ("name", "reason"), [("nowhere/log", "No such file or directory"), (".", "Is a directory")]
)
def test_a_file_that_cannot_be_written_ends_the_start(tmp_path, name, reason):
    with pytest.raises(
        OSError, match=re.escape(f"cannot be written: {reason}; name a file that this process")
    ):
        testing.TrafficLog(str(tmp_path / name))
    with pytest.raises(OSError, match="--record-log /dev/full cannot be written: No space left on device"):
        testing.TrafficLog("/dev/full")
