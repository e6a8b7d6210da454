"""cpp/bindings/json_text.h: dicts as the text that a client sends. tests/property compares them with json."""

import enum
import json
import sys

import pytest

from tests.rows import for_each_row
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


@for_each_row(
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


class Message:
    def __init__(self, **members):
        self._private = object()
        self.__dict__.update(members)


class Model:
    """As pydantic has it."""

    __slots__ = ("members",)

    def __init__(self, **members):
        self.members = members

    def model_dump(self):
        return self.members


def dumped(value):
    return testing.json_text(value, dump_objects=True).decode()


def test_objects_are_dumped_where_that_is_wanted():
    """mending row 52: messages may be objects with model_dump() or __dict__."""
    hello = {"role": "user", "content": [{"type": "text", "text": "Hello"}]}
    expected = json.dumps([hello], separators=(",", ":"))
    parts = [Model(type="text", text="Hello", detail=None)]
    assert dumped([Model(**hello, name=None)]) == expected
    assert dumped([Message(**hello, name=None)]) == expected
    assert dumped([Message(role="user", content=parts)]) == expected
    assert dumped([Model(role="user", content=parts)]) == expected
    assert dumped([{"kept": None, "_kept": 1}]) == '[{"kept":null,"_kept":1}]'
    for value in ([object()], [Message], [{1, 2}], [Model]):
        with pytest.raises(TypeError, match="which JSON does not have"):
            dumped(value)
    for value in (Message(x=1), Model(x=1)):
        with pytest.raises(TypeError, match="which JSON does not have"):
            testing.json_text(value)


def test_an_object_that_changes_what_is_being_written_does_no_harm():
    """mending row 52: model_dump() is Python code."""
    for container in ([], {}):

        class Vandal:
            def model_dump(self, container=container):
                container.clear()
                return {"role": "user"}

        if isinstance(container, dict):
            container.update({str(i): [Vandal()] for i in range(20)})
        else:
            container.extend(Vandal() for _ in range(20))
        assert dumped(container).startswith(("[{", '{"0"'))

    class Endless:
        def model_dump(self):
            return {"x": self}

    with pytest.raises(RecursionError):
        dumped([Endless()])
