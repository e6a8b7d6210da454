"""Each C++ file has its test: tests/unit/<room>/test_<stem>.py proves cpp/<room>/<stem>.h or .cc."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# bindings/ is proved by whatever comes through it.
STEMS = sorted(
    {
        f"{path.parent.name}/{path.stem}"
        for path in (ROOT / "cpp").rglob("*")
        if path.suffix in (".h", ".cc") and path.parent.name != "bindings"
    }
)


@pytest.mark.parametrize("stem", STEMS)
def test_a_cpp_file_has_its_test(stem):
    room, name = stem.split("/")
    test = ROOT / "tests" / "unit" / room / f"test_{name}.py"
    assert test.is_file()
    assert "def test_" in test.read_text()


@pytest.mark.parametrize("room", sorted({stem.split("/")[0] for stem in STEMS}))
def test_a_unit_test_of_a_room_has_its_cpp_file(room):
    tests = {path.stem.removeprefix("test_") for path in (ROOT / "tests" / "unit" / room).glob("test_*.py")}
    files = {stem.split("/")[1] for stem in STEMS if stem.startswith(f"{room}/")}
    assert tests - files == set()


def test_every_source_is_named_in_its_rooms_cmake_file():
    forgotten = [
        str(source.relative_to(ROOT))
        for source in sorted((ROOT / "cpp").rglob("*.cc"))
        if source.name not in (source.parent / "CMakeLists.txt").read_text().split()
        and f"{source.name})" not in (source.parent / "CMakeLists.txt").read_text().split()
    ]
    assert forgotten == []
