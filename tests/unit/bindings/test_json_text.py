"""cpp/bindings/json_text.h: dicts as the text that a client sends. tests/property compares them with json."""

import enum
import json
import sys

import pytest

from vllm_router import _core_testing as testing


def written(value):
    return testing.json_text(value).decode()


def by_json(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


class Role(str, enum.Enum):
    USER = "user"


class Level(enum.IntEnum):
    LOW = 3


class Tokens(int):
    def __repr__(self):
        return "many"


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        (),
        {"a": [1, (2, 3), {"b": None}]},
        {"model": "llama-3", "messages": [{"role": "user", "content": "Hello!"}]},
        [True, False, None],
        [0, -1, 2**63 - 1, 2**63, -(2**63) - 1, 10**40],
        [0.0, -0.0, 1.5, 1e22, 1e-7, 1.0, 123456789.125, 5e-324],
        ["", '"\\/', "\x00\x01\x1f\x20\x7f", "\b\f\n\r\t", "é😀\u2028", "a" * 1000 + '"'],
        {7: "a", 2.5: "b", True: "c", None: "d"},
        [Role.USER, {Role.USER: Role.USER}],
        [Level.LOW, Tokens(5), {Level.LOW: 1}],
    ],
)
def test_text_is_what_json_gives(value):
    assert written(value) == by_json(value)


def test_a_subclass_cannot_choose_the_digits_of_a_long_number():
    assert written(Tokens(10**30)) == str(10**30)


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", {"a": 1j}, iter([])])
def test_values_that_json_does_not_have_are_refused_by_type(value):
    with pytest.raises(TypeError, match="which JSON does not have; use dict"):
        written([value])


def test_names_that_json_does_not_have_are_refused():
    with pytest.raises(TypeError, match="member name in the request is of type tuple"):
        written({(1, 2): 3})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_does_not_have_are_refused(value):
    with pytest.raises(ValueError, match="JSON has finite numbers only"):
        written({"temperature": value})


def test_a_lone_surrogate_is_refused():
    with pytest.raises(UnicodeEncodeError):
        written("\ud800")


def test_a_value_that_contains_itself_is_refused():
    endless = []
    endless.append(endless)
    with pytest.raises(RecursionError):
        written(endless)
    assert sys.getrefcount(endless) >= 2
    assert written([1]) == "[1]", "the guard counts back down"
