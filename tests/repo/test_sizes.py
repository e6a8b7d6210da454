"""Files and classes of cpp/proxy are small enough to be read, and no header includes itself by others."""

import re

import pytest

from tests.repo.rules import none_of
from tests.repo.test_arrows import CPP, SOURCES, includes

MAX_LINES = 600  # of a file
MAX_PARTS = 45  # methods and members of a class together

PROXY = [path for path in SOURCES if CPP / "proxy" in path.parents]

# A member for each option or for each thing that is recorded, and little else.
TABLES = {"FixedOptions", "Settings", "RequestInfo"}

NOT_CODE = re.compile(
    r"//[^\n]*|/\*.*?\*/"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<!\w)'(?:\\.|[^'\\\n])'"
    r"|^[ \t]*#(?:\\\n|[^\n])*",
    re.DOTALL | re.MULTILINE,
)
BLOCK = "\0"
INNERMOST = re.compile(r"\{([^{}]*)\}")
TYPE = re.compile(
    r"(?<!enum )(?:class|struct|union)\s+(?:alignas\([^)]*\)\s*)?(\w+)(?:<[^<>]*>)?(?:\s+final)?"
    r"(?:\s*:[^:()][^()]*)?\s*$"
)
LABEL = re.compile(r"\b(?:public|protected|private)\s*:(?!:)")
# A block that ends what it belongs to: neither a value nor a constructor's initializer.
END = re.compile(rf"{BLOCK}(?=\s*[^\s;,){BLOCK}])|;")
# Types, what stands elsewhere, and constants, which no object has.
NO_PART = re.compile(
    r"\s*(?:template\s*<.*?>\s*)?(?:using|typedef|friend|static_assert|enum|class|struct|union)\b"
    r"|\s*static constexpr [^(]*=",
    re.DOTALL,
)


def sizes(text):
    """The classes of a header: pairs of a name and its number of methods and members, inner classes first."""
    code = NOT_CODE.sub("", text)
    found = []
    while block := INNERMOST.search(code):
        before = re.split(rf"[;{{}}{BLOCK}]", code[: block.start()])[-1]
        if kind := TYPE.search(before):
            found.append((kind[1], parts(block[1])))
        code = code[: block.start()] + BLOCK + code[block.end() :]
    return found


def parts(body):
    """How many methods and members a class has, by what stands between its braces, blocks replaced."""
    statements = (LABEL.sub("", statement).strip() for statement in END.split(body))
    return sum(
        not NO_PART.match(statement) and not re.search(r"=\s*delete$", statement)
        for statement in statements
        if statement
    )


def test_a_file_of_the_proxy_can_be_read_at_once():
    long = {path.relative_to(CPP): path.read_text().count("\n") for path in PROXY}
    none_of(
        [f"{path}: {lines}" for path, lines in long.items() if lines > MAX_LINES],
        f"divide these by what belongs together: they have more than {MAX_LINES} lines",
    )


def test_a_class_of_the_proxy_has_one_concern():
    all_sizes = {}
    for path in PROXY:
        for name, size in sizes(path.read_text()):
            all_sizes[name] = max(size, all_sizes.get(name, 0))
    assert len(all_sizes) > 200
    large = {name: size for name, size in all_sizes.items() if size > MAX_PARTS and name not in TABLES}
    none_of(
        [f"{name}: {size}" for name, size in large.items()],
        f"divide these by what belongs together: they have more than {MAX_PARTS} methods and members",
    )


def test_no_header_includes_itself_by_way_of_others():
    headers = {str(path.relative_to(CPP)): path for path in SOURCES if path.suffix == ".h"}
    direct = {name: includes(path, '"([^"]+)"') for name, path in headers.items()}
    done, under_way, circles = set(), [], []

    def visit(name):
        if name in under_way:
            circles.append(" -> ".join([*under_way[under_way.index(name) :], name]))
        if name in done or name in under_way:
            return
        under_way.append(name)
        for other in direct.get(name, ()):
            visit(other)
        done.add(under_way.pop())

    for name in sorted(headers):
        visit(name)
    none_of(circles, "declare the class forward in one of each circle")


SAMPLES = {
    "plain": ("class A { int a_; void F(); };", [("A", 2)]),
    "values": ("struct A final : B, C<int> { int a = 1; int b{2}; };", [("A", 2)]),
    "initializers": ("class A { public: A() : a_{1}, b_(2) {} private: int a_; int b_; };", [("A", 3)]),
    "bodies": ("class A { void F() { if (x) { y(); } } int G() const { return {}; } };", [("A", 2)]),
    "defaults": ("class A { void F(B b = {}, int c = 0); B b_ = {1, {2}}; };", [("A", 2)]),
    "none": ("class A { A(A&) = delete; friend class B; using C = int; enum class D { kX }; };", [("A", 0)]),
    "constants": ("class A { static constexpr int kX = 3; static constexpr int F(int x = 0); };", [("A", 1)]),
    "inner": (
        "class A { struct B { int b; } b_; struct C { int c; int d; }; };",
        [("B", 1), ("C", 2), ("A", 1)],
    ),
    "comments": ('class A { // int a;\n/* int b; */ std::string c_ = "{;"; };', [("A", 1)]),
    "templates": (
        "template <typename T> class A { template <typename F> void G(F f) { f(); } };",
        [("A", 1)],
    ),
    "declarations": ("class A; class B* F(); enum class C : int { kX };", []),
}


@pytest.mark.parametrize("sample", SAMPLES)
def test_methods_and_members_are_counted(sample):
    text, expected = SAMPLES[sample]
    assert sizes(text) == expected
