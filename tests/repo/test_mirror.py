"""Each C++ file has its test: tests/unit/<room>/test_<stem>.py proves cpp/<room>/<stem>.h or .cc.

So does each module of `vllm_router.settings`.
"""

import re
from pathlib import Path

from tests.repo.rules import none_of
from tests.repo.test_arrows import FEATURES

ROOT = Path(__file__).parents[2]

# The files of such a room are rows of one table, which is what its test speaks to; so are features' steps.
ONE_TEST = {"proxy/steps": "steps"}
STEP_OF_A_FEATURE = "_step"

# bindings/ is proved by whatever comes through it; boost_json.cc holds nothing of ours.
STEMS = sorted(
    {
        str(path.relative_to(ROOT / "cpp").with_suffix(""))
        for path in (ROOT / "cpp").rglob("*")
        if path.suffix in (".h", ".cc") and path.parent.name != "bindings" and path.name != "boost_json.cc"
    }
)


def test_a_cpp_file_has_its_test():
    def has_test(stem):
        room, _, name = stem.rpartition("/")
        if room in FEATURES and name.endswith(STEP_OF_A_FEATURE):
            room = "proxy/steps"
        name = ONE_TEST.get(room, name)
        test = ROOT / "tests" / "unit" / room / f"test_{name}.py"
        return test.is_file() and "def test_" in test.read_text()

    none_of([stem for stem in STEMS if not has_test(stem)], "write tests/unit/<room>/test_<stem>.py for each")


def test_a_unit_test_of_a_room_has_its_cpp_file():
    tests = {
        f"{room}/{path.stem.removeprefix('test_')}"
        for room in {stem.rpartition("/")[0] for stem in STEMS}
        for path in (ROOT / "tests" / "unit" / room).glob("test_*.py")
    }
    none_of(sorted(tests - set(STEMS)), "no file of cpp/ has this name: rename or move the test")


def test_every_binding_is_named_in_their_cmake_file():
    folder = ROOT / "cpp" / "bindings"
    named = re.findall(r"[\w.]+", (folder / "CMakeLists.txt").read_text())
    forgotten = sorted(source.name for source in folder.glob("*.cc") if source.name not in named)
    none_of(forgotten, "name these in cpp/bindings/CMakeLists.txt")


def test_a_module_of_the_settings_has_its_test():
    modules = {path.stem for path in (ROOT / "python/vllm_router/settings").glob("[!_]*.py")}
    tests = (ROOT / "tests/unit/python/settings").glob("test_*.py")
    assert {path.stem.removeprefix("test_") for path in tests} == modules
