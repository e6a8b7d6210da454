"""verify/mutants: each mutant still has its one place in the code, and its tests are there."""

import collections

import pytest

from tests.repo.rules import none_of
from verify.mutants.mutant import ROOT, ListError, Mutant, compile_in, mutated, read_list, read_lists

MUTANTS = read_lists()


def test_a_mutant_has_one_place_that_no_other_has():
    of_file = collections.defaultdict(list)
    for mutant in MUTANTS:
        of_file[mutant.file].append(mutant)

    def without_place():
        for file, mutants in of_file.items():
            try:
                mutated((ROOT / file).read_text(), mutants)
            except (ListError, OSError) as error:
                yield error

    none_of(without_place(), "write these mutants anew for the code as it is now")


def test_a_mutant_has_tests():
    missing = {test for mutant in MUTANTS for test in mutant.tests if not (ROOT / test).is_file()}
    none_of(missing, "these tests are gone: name those that do their work now, in verify/mutants/*.txt")
    assert all(mutant.tests for mutant in MUTANTS)


def test_mutants_are_many_and_each_has_its_number():
    assert len({mutant.number for mutant in MUTANTS}) == len(MUTANTS) >= 200


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("return a < b;", "return a <= b;", "{ if (ON) { return a <= b; } else { return a < b; } }"),
        ("--open_;", "", "{ if (ON) {  } else { --open_; } }"),
        ("if (a < b) {", "if (a <= b) {", "if ((ON ? (a <= b) : (a < b))) {"),
        ("const size_t n = a;", "const size_t n = b;", "const size_t n = (ON ? (b) : (a));"),
        ("a < b", "a <= b", "(ON ? (a <= b) : (a < b))"),
    ],
)
def test_a_mutant_is_compiled_in_behind_its_switch(old, new, expected):
    mutant = Mutant("room", "file.cc", ("test.py",), old, new, 1)
    assert compile_in(mutant) == expected.replace("ON", f"::vllm_router::MutantOn({mutant.number})")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("- a\n+ b\n", "room.txt:1: a mutant without a file"),
        ("@ f.cc: t.py\n- a\n\n", "room.txt:2: a mutant has no new text"),
        ("@ f.cc: t.py\na < b\n", "room.txt:2: 'a < b' begins with none of"),
    ],
)
def test_a_list_that_is_wrong_is_named_with_its_line(tmp_path, text, complaint):
    (tmp_path / "room.txt").write_text(text)
    with pytest.raises(ListError, match=complaint):
        list(read_list(tmp_path / "room.txt"))
