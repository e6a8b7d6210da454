"""A file of keys that changes under the router."""

import os

import pytest

from vllm_router import _core_testing as testing
from vllm_router._core import configure_log, flush_log

FLAG = "--client-api-key-file"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "keys"
    path.write_text("one\n")
    return path


@pytest.fixture
def said(capfd):
    configure_log("info")

    def said():
        flush_log()
        return capfd.readouterr().err

    return said


def test_a_file_that_is_not_there_is_named_with_its_flag(tmp_path):
    with pytest.raises(OSError, match=f"{FLAG} .*none cannot be read: No such file") as refusal:
        testing.KeyFile(FLAG, str(tmp_path / "none"))
    assert "name a file that this process may read" in str(refusal.value)
    with pytest.raises(OSError, match="Is a directory"):
        testing.KeyFile(FLAG, str(tmp_path))


def test_a_pipe_that_nobody_writes_to_is_empty_and_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="has no key"):
        testing.KeyFile(FLAG, str(tmp_path / "pipe"))


def test_it_is_read_when_it_changed_and_has_settled(path):
    file = testing.KeyFile(FLAG, str(path))
    assert "one" in file
    assert not file.poll()
    path.write_text("two\n")
    assert not file.poll()  # seen for the first time: perhaps it is still being written
    assert file.poll()
    assert "two" in file
    assert "one" not in file
    assert not file.poll()


def test_it_is_left_in_peace_while_it_grows(path):
    file = testing.KeyFile(FLAG, str(path))
    for number in range(5):
        with path.open("a") as more:
            more.write(f"key-{number}\n")
        assert not file.poll()
    assert file.poll()
    assert len(file) == 6


@pytest.mark.parametrize("bad", ["", "a b\n", None])
def test_a_bad_file_changes_nothing_and_is_complained_of_once(path, said, bad):
    file = testing.KeyFile(FLAG, str(path))
    said()
    if bad is None:
        path.unlink()
    else:
        path.write_text(bad)
    for _ in range(5):
        assert not file.poll()
    assert "one" in file
    complaints = said()
    assert complaints.count(f"{FLAG} {path}") == 1
    assert "The previous keys stay in force (1 key)" in complaints
    path.write_text("two\n")
    assert [file.poll(), file.poll()] == [False, True]
    assert "two" in file
    assert f"{FLAG} {path}: reloaded, 1 key (1 before)" in said()


def test_equal_keys_are_not_said_to_be_reloaded(path, said):
    file = testing.KeyFile(FLAG, str(path))
    said()
    path.write_text("# a comment\none\n")
    assert [file.poll(), file.poll()] == [False, True]
    assert f"{FLAG} {path}: unchanged, 1 key" in (lines := said())
    assert "reloaded" not in lines


def test_a_link_that_leads_elsewhere_is_a_change(tmp_path):
    """As Kubernetes does it with secrets."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "keys").write_text(name)
    (tmp_path / "data").symlink_to("one")
    file = testing.KeyFile(FLAG, str(tmp_path / "data" / "keys"))
    (tmp_path / "fresh").symlink_to("two")
    (tmp_path / "fresh").replace(tmp_path / "data")
    assert [file.poll(), file.poll()] == [False, True]
    assert "two" in file


def test_a_reload_does_not_wait_for_anything(path):
    file = testing.KeyFile(FLAG, str(path))
    path.write_text("two\n")
    assert file.reload()
    assert "two" in file
    path.write_text("")
    assert not file.reload()
    assert "two" in file


def test_other_attributes_are_a_change(path, said):
    file = testing.KeyFile(FLAG, str(path))
    path.write_text("one tenant=a\n")
    said()
    assert file.reload()
    assert f"{FLAG} {path}: reloaded, 1 key (1 before)" in said()
    path.write_text("one clas=batch\n")
    assert not file.reload()
    assert "line 1: the attribute clas= is unknown" in (lines := said())
    assert "The previous keys stay in force (1 key)" in lines
