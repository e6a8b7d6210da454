"""Label selectors, against a model that looks at one term at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models import label_selector as model
from vllm_router.discovery.label_selector import LabelSelector, covering

KEYS = ("app", "role", "a.b/c")
VALUES = ("p", "d", "x-1", "")
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
KEY, VALUE = st.sampled_from(KEYS), st.sampled_from(VALUES)
SOME = st.lists(VALUE, min_size=1, max_size=3).map(",".join)
TERM = st.one_of(
    st.builds("{}{}{}".format, KEY, st.sampled_from(["=", "==", "!=", " = ", " != "]), VALUE),
    st.builds("{} {} ({})".format, KEY, st.sampled_from(["in", "notin"]), SOME),
    st.builds("{}{}".format, st.sampled_from(["", "!", "! "]), KEY),
)
TERMS = st.lists(TERM, min_size=1, max_size=4)
ALL_LABELS = [
    {key: value for key, value in zip(KEYS, (app, role, other), strict=True) if value is not None}
    for app in (None, *VALUES)
    for role in (None, *VALUES)
    for other in (None, *VALUES)
]


def selected(terms: list[str]) -> list[dict[str, str]]:
    return [labels for labels in ALL_LABELS if model.matches(",".join(terms), labels)]


def parsed(terms: list[str]) -> LabelSelector | None:
    try:
        return LabelSelector.parse(terms)
    except ValueError:  # nothing can match, as the test below has it
        return None


@given(TERMS)
def test_it_selects_what_its_terms_say(terms: list[str]) -> None:
    selector = parsed(terms)
    if selector is None:
        assert selected(terms) == []
        return
    assert [labels for labels in ALL_LABELS if selector.matches(labels)] == selected(terms)
    assert selected(selector.terms) == selected(terms)  # as the API server reads what is written


@given(TERMS, TERMS)
def test_what_covers_two_selectors_leaves_nothing_of_them_out(one: list[str], other: list[str]) -> None:
    selectors = [parsed(one), parsed(other)]
    some = [selector for selector in selectors if selector is not None]
    if len(some) < 2:
        return
    covered = selected(covering(some).terms)
    assert all(labels in covered for labels in [*selected(one), *selected(other)])


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("app=vllm,role=p", "app=vllm,role=d", ["app in (vllm)", "role in (d,p)"]),
        ("app=vllm,role=p", "app=vllm,tier=d", ["app in (vllm)"]),
        ("role=p", "role notin (p,d),role", ["role", "role notin (d)"]),
        ("!old,role=p", "!old", ["!old"]),
        ("role=p", "!role", []),
        ("stage=p", "role=d", []),
    ],
)
def test_two_selectors_are_covered_by_what_they_have_in_common(
    one: str, other: str, expected: list[str]
) -> None:
    assert covering([LabelSelector.parse(model.terms_of(text)) for text in (one, other)]).terms == expected


@pytest.mark.parametrize("term", ["", "=a", "app=a=b", "!app=a", "app in a", "app in (a", "a b", "app~a"])
def test_what_is_no_term(term: str) -> None:
    with pytest.raises(ValueError, match="is no term; write app=vllm"):
        LabelSelector.parse([term])


def test_terms_that_nothing_can_match() -> None:
    with pytest.raises(ValueError, match="app=b contradicts another term of app, so nothing has such labels"):
        LabelSelector.parse(["app=a", "app=b"])
