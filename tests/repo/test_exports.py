"""What `vllm_router` exports: sorted, real, documented, and typed."""

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import vllm_router
import vllm_router._core
from tests.repo.rules import none_of

NAMES = [name for name in vllm_router.__all__ if not name.startswith("__")]
MODULES = sorted(
    module.name for module in pkgutil.iter_modules(vllm_router.__path__) if module.name[0] != "_"
)


# Adapters for packages that need not be installed; tests/unit/python/ loads them on fakes.
HOSTS = {"litellm", "ray"}


def test_all_is_sorted_and_has_no_name_twice():
    assert list(vllm_router.__all__) == sorted(set(vllm_router.__all__))


def documented_in_stub(name):
    """Members of a class that have a docstring in _core.pyi, where the docstrings of the extension live."""
    stub = ast.parse(Path(vllm_router.__file__).with_name("_core.pyi").read_text())
    (found,) = [node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == name]
    return {node.name for node in found.body if isinstance(node, ast.FunctionDef) and ast.get_docstring(node)}


def test_every_name_is_there():
    missing = [name for name in vllm_router.__all__ if getattr(vllm_router, name, None) is None]
    none_of(missing, "in __all__ and not in the package: import these, or remove the names")
    assert set(vllm_router.__all__) <= set(dir(vllm_router))


def test_every_public_name_is_documented():
    none_of(
        [name for name in NAMES if not inspect.getdoc(getattr(vllm_router, name))], "give each a docstring"
    )


def test_every_public_method_is_documented():
    undocumented = []
    for name in NAMES:
        thing = getattr(vllm_router, name)
        if not inspect.isclass(thing):
            continue
        documented = documented_in_stub(name) if thing.__module__ == vllm_router._core.__name__ else set()
        undocumented += [
            f"{name}.{attribute}"
            for attribute, value in vars(thing).items()
            if not attribute.startswith("_")
            and (inspect.isroutine(value) or isinstance(value, property))
            and attribute not in documented
            and not inspect.getdoc(value)
        ]
    none_of(undocumented, "give each a docstring; those of the extension stand in _core.pyi")


def test_every_public_module_is_documented_and_its_all_is_sorted():
    wrong = []
    for module in MODULES:
        try:
            loaded = importlib.import_module(f"vllm_router.{module}")
        except ImportError:
            assert module in HOSTS, module
            continue
        exported = list(getattr(loaded, "__all__", []))
        if not loaded.__doc__ or exported != sorted(exported):
            wrong.append(module)
    none_of(wrong, "these modules need a docstring, and a sorted __all__")
