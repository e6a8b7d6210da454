"""cpp/net/resolver.h"""

import pytest

from vllm_router import _core_testing as testing

NO_NAME = "a" * 64  # a label longer than 63 letters is nobody's, and no server is asked


@pytest.mark.parametrize("literal", ["127.0.0.1", "::1", "10.1.2.3"])
def test_a_literal_is_known_without_asking(literal):
    resolver = testing.Resolver()
    assert resolver.known(literal) == [literal]
    assert resolver.resolve(literal) == [literal]


def test_a_name_is_known_once_it_was_resolved():
    resolver = testing.Resolver()
    assert resolver.known("localhost") is None
    addresses = resolver.resolve("localhost")
    assert set(addresses) & {"127.0.0.1", "::1"}
    assert resolver.known("localhost") == addresses
    assert resolver.resolve("localhost") == addresses


def test_a_name_without_an_address_is_an_error_that_names_it():
    resolver = testing.Resolver()
    with pytest.raises(ValueError, match=f"UNAVAILABLE: the name '{NO_NAME}' has no address: "):
        resolver.resolve(NO_NAME)
    assert resolver.known(NO_NAME) is None


# ---- with a test in place of the system, and a clock that stands still


@pytest.fixture
def names():
    return testing.Resolver(manual=True)


def known(names, host, *addresses):
    inquiry = names.begin(host)
    names.tell(list(addresses))
    assert inquiry.get() == list(addresses)


def test_all_who_wait_for_a_name_ask_once(names):
    inquiries = [names.begin("gpu-0") for _ in range(5)]
    assert names.asked == ["gpu-0"]
    names.tell(["10.0.0.1", "10.0.0.2"])
    assert [inquiry.get() for inquiry in inquiries] == [["10.0.0.1", "10.0.0.2"]] * 5
    assert names.asked == []


def test_an_old_answer_is_good_enough_while_somebody_asks(names):
    known(names, "gpu-0", "10.0.0.1")
    names.advance(29.9)
    assert names.known("gpu-0") == ["10.0.0.1"]
    names.advance(0.1)
    assert names.known("gpu-0") is None
    assert [names.resolve("gpu-0") for _ in range(3)] == [["10.0.0.1"]] * 3
    assert names.asked == ["gpu-0"]
    names.tell(["10.0.0.9"])
    assert names.resolve("gpu-0") == ["10.0.0.9"]
    assert names.asked == []


def test_when_asking_again_fails_the_old_answer_goes_on_and_is_asked_for_now_and_then(names):
    known(names, "gpu-0", "10.0.0.1")
    names.advance(30)
    for _ in range(4):
        assert names.resolve("gpu-0") == ["10.0.0.1"]
        names.tell([])
        assert names.resolve("gpu-0") == ["10.0.0.1"]
        assert names.asked == []
        names.advance(5)
    assert names.resolve("gpu-0") == ["10.0.0.1"]
    names.tell(["10.0.0.9"])
    assert names.resolve("gpu-0") == ["10.0.0.9"]


def test_a_name_whose_addresses_do_not_answer_is_asked_for_anew(names):
    """A worker that comes back under its name has another address."""
    known(names, "gpu-0", "10.0.0.1")
    names.advance(1)
    names.doubt("gpu-0")
    assert names.resolve("gpu-0") == ["10.0.0.1"]
    names.tell(["10.0.0.9"])
    assert names.resolve("gpu-0") == ["10.0.0.9"]


def test_but_not_more_than_once_a_second(names):
    known(names, "gpu-0", "10.0.0.1")
    asked = 0
    for _ in range(50):  # each 0.1 s a request fails
        names.advance(0.1)
        names.doubt("gpu-0")
        names.resolve("gpu-0")
        if names.asked:
            asked += 1
            names.tell(["10.0.0.1"])
    assert 4 <= asked <= 5


def test_nobody_has_to_wait(names):
    leaving, staying = names.begin("gpu-0"), names.begin("gpu-0")
    leaving.cancel()
    with pytest.raises(ValueError, match="UNAVAILABLE: the lookup was cancelled"):
        leaving.get()
    names.tell(["10.0.0.1"])
    assert staying.get() == ["10.0.0.1"]


def test_a_name_that_nobody_knew_is_asked_for_each_time(names):
    for _ in range(3):
        inquiry = names.begin("gpu-0")
        names.tell([])
        with pytest.raises(ValueError, match="nobody knows"):
            inquiry.get()
    known(names, "gpu-0", "10.0.0.1")


def test_names_of_workers_that_left_are_forgotten(names):
    for number in range(4096):
        known(names, f"gpu-{number}", "10.0.0.1")
    names.advance(31)
    known(names, "gpu-new", "10.0.0.2")
    assert names.begin("gpu-0")  # it has to be asked for, and waited for, again
    assert names.asked == ["gpu-0"]
    names.tell(["10.0.0.1"])
