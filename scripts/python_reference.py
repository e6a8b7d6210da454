"""Writes docs/reference/python_api.md: python scripts/python_reference.py > docs/reference/python_api.md.

That page has all names, and the first sentence of each function and class. With `--full` it has signatures
and whole docstrings, as the documentation's site shows it. They are read from the syntax trees of the package
and of `_core.pyi`.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Container, Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "python" / "vllm_router"

# Public name -> where it is written; for a class over the core, its core half comes second.
CLASSES = {
    "Router": (("router.py", "Router"), ("_core.pyi", "Router")),
    "Peers": (("peers.py", "Peers"),),
    "Ticket": (("_core.pyi", "Ticket"),),
    "Batch": (("_core.pyi", "Batch"),),
    "Explanation": (("explanation.py", "Explanation"),),
    "RankedWorker": (("explanation.py", "RankedWorker"),),
    "BlockCacheTracker": (("_core.pyi", "BlockCacheTracker"),),
    "BlockMatch": (("blocks.py", "BlockMatch"),),
    "HashRing": (("_core.pyi", "HashRing"),),
    "StringTree": (("_core.pyi", "StringTree"),),
    "TokenTree": (("_core.pyi", "TokenTree"),),
    "PrefixMatch": (("prefix_tree.py", "PrefixMatch"),),
    "WorkerInfo": (("router.py", "WorkerInfo"),),
    "PolicyType": (("router.py", "PolicyType"),),
    "Server": (("server.py", "Server"),),
    "ReloadReport": (("reload.py", "ReloadReport"),),
    "RouterArgs": (("settings/args.py", "RouterArgs"),),
    "RouterError": (("errors.py", "RouterError"),),
    "NoWorkersError": (("errors.py", "NoWorkersError"),),
    "TicketFinishedError": (("errors.py", "TicketFinishedError"),),
    "IndexFileError": (("errors.py", "IndexFileError"),),
    "WorkerNotFoundError": (("errors.py", "WorkerNotFoundError"),),
    "ModelNotFoundError": (("errors.py", "ModelNotFoundError"),),
    "WorkerExistsError": (("errors.py", "WorkerExistsError"),),
    "UnusedOptionWarning": (("errors.py", "UnusedOptionWarning"),),
    "replay.Fleet": (("replay/fleet.py", "Fleet"),),
    "replay.Event": (("replay/fleet.py", "Event"),),
    "replay.Trace": (("replay/trace.py", "Trace"),),
    "replay.Capacity": (("replay/capacity.py", "Capacity"),),
    "testing.SimulatedWorker": (("testing.py", "SimulatedWorker"),),
    "testing.KvCounters": (("testing.py", "KvCounters"),),
    "testing.CapturedRequest": (("testing.py", "CapturedRequest"),),
    "testing.FakeMooncakeMaster": (("_fake_mooncake_master.py", "FakeMooncakeMaster"),),
    "testing.KvEventPublisher": (("_kv_event_publisher.py", "KvEventPublisher"),),
}

# Public functions and where they are written; of several overloads the documented one.
FUNCTIONS = {
    "hash_blocks": "_core.pyi",
    "replay.run": "replay/runner.py",
    "replay.read_trace": "replay/readers.py",
    "replay.generate": "replay/workloads.py",
    "replay.capacity": "replay/capacity.py",
}

HEAD = """\
# Python

`scripts/python_reference.py` writes this page from the docstrings. Everything is imported from
`vllm_router`, but for what begins with `replay.` and `testing.`, which is in `vllm_router.replay` and
`vllm_router.testing`. `vllm_router.__version__` is the version.
The command is `vllm_router.launch_router`: `launch_router(args)`, `main(argv)`, `parse_router_args(argv)`.
The settings that `RouterArgs` holds are those of [the command line](cli.md).
"""
SUMMARY = """\

