"""cpp/base/whole_file.h: nobody ever sees half of a file."""

import errno
import os

from vllm_router import _core_testing as testing


def test_a_file_is_written_whole_and_read_whole(tmp_path):
    path = tmp_path / "f"
    for content in (b"", b"one", bytes(range(256)) * 1000):
        assert testing.write_whole_file(str(path), content) == ("", 0)
        assert testing.read_whole_file(str(path)) == (content, "", 0)
        assert [each.name for each in tmp_path.iterdir()] == ["f"], "no temporary file is left"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path):
    """mending row 47: and no temporary file is left."""
    (tmp_path / "folder").mkdir()
    said, error = testing.write_whole_file(str(tmp_path / "folder"), b"x")
    assert error == errno.EISDIR
    assert f'"{tmp_path}/folder" cannot be written: Is a directory' in said
    said, error = testing.write_whole_file(str(tmp_path / "none" / "f"), b"x")
    assert (error, "No such file" in said) == (errno.ENOENT, True)
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


def test_what_cannot_be_read_is_named(tmp_path):
    """mending row 47: a missing file, a folder, a pipe, a file beyond the limit."""
    assert testing.read_whole_file(str(tmp_path / "none"))[2] == errno.ENOENT
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * 11)
    for name, sentence in [
        ("", "is not a regular file"),
        ("pipe", "is not a regular file"),
        ("large", "has 11 bytes; at most 10"),
    ]:
        content, said, error = testing.read_whole_file(str(tmp_path / name), 10)
        assert (content, error) == (None, 0)
        assert said.startswith("DATA_LOSS: ")
        assert sentence in said
