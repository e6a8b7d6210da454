"""Write what `_core.pyi` says of the extension as a C++ table: core_docs.py STUB OUTPUT.

The stub is the one source of signatures and docstrings: type checkers read it as it is, and
cpp/bindings/callables.cc gives every function, method and property what it says there, for `help()`,
`inspect.signature` and error messages.
"""

import ast
import inspect
import sys
from pathlib import Path


def expanded(annotation: ast.expr | None, aliases: dict[str, ast.expr]) -> str:
    """The annotation, with the stub's own names for unions written out."""

    class Expand(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return aliases.get(node.id, node)

    if annotation is None:
        return ""
    text = ast.unparse(annotation)
    for _ in aliases:  # an alias may name another
        text = ast.unparse(Expand().visit(ast.parse(text, mode="eval")).body)
    return text


def parameters(function: ast.FunctionDef) -> list[tuple[ast.arg, str, ast.expr | None]]:
    """Each parameter, its kind in C++, its default."""
    given = function.args
    by_position = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(by_position) - len(given.defaults)) + given.defaults
    rows = [(arg, "kByPosition", default) for arg, default in zip(by_position, defaults, strict=True)]
    rows += [
        (arg, "kByName", default) for arg, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    if given.kwarg:
        rows.append((given.kwarg, "kAnyName", None))
    return rows


def signature(name: str, function: ast.FunctionDef, skip_self: bool = False) -> str:
    """What CPython reads from the head of a docstring: the parameters and their defaults, as literals."""
    parts = []
    for arg, kind, default in parameters(function)[1 if skip_self else 0 :]:
        if kind == "kByName" and "*" not in parts:
            parts.append("*")
        value = f"={ast.literal_eval(default)!r}" if default is not None else ""
        parts.append(("**" if kind == "kAnyName" else "") + arg.arg + value)
    return f"{name}({', '.join(parts)})\n--\n\n"


def literal(text: str) -> str:
    """As a raw string of C++."""
    assert ')~"' not in text
    return f'R"~({text})~"'


class Table:
    """Rows by qualified name."""

    def __init__(self, stub: ast.Module) -> None:
        self.aliases = {
            node.target.id: node.value
            for node in stub.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value
        }
        self.rows: dict[str, tuple[str, list[str]]] = {}
        self.collect(stub.body, "")

    def collect(self, body: list[ast.stmt], scope: str) -> None:
        """Add what is defined there. Of overloads the first one counts: it is the widest."""
        for node, following in zip(body, [*body[1:], None], strict=True):
            if isinstance(node, ast.ClassDef):
                self.add_class(node)
            elif isinstance(node, ast.FunctionDef) and scope + node.name not in self.rows:
                decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
                doc = ast.get_docstring(node) or ""
                if "property" in decorators:
                    self.rows[scope + node.name] = (doc, [self.row("", node.returns, "kByName", True)])
                else:
                    self.rows[scope + node.name] = (
                        signature(node.name, node) + doc,
                        [
                            self.row(arg.arg, arg.annotation, kind, default is not None or kind == "kAnyName")
                            for arg, kind, default in parameters(node)
                        ],
                    )
            elif isinstance(node, ast.AnnAssign) and scope and isinstance(node.target, ast.Name):
                doc = ""
                if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                    doc = inspect.cleandoc(str(following.value.value))
                self.rows[scope + node.target.id] = (doc, [self.row("", node.annotation, "kByName", True)])

    def add_class(self, node: ast.ClassDef) -> None:
        """The class itself, with the signature of its constructor, and its members."""
        doc = ast.get_docstring(node) or ""
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and member.name == "__init__":
                doc = signature(node.name, member, skip_self=True) + doc
        self.rows[node.name] = (doc, [])
        self.collect(node.body, node.name + ".")

    def row(self, name: str, annotation: ast.expr | None, kind: str, optional: bool) -> str:
        """A `Parameter` in C++."""
        words = [literal(name), literal(expanded(annotation, self.aliases)), f"Parameter::{kind}"]
        return "{" + ", ".join([*words, "false" if optional else "true"]) + "}"

    def write(self) -> str:
        """The C++ source, sorted by name."""
        lines = ["// Made from python/vllm_router/_core.pyi by cmake/core_docs.py."]
        table = []
        for number, (name, (doc, rows)) in enumerate(sorted(self.rows.items())):
            if rows:
                lines.append(f"constexpr Parameter kParameters{number}[] = {{{', '.join(rows)}}};")
            span = f"kParameters{number}" if rows else "{}"
            table.append(f"    {{{literal(name)}, {literal(doc)}, {span}}},")
        return "\n".join([*lines, "constexpr Documented kDocumented[] = {", *table, "};", ""])


if __name__ == "__main__":
    stub_path, output = Path(sys.argv[1]), Path(sys.argv[2])
    output.write_text(Table(ast.parse(stub_path.read_text(encoding="utf-8"))).write(), encoding="utf-8")
