"""Two extensions, one program: `_core_testing` sees what `_core` has, and only the latter is shipped."""

import re
import subprocess
from pathlib import Path

from vllm_router import Router, _core, _core_testing

ROOT = Path(__file__).parents[2]


def test_both_extensions_write_one_log(capfd):
    _core_testing.configure_log(_core_testing.LogLevel.ERROR)
    try:
        _core.log("warning", "below the minimum level that the other extension set")
        _core.log("error", "at that level")
        _core.flush_log()
    finally:
        _core_testing.configure_log(_core_testing.LogLevel.INFO)
    assert re.fullmatch(r"\S+ \S+ ERROR at that level\n", capfd.readouterr().err)


def test_a_router_of_the_package_goes_into_an_internal_function():
    router = Router(policy="round_robin", worker_urls=["http://a:8000"])
    assert _core_testing.WorkerHandle.of(router, "http://a:8000")


def test_no_state_of_ours_is_there_twice():
    # Writable data of the namespace: a variable defined in both extensions would be two variables. Constants
    # (kName) may be.
    def variables(extension):
        table = subprocess.run(
            ["nm", "--demangle", extension.__file__], capture_output=True, text=True, check=True
        ).stdout
        return set(re.findall(r"^\S+ [BbDdu] (vllm_router::(?!.*\bk[A-Z]\w*$).*)$", table, re.MULTILINE))

    ours = variables(_core)
    assert any("global_epoch" in name for name in ours)
    assert ours & variables(_core_testing) == set()


def test_the_extension_for_tests_is_not_installed():
    rules = (ROOT / "cpp" / "bindings" / "CMakeLists.txt").read_text()
    assert re.findall(r"install\(TARGETS ([^\n]*?) LIBRARY", rules) == ["_core"]
