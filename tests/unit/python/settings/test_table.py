"""vllm_router.settings.table: every flag is read, and does something."""

from tests.rows import for_each_row
from tests.unit.python.settings.values import BY_SPELLING, COMPANIONS, NOT_BUILT, OTHER_VALUES, parsed


@for_each_row("spelling", sorted(BY_SPELLING))
def test_every_flag_is_read_in_both_spellings(spelling: str) -> None:
    text, value = OTHER_VALUES[spelling]
    for name in (spelling, spelling.replace("-", "_")):
        assert getattr(parsed(f"--{name} {text}"), BY_SPELLING[spelling].field) == value


@for_each_row("spelling", sorted(s for s, f in BY_SPELLING.items() if f.kind.nargs != 0))
def test_a_value_may_follow_an_equals_sign(spelling: str) -> None:
    text, value = OTHER_VALUES[spelling]
    if " " not in text and text:
        assert getattr(parsed(f"--{spelling}={text}"), BY_SPELLING[spelling].field) == value


def test_a_value_that_asks_for_what_happens_anyway_is_accepted() -> None:
    parsed("--retry-max-retries 1 --disable-retries --disable-circuit-breaker")._validate_router_args()


@for_each_row("spelling", sorted(BY_SPELLING.keys() - NOT_BUILT.keys()))
def test_every_other_flag_is_accepted_away_from_its_default(spelling: str) -> None:
    line = f"--{spelling} {OTHER_VALUES[spelling][0]} {COMPANIONS.get(spelling, '')}"
    parsed(line)._validate_router_args()