Here is what there is. What each member does, its arguments, shapes, results and errors are told by
`python -m pydoc vllm_router.Router.select`, and by this page of the site (`make docs`).
"""


def _class(file: str, name: str) -> ast.ClassDef:
    for node in ast.parse((PACKAGE / file).read_text()).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
    raise LookupError(f"{file} has no class {name}")


def _code(text: str) -> Iterator[str]:
    yield from ("", *("    " + line if line else "" for line in text.splitlines()))


def _members(node: ast.ClassDef, overridden: Container[str] = ()) -> Iterator[str]:
    value_classes = (
        "WorkerInfo",
        "BlockMatch",
        "PrefixMatch",
        "Explanation",
        "RankedWorker",
        "Fleet",
        "Event",
        "Capacity",
        "KvCounters",
        "CapturedRequest",
    )
    values = node.name in value_classes or any(ast.unparse(base) == "enum.Enum" for base in node.bases)
    fields = node.body if values else []
    for before, after in zip(fields, [*fields[1:], None], strict=False):
        if isinstance(before, ast.Assign):
            yield from _code(ast.unparse(before))
        elif isinstance(before, ast.AnnAssign):
            doc = after.value if isinstance(after, ast.Expr) else None
            note = doc.value if isinstance(doc, ast.Constant) else ""
            yield from ("", f"**{ast.unparse(before.target)}**: {ast.unparse(before.annotation)}. {note}")
    for item in node.body:
        if not isinstance(item, ast.FunctionDef) or item.name.startswith("_") or not ast.get_docstring(item):
            continue
        if item.name in overridden:
            continue
        returns = f" -> {ast.unparse(item.returns)}" if item.returns else ""
        if _is_property(item):
            yield from ("", f"#### {item.name}{returns}")
        else:
            yield from ("", f"#### {item.name}()")
            yield from _code(f"{item.name}({ast.unparse(item.args)}){returns}")
        yield from _code(ast.get_docstring(item) or "")


def _function(file: str, name: str) -> ast.FunctionDef:
    for node in ast.parse((PACKAGE / file).read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name == name and ast.get_docstring(node):
            return node
    raise LookupError(f"{file} has no function {name} with a docstring")


def summary() -> str:
    """The page of names, with the first sentence of each function and class."""
    lines = [HEAD + SUMMARY.rstrip(), "", "## Functions", ""]
    for name, file in FUNCTIONS.items():
        node = _function(file, name.removeprefix("replay."))
        lines.append(f"- `{name}()`: {_first_sentence(node)}")
    for name, sources in CLASSES.items():
        top = _class(*sources[0])
        lines += ["", f"## {name}", "", _first_sentence(top)]
        if fields := [ast.unparse(item.target) for item in top.body if isinstance(item, ast.AnnAssign)]:
            lines += ["", f"Fields: {', '.join(f'`{field}`' for field in fields if field[0] != '_')}."]
        members: dict[str, None] = {}
        for file, class_name in sources:
            node = _class(file, class_name)
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and not item.name.startswith("_"):
                    called = item.name if _is_property(item) else f"{item.name}()"
                    if ast.get_docstring(item):
                        members.setdefault(called)
        lines += ["", f"Members: {', '.join(f'`{called}`' for called in members)}."] if members else []
    return "\n".join(lines) + "\n"


def _first_sentence(node: ast.ClassDef | ast.FunctionDef) -> str:
    paragraph = inspect.cleandoc(ast.get_docstring(node) or "").split("\n\n")[0]
    text = " ".join(paragraph.split())
    return re.split(r"(?<=[.:])\s+(?=[A-Z])", text)[0]


def _is_property(item: ast.FunctionDef) -> bool:
    decorators = {ast.unparse(decorator) for decorator in item.decorator_list}
    return bool(decorators & {"property", "functools.cached_property"})


def render() -> str:
    """The page with whole docstrings."""
    lines = [HEAD.rstrip()]
    for name, file in FUNCTIONS.items():
        node = _function(file, name.removeprefix("replay."))
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        lines += ["", f"## {name}", *_code(f"{node.name}({ast.unparse(node.args)}){returns}")]
        lines += _code(ast.get_docstring(node) or "")
    for name, sources in CLASSES.items():
        lines += ["", f"## {name}"]
        overridden: set[str] = set()
        for file, class_name in sources:
            node = _class(file, class_name)
            if file == sources[0][0]:
                lines += _code(inspect.cleandoc(ast.get_docstring(node) or ""))
            lines += _members(node, overridden)
            overridden |= {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(render() if sys.argv[1:] == ["--full"] else summary(), end="")
