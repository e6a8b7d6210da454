"""Reloads against what they promise: all or nothing, and never what needs a restart."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.property.test_router_args import values
from vllm_router.discovery.source import Difference
from vllm_router.reload import Loaded, Reloads, SettingsFile, difference
from vllm_router.router_args import FLAGS, RouterArgs

# Few settings of each kind, so that two files often agree in some.
NAMES = [
    *("queue_size", "retry_max_retries", "rate_limit_tokens_per_second", "cors_allowed_origins"),
    *("worker_urls", "request_id_headers", "upstream_pool_size", "decision_headers"),
    *("health_check_interval_secs", "port", "policy", "block_size", "api_key", "admin_port"),
]
SETTINGS = st.fixed_dictionaries({}, optional={name: values(FLAGS[name]) for name in NAMES})
LIVE_ONLY = st.fixed_dictionaries(
    {}, optional={name: values(FLAGS[name]) for name in NAMES[:8] if FLAGS[name].live != "restart"}
)


def canonical(args: RouterArgs) -> dict[str, Any]:
    return {name: flag.check(getattr(args, name)) for name, flag in FLAGS.items()}


@given(SETTINGS, SETTINGS)
def test_a_change_applied_to_the_old_settings_makes_the_new_ones(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    old, new = RouterArgs(**before), RouterArgs(**after)
    change = difference(old, new)
    assert canonical(change.applied_to(old)) == canonical(new)
    # The slow twin: every name by itself.
    assert [one.flag.field for one in change.settings] == [
        name for name in FLAGS if canonical(old)[name] != canonical(new)[name]
    ]


@given(SETTINGS, st.lists(st.tuples(st.one_of(SETTINGS, LIVE_ONLY, st.none()), st.booleans()), max_size=8))
def test_any_sequence_of_reloads_ends_with_the_last_file_that_was_taken(
    first: dict[str, Any], files: list[tuple[dict[str, Any] | None, bool]]
) -> None:
    current = {"settings": first}
    server = canonical(RouterArgs(**first))  # what an obedient server has
    generation = 1

    def load(_content: bytes | None = None) -> Loaded:
        if current["settings"] is None:
            raise ValueError("a mistake")
        return Loaded(RouterArgs(**current["settings"]), {}, "router.yaml")

    def apply(args: RouterArgs, _change: Any, dry_run: bool) -> Difference:
        if not dry_run:
            server.update(canonical(args))
        return Difference([], [], [], [])

    reloads = Reloads(SettingsFile("router.yaml", load, load()), RouterArgs())
    for settings, dry_run in files:
        current["settings"] = settings  # type: ignore[assignment]
        before = canonical(reloads.args)
        report = reloads.reload(apply, dry_run)
        wanted = before if settings is None else canonical(RouterArgs(**settings))
        forbidden = [
            name
            for name in FLAGS
            if before[name] != wanted[name]
            and (
                FLAGS[name].live == "restart"
                or (name == "health_check_interval_secs" and 0 in (before[name], wanted[name]))
            )
        ]
        if settings is None:
            assert report.result == "invalid"
        elif forbidden:
            assert report.result == "refused"
            assert [one.flag.field for one in report.change.refused] == forbidden
        else:
            done = "would_apply" if dry_run else "applied"
            assert report.result == (done if before != wanted else "unchanged")
        taken = report.result == "applied" and not dry_run
        generation += taken
        assert canonical(reloads.args) == server == (wanted if taken else before)
        assert report.generation == reloads.generation == generation
