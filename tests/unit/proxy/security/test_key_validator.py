"""What is remembered of verdicts, against a model. Asking is in tests/proxy/test_key_validation.py."""

from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

VERDICTS = st.sampled_from(["yes", "no", "unknown"])
STEPS = st.lists(st.tuples(st.integers(0, 5), VERDICTS, st.integers(0, 40)), max_size=60)


def test_yes_and_no_last_as_long_as_each_should():
    verdicts = testing.KeyValidityCache(100, 10, 5)
    verdicts.remember("a", "yes", 0)
    verdicts.remember("b", "no", 0)
    verdicts.remember("c", "unknown", 0)
    assert [verdicts.find(key, 9) for key in "abc"] == ["yes", "no", None]
    assert [verdicts.find(key, 10) for key in "abc"] == ["yes", None, None]
    assert [verdicts.find(key, 100) for key in "abc"] == [None, None, None]


def test_invented_keys_drive_no_good_one_out():
    verdicts = testing.KeyValidityCache(100, 100, 3)
    verdicts.remember("good", "yes", 0)
    for number in range(100):
        verdicts.remember(f"bad-{number}", "no", 1)
    assert verdicts.find("good", 50) == "yes"
    assert len(verdicts) == 4


@given(STEPS)
def test_what_is_found_is_what_was_said_last_while_it_lasts(steps):
    verdicts = testing.KeyValidityCache(30, 10, 100)
    said = {}
    now = 0
    for key, verdict, passed in steps:
        now += passed
        verdicts.remember(str(key), verdict, now)
        if verdict != "unknown":
            said[key] = (verdict, now + (30 if verdict == "yes" else 10))
        for each in range(6):
            word, until = said.get(each, (None, 0))
            assert verdicts.find(str(each), now) == (word if until > now else None)


@given(STEPS)
def test_there_are_never_more_than_the_limit(steps):
    verdicts = testing.KeyValidityCache(30, 10, 2)
    now = 0
    for key, verdict, passed in steps:
        now += passed
        verdicts.remember(str(key), verdict, now)
        assert len(verdicts) <= 4
        assert verdicts.find(str(key), now) in (verdict, None, "yes", "no")
