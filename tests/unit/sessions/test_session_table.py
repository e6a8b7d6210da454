"""cpp/sessions/session_table.h against tests/models/session_table.py, and what it is for."""

from hypothesis import given
from hypothesis import strategies as st

from tests.models import session_table as slow
from vllm_router import _core_testing as testing

names = st.tuples(
    st.sampled_from(["s", "t", "u"]), st.sampled_from(["", "s"]), st.sampled_from(["", "a", "b"])
)


@given(st.integers(1, 4), st.lists(st.tuples(names, st.integers(0, 3)), max_size=12), names)
def test_the_table_is_the_twins(max_sessions, turns, asked):
    table, twin = testing.SessionTable(max_sessions), slow.SessionTable(max_sessions)
    for number, (of, worker) in enumerate(turns):
        table.record(of, worker, number)
        twin.record(of, worker, number)
        assert table.worker_of(asked) == twin.worker_of(asked)
    assert len(table) == len(twin.rows) <= max_sessions
    for count in (0, 2, 100):
        assert table.newest(count) == twin.newest(count)
        assert table.newest(count, asked[0]) == twin.newest(count, asked[0])


def test_a_subagent_is_where_its_session_is_until_it_has_had_a_turn():
    table = testing.SessionTable(10)
    assert table.worker_of(("s", "", "a")) is None
    table.record(("s", "", ""), 1)
    assert table.worker_of(("s", "", "a")) == 1
    table.record(("s", "", "a"), 2)
    assert (table.worker_of(("s", "", "")), table.worker_of(("s", "", "a"))) == (1, 2)


def test_names_that_are_equal_when_joined_are_other_names():
    table = testing.SessionTable(10)
    table.record(("ab", "", "c"), 1)
    assert table.worker_of(("a", "", "bc")) is None
