"""python/vllm_router/_watched_file.py: when a file that is looked at again and again is read."""

import os
from pathlib import Path

import pytest

from vllm_router._watched_file import Look, WatchedFile, WatchedFileError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_text("one")
    return path


def watched(path: Path) -> WatchedFile:
    return WatchedFile(str(path), "file of numbers", "a file with a number")


def test_the_first_look_reads_and_later_ones_only_what_is_new(path: Path) -> None:
    file = watched(path)
    assert [file.look() for _ in range(3)] == [b"one", Look.SAME, Look.SAME]


def test_a_change_is_read_at_the_second_look_that_finds_it(path: Path) -> None:
    file = watched(path)
    file.look()
    path.write_text("two, and more")
    assert [file.look() for _ in range(3)] == [Look.UNSETTLED, b"two, and more", Look.SAME]


def test_a_file_that_goes_on_changing_is_not_read(path: Path) -> None:
    file = watched(path)
    file.look()
    for length in range(5, 9):
        path.write_text("x" * length)
        assert file.look() is Look.UNSETTLED
    assert file.look() == b"x" * 8


def test_a_link_is_followed(path: Path) -> None:
    other, link = path.with_name("other"), path.with_name("link")
    other.write_text("two")
    link.symlink_to(path)
    file = watched(link)
    assert file.look() == b"one"
    fresh = path.with_name("fresh")
    fresh.symlink_to(other)
    fresh.replace(link)
    assert [file.look(), file.look()] == [Look.UNSETTLED, b"two"]


def test_a_file_that_is_gone_is_an_error_until_it_is_back(path: Path) -> None:
    file = watched(path)
    file.look()
    aside = path.rename(path.with_name("aside"))
    for _ in range(2):
        with pytest.raises(WatchedFileError, match="cannot be read: No such file"):
            file.look()
    aside.rename(path)
    assert [file.look() for _ in range(3)] == [Look.UNSETTLED, b"one", Look.SAME], "renaming is a change"


def test_a_file_that_is_rewritten_in_place_with_its_time_set_back_is_read(path: Path) -> None:
    file = watched(path)
    file.look()
    before = path.stat()
    path.write_text("two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_ino, path.stat().st_size) == (before.st_ino, before.st_size)
    assert [file.look(), file.look()] == [Look.UNSETTLED, b"two"]


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(WatchedFileError, match=r"is a pipe.* it must be a file with a number"):
        watched(pipe).look()
    with pytest.raises(WatchedFileError, match="is a directory"):
        watched(tmp_path).look()
