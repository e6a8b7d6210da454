"""The package leaves its hosts alone until an adapter is imported, and hides none of them."""

import subprocess
import sys

import pytest

from tests.hosts.environments import HOST

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(600)]


@pytest.mark.skipif(HOST not in ("litellm", "ray", "verl"), reason="no adapter is for it")
def test_the_package_imports_no_host_and_an_adapter_the_real_one() -> None:
    program = f"""
import sys
import vllm_router
from vllm_router import Router, testing
Router("auto", ["http://a:1"]).select(prompt="x").finish()
assert not {{"litellm", "ray", "verl"}} & set(sys.modules)
import vllm_router.{HOST}
if {HOST!r} != "verl":  # which imports the adapter, not the other way round
    assert "site-packages" in sys.modules[{HOST!r}].__file__
"""
    subprocess.run([sys.executable, "-c", program], check=True)
