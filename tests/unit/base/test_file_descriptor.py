"""cpp/base/file_descriptor.h: whatever happens to a file, its descriptor is closed."""

from pathlib import Path

from vllm_router import _core_testing as testing


def test_no_descriptor_is_left_open(tmp_path):
    path, folder = str(tmp_path / "f"), str(tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(10):
        assert testing.write_whole_file(path, b"content") == ("", 0)
        assert testing.write_whole_file(folder, b"content")[1] != 0
        assert testing.read_whole_file(path)[0] == b"content"
        assert testing.read_whole_file(path, most=1)[0] is None  # closed on the early way out, too
        assert testing.read_whole_file(folder)[0] is None
    assert len(list(Path("/proc/self/fd").iterdir())) == before
