"""cpp/base/version.h: one version, written once, in pyproject.toml."""

import re
from pathlib import Path

import vllm_router
from vllm_router import _core_testing as testing

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_the_version_is_the_one_in_pyproject():
    (written,) = re.findall(r'^version = "(.*)"$', PYPROJECT.read_text(), re.MULTILINE)
    assert testing.version() == vllm_router.__version__ == written
