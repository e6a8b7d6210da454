"""cpp/net/task.h"""

import pytest

from vllm_router import _core_testing as testing


@pytest.mark.parametrize("depth", [0, 1, 10, 1000])
def test_a_task_awaits_another_and_gets_its_value(depth):
    assert testing.run_deep_tasks(depth) == depth


def test_a_signal_resumes_whoever_waits():
    assert testing.signal_story(notify_first=False) == [
        "waits", "notify", "goes on", "second waits", "end", "second goes on",
    ]  # fmt: skip


def test_a_notification_before_the_wait_is_kept_once():
    assert testing.signal_story(notify_first=True) == [
        "notify", "waits", "goes on", "second waits", "end", "second goes on",
    ]  # fmt: skip
    assert testing.signal_story(notify_first=True, notifications=3)[3:6] == [
        "waits",
        "goes on",
        "second waits",
    ]


def test_a_second_notification_waits_for_the_next_waiter():
    story = testing.signal_story(notify_first=False, notifications=2)
    assert story == ["waits", "notify", "goes on", "notify", "second waits", "second goes on", "end"]


def test_a_task_destroys_its_locals_and_parameters_whether_it_ran_or_not():
    assert testing.destroyed_locals(run=False) == 1  # the parameter
    assert testing.destroyed_locals(run=True) == 2
