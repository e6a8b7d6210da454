"""What `vllm_router` exports: sorted, real, documented, and typed."""

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import vllm_router
import vllm_router._core

NAMES = [name for name in vllm_router.__all__ if not name.startswith("__")]
MODULES = sorted(
    module.name for module in pkgutil.iter_modules(vllm_router.__path__) if module.name[0] != "_"
)


def test_all_is_sorted_and_has_no_name_twice():
    assert list(vllm_router.__all__) == sorted(set(vllm_router.__all__))


def documented_in_stub(name):
    """Members of a class that have a docstring in _core.pyi, where the docstrings of the extension live."""
    stub = ast.parse(Path(vllm_router.__file__).with_name("_core.pyi").read_text())
    (found,) = [node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == name]
    return {node.name for node in found.body if isinstance(node, ast.FunctionDef) and ast.get_docstring(node)}


@pytest.mark.parametrize("name", vllm_router.__all__)
def test_every_name_is_there(name):
    assert getattr(vllm_router, name) is not None
    assert name in dir(vllm_router)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_documented(name):
    thing = getattr(vllm_router, name)
    assert inspect.getdoc(thing), f"vllm_router.{name} has no docstring"


@pytest.mark.parametrize("name", NAMES)
def test_every_public_method_is_documented(name):
    thing = getattr(vllm_router, name)
    if not inspect.isclass(thing):
        return
    documented = documented_in_stub(name) if thing.__module__ == vllm_router._core.__name__ else set()
    undocumented = [
        attribute
        for attribute, value in vars(thing).items()
        if not attribute.startswith("_")
        and (inspect.isroutine(value) or isinstance(value, property))
        and attribute not in documented
        and not inspect.getdoc(value)
    ]
    assert undocumented == []


@pytest.mark.parametrize("module", MODULES)
def test_every_public_module_is_documented_and_its_all_is_sorted(module):
    loaded = importlib.import_module(f"vllm_router.{module}")
    assert loaded.__doc__
    exported = getattr(loaded, "__all__", [])
    assert list(exported) == sorted(exported)
