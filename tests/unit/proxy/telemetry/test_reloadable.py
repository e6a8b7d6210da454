"""What is read again, by the example of a key file.

Over the wire: tests/proxy/test_keys.py, test_tls_faults.py, test_record_log.py.
"""

import pytest

from vllm_router import _core_testing as testing


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "keys"
    path.write_text("one\n")
    return path


def counts(file):
    return file.reloads_done, file.reloads_failed, file.last_success


def test_a_success_and_a_failure_are_counted_and_the_last_success_has_its_time(path):
    file = testing.KeyFile("--client-api-key-file", str(path))
    assert counts(file) == (0, 0, 0)
    assert file.reload(now=1000)
    assert counts(file) == (1, 0, 1000)
    path.unlink()
    assert not file.reload(now=2000)
    assert counts(file) == (1, 1, 1000)


def test_a_poll_counts_when_there_was_something_new(path):
    file = testing.KeyFile("--client-api-key-file", str(path))
    assert not file.poll(now=1000)
    assert counts(file) == (0, 0, 0)
    path.write_text("two\n")
    assert [file.poll(now=now) for now in (1001, 1002, 1003)] == [False, True, False]
    assert counts(file) == (1, 0, 1002)
