"""Where co_await may stand; cpp/net/task.h says which bugs of the compiler that avoids."""

import re
from pathlib import Path

import pytest

from tests.rows import for_each_row

ROOT = Path(__file__).parents[2]

COMMENTS_AND_TEXTS = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
# Nothing, co_return, or what gets the result: a name, declared here or not, and `=`.
PLACE = re.compile(r"(?:[^()?&|!{},]|\[[\w, ]+\]|<[\w:, <>]*>)*=\s*|\s*(?:co_return\s+)?")
CONTROL = re.compile(r"\s*(?:else\s+)?(?:if|while|for|switch) ?(?:constexpr )?\(")


def after_control(statement):
    """Without a leading `if (…)` or its like, whose condition must be whole."""
    while match := CONTROL.match(statement):
        depth = 1
        end = match.end()
        while end < len(statement) and depth:
            depth += {"(": 1, ")": -1}.get(statement[end], 0)
            end += 1
        if depth:
            return None  # the condition is still open
        statement = statement[end:]
    return re.sub(r"^\s*(?:else|do|case [^:?]+:|default:)\s+", "", statement)


def misplaced(text):
    """Line numbers of those that stand elsewhere."""
    code = COMMENTS_AND_TEXTS.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    found = []
    for match in re.finditer(r"\bco_await\b", code):
        begin = max(code.rfind(mark, 0, match.start()) for mark in ";{}") + 1
        before = after_control(code[begin : match.start()])
        braced = code[begin - 1 : match.start()] == "{"  # a block has a space there
        copied = re.match(r"\s*\*", code[match.end() :])
        if before is None or braced or copied or not PLACE.fullmatch(before):
            found.append(code.count("\n", 0, match.start()) + 1)
    return found


def test_co_await_stands_at_the_beginning_or_behind_an_equals_sign():
    assert [
        f"{path.relative_to(ROOT)}:{line}"
        for room in ("cpp", "tests", "benchmarks")
        for path in sorted((ROOT / room).rglob("*"))
        if path.suffix in (".h", ".cc")
        for line in misplaced(path.read_text(encoding="utf-8"))
    ] == []


@pytest.mark.parametrize(
    "good",
    [
        "{ co_await A(); }",
        "x = co_await A();",
        "const std::optional<int> x = co_await A({1, 2}, [] { return true; });",
        "const auto [a, b] = co_await A();",
        "if (a && b(c)) x = co_await A();",
        "while (open > 0) co_await all;",
        "else co_await A();",
        "co_return co_await A();",
        "case 3: co_await A();",
        "// if (!co_await A())",
    ],
)
def test_what_may_be(good):
    assert misplaced(good) == []


@for_each_row(
    "bad",
    [
        "if (co_await A()) {",
        "if (!co_await A()) {",
        "if ((x = co_await A()) > 0) {",
        "if (const bool x = co_await A(); x) {",
        "while (n < 2 && co_await A()) {",
        "for (int i = 0; i < 2 && co_await A(); ++i) {",
        "for (const auto& x : co_await A()) {",
        "switch (co_await A()) {",
        "x = a && co_await A();",
        "x = a ? co_await A() : b;",
        "Use(co_await A());",
        "x = Use(1, co_await A());",
        "Row row{name, co_await A()};",
        "Row row{co_await A()};",
        "x += (co_await A()).size();",
        "x = !co_await A();",
        "co_await *a;",
    ],
)
def test_what_may_not_be(bad):
    assert misplaced(bad) == [1]
