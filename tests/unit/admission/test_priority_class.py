"""cpp/admission/priority_class.h: what is claimed, by whom, and what is given."""

import itertools

import pytest

from vllm_router import _core_testing as testing

CLASSES = ["interactive", "default", "batch"]  # the highest first
HEADERS = [
    "x-llm-d-inference-objective",
    "x-gateway-inference-objective",
    "x-dynamo-inference-objective",
    "x-smg-priority",
]


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("name", CLASSES)
def test_each_header_names_a_class(header, name):
    for spelled in (name, name.upper(), f" {name}\t"):
        assert testing.class_in_headers([("accept", "*/*"), (header.title(), spelled)]) == (name, 0)


def test_smg_has_two_names_of_its_own():
    for header in HEADERS:
        smg = header == "x-smg-priority"
        assert testing.class_in_headers([(header, "bulk")]) == (("batch", 0) if smg else ("default", 1))
        assert testing.class_in_headers([(header, "System")]) == (
            ("interactive", 0) if smg else ("default", 1)
        )


@pytest.mark.parametrize("value", ["gold", "-999", "interactive,batch", "interactive\x00", "ınteractive"])
def test_an_unknown_name_claims_default_and_is_counted(value):
    assert testing.class_in_headers([("x-smg-priority", value)]) == ("default", 1)


def test_an_empty_field_and_other_fields_claim_nothing():
    fields = [("x-smg-priority", "  "), ("x-smg-priorities", "batch"), ("priority", "interactive")]
    assert testing.class_in_headers(fields) == (None, 0)


@pytest.mark.parametrize("length", [2, 3])
def test_of_several_fields_the_lowest_counts(length):
    """A gateway that adds its own field behind its client's would else be overruled by it."""
    for names in itertools.product([*CLASSES, "gold"], repeat=length):
        for headers in ([HEADERS[0]] * length, HEADERS[:length], HEADERS[-length:]):
            ranks = [1 if name == "gold" else CLASSES.index(name) for name in names]
            claimed, unknown = testing.class_in_headers(list(zip(headers, names, strict=True)))
            assert (claimed, unknown) == (CLASSES[max(ranks)], names.count("gold"))


@pytest.mark.parametrize(
    ("tier", "given"),
    [
        ("flex", "batch"),
        ("priority", "interactive"),
        ("fast", "interactive"),
        ("auto", None),
        ("default", None),
        ("Priority", None),
        ("scale", None),
        ("", None),
    ],
)
def test_a_service_tier_is_a_class(tier, given):
    assert testing.class_of_service_tier(tier) == given


def slow_twin(headers, tier, alias, key, highest, trusts):
    """As docs/how-to/rotate_keys.md says it."""
    claims = [claim for claim in (headers, tier, alias) if claim is not None]
    claimed = claims[0] if claims else None
    wanted = claimed or key or "default"
    if headers is not None and trusts:
        return wanted, claimed, False
    given = max(wanted, highest, key=CLASSES.index)
    return given, claimed, claimed is not None and given != wanted


def test_all_claims_of_all_clients_are_as_the_slow_twin_says():
    maybe = [None, *CLASSES]
    for claims in itertools.product(maybe, maybe, maybe, maybe, CLASSES, [False, True]):
        headers, tier, alias, key, highest, trusts = claims
        given = testing.grant_class(headers, tier, alias, key, highest, trusts)
        assert given == slow_twin(*claims), claims


def test_without_a_trusted_header_nobody_is_above_the_limit():
    maybe = [None, *CLASSES]
    for headers, tier, alias, key, highest in itertools.product(maybe, maybe, maybe, maybe, CLASSES):
        given, _, _ = testing.grant_class(headers, tier, alias, key, highest, False)
        assert CLASSES.index(given) >= CLASSES.index(highest)


def test_the_body_behind_a_trusted_header_is_its_clients():
    assert testing.grant_class(service_tier="interactive", trusts_headers=True) == (
        "default",
        "interactive",
        True,
    )
    assert testing.grant_class(headers="interactive", trusts_headers=True)[0] == "interactive"


def test_a_client_without_a_key_can_lower_itself_and_never_rise():
    assert testing.grant_class()[0] == "default"
    assert testing.grant_class(headers="batch") == ("batch", "batch", False)
    assert testing.grant_class(headers="interactive") == ("default", "interactive", True)
    assert testing.grant_class(service_tier="batch")[0] == "batch"
