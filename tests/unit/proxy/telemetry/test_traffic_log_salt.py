"""cpp/proxy/telemetry/traffic_log_salt.h: the file of the secret:
made once, for its owner alone, and never half read.
"""

import os
import re
import stat
import threading

import pytest

from vllm_router import _core_testing as testing


def refused(path, kind, sentence):
    with pytest.raises(kind, match=re.escape(sentence)) as caught:
        testing.read_or_make_salt(str(path))
    assert str(caught.value).startswith(f"--record-log-salt-file {path} ")


def test_a_file_that_is_missing_is_made_and_then_stays(tmp_path):
    path = tmp_path / "salt"
    key = testing.read_or_make_salt(str(path))
    assert len(key) == 16
    assert path.read_bytes() == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert testing.read_or_make_salt(str(path)) == key
    assert [found.name for found in tmp_path.iterdir()] == ["salt"]
    assert testing.read_or_make_salt(str(tmp_path / "other")) != key


def test_the_mode_is_the_owner_s_alone_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        testing.read_or_make_salt(str(tmp_path / "salt"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "salt").stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_file_that_others_may_use_is_refused(tmp_path, mode):
    path = tmp_path / "salt"
    path.write_bytes(bytes(16))
    path.chmod(mode)
    refused(path, ValueError, "is accessible to other users than its owner; chmod 600 it")


@pytest.mark.parametrize("size", [0, 15, 17, 32])
def test_another_length_is_refused(tmp_path, size):
    path = tmp_path / "salt"
    path.write_bytes(bytes(size))
    path.chmod(0o600)
    refused(path, ValueError, f"has {size} bytes, and a salt has 16; remove it to have a new one made")


def test_what_cannot_be_made_or_read_is_named(tmp_path):
    refused(tmp_path / "nowhere" / "salt", OSError, "cannot be made: No such file or directory")
    directory = tmp_path / "directory"
    directory.mkdir(0o700)
    refused(directory, ValueError, "and a salt has 16")
    link = tmp_path / "link"
    link.symlink_to(link)
    refused(link, OSError, "cannot be read: Too many levels of symbolic links")


def test_a_pipe_without_a_writer_holds_nobody(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path, 0o600)
    refused(path, ValueError, "has 0 bytes")


def test_of_many_who_start_at_once_one_makes_it(tmp_path):
    found = []
    barrier = threading.Barrier(8)

    def start():
        barrier.wait()
        found.append(testing.read_or_make_salt(str(tmp_path / "salt")))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert [found.name for found in tmp_path.iterdir()] == ["salt"]
