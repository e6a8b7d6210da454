"""_admission_file.py: a file of priority classes as it was read, and what it becomes."""

import pytest

from vllm_router._admission_file import AdmissionFile

SEVEN = "classes: [{name: batch, queue_size: 7}]\n"
EIGHT = SEVEN.replace("7", "8")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "classes.yaml"
    path.write_text(SEVEN)
    return path


def test_it_is_read_when_it_is_made(path):
    assert "queue_size=7" in AdmissionFile(str(path)).lines


def test_it_is_read_again_whenever_that_is_called_for(path):
    file = AdmissionFile(str(path))
    path.write_text(EIGHT)
    assert "queue_size=8" in file.again()
    assert "queue_size=7" in file.lines  # which its owner replaces


def test_a_look_reads_one_that_two_looks_saw(path):
    file = AdmissionFile(str(path))
    assert file.look() is None
    path.write_text(EIGHT)
    assert file.look() is None
    assert "queue_size=8" in file.look()
    assert file.look() is None


def test_a_mistake_is_said_once(path):
    file = AdmissionFile(str(path))
    path.write_text("classes: 1\n")
    assert file.look() is None
    with pytest.raises(ValueError, match=r"classes\.yaml, line 1: classes is 1"):
        file.look()
    assert file.look() is None
    path.unlink()
    with pytest.raises(ValueError, match=r"admission_config: .* cannot be read"):
        file.look()
    assert file.look() is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "admission_config: .*classes.yaml cannot be read"),
        (b"classes:\n- \xff\n", "classes.yaml, line 2: this is not UTF-8 text"),
        (b"", "classes.yaml is empty"),
    ],
    ids=["gone", "bytes", "empty"],
)
def test_one_that_cannot_be_read(path, content, message):
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        AdmissionFile(str(path))
