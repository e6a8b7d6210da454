"""cpp/net/ready_set.h: told once, by edges. What sockets make of that is in test_socket.py."""

import os

import pytest

from vllm_router import _core_testing as testing


@pytest.fixture
def ready():
    return testing.ReadySet()


def test_a_member_is_told_once_for_what_arrives(ready):
    a = ready.add()
    assert ready.turn() == []
    ready.send(a, b"x")
    assert ready.turn() == [(a, "in")]
    assert ready.turn() == []  # still unread, and told already
    ready.send(a, b"y")
    assert ready.turn() == [(a, "in")]


def test_what_was_there_before_it_entered_is_told_as_well(ready):
    a = ready.add(sent_before=b"x")
    assert ready.turn() == [(a, "in")]


def test_the_peers_end_is_told_apart_from_bytes(ready):
    a, b = ready.add(), ready.add()
    ready.end(b)
    ready.send(a, b"x")
    assert sorted(ready.turn()) == [(a, "in"), (b, "in|rdhup")]


def test_writable_is_told_only_to_who_awaits_it_and_at_once_if_it_is(ready):
    a, b = ready.add(), ready.add()
    ready.await_writable(a)
    assert ready.turn() == [(a, "out")]
    assert ready.turn() == []
    ready.await_writable(a)
    assert ready.turn() == [(a, "out")]
    ready.send(b, b"x")
    assert ready.turn() == [(b, "in")]


def test_a_turn_is_of_some_and_the_rest_come_in_the_next(ready):
    members = [ready.add(sent_before=b"x") for _ in range(100)]
    told = []
    turns = 0
    while some := ready.turn():
        told += [member for member, _ in some]
        turns += 1
    assert sorted(told) == members
    assert turns > 1


def test_a_member_removed_by_another_of_the_same_turn_lives_until_it_ends(ready):
    a, b = ready.add(), ready.add()
    ready.remove_when_told(a, b)
    ready.remove_when_told(b, a)
    ready.send(a, b"x")
    ready.send(b, b"x")
    assert sorted(ready.turn()) == [(a, "in"), (b, "in")]  # an address sanitizer would tell if one had gone
    assert ready.turn() == []
    assert not ready.alive(a)
    assert not ready.alive(b)


def test_a_member_that_was_removed_is_told_nothing_while_a_child_has_its_socket(ready):
    a = ready.add()
    child = ready.duplicate(a)
    try:
        ready.remove(a)  # and closed
        ready.send(a, b"x")
        assert ready.turn() == []
    finally:
        os.close(child)


def test_an_epoll_set_needs_a_descriptor():
    assert "epoll_create1" in testing.ready_set_without_descriptors()
