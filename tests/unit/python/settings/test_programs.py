"""vllm_router.settings.programs: flags and the file's members as one line, and the reference's JSON."""

import pytest

from vllm_router.settings.programs import check_programs, programs_line, split_lines, unread_members


def options(mode="off", enable=False, config=None):
    return {
        "program_admission": mode,
        "enable_program_scheduling": enable,
        "program_scheduling_config_json": config,
    }


def test_flags_and_the_file_make_one_line():
    assert programs_line(options(), "fill=0.8") == "off"
    assert programs_line(options("observe"), "") == "observe"
    assert programs_line(options("on"), "fill=0.8 ttl_ms=0") == "on fill=0.8 ttl_ms=0"
    assert programs_line(options(enable=True), "") == "on"
    assert programs_line(options("observe", enable=True), "") == "observe"


def test_the_reference_s_json_is_translated_and_the_file_counts_more():
    config = """{"force_resume_timeout_seconds": 120, "max_acting_ttl_seconds": 10,
        "paused_retention_ttl_seconds": 1800, "queue_timeout_seconds": 600,
        "token_capacity_per_dp_rank": 320000, "max_active_programs_per_target": 64,
        "high_watermark_ratio": 1.0, "resume_order": "mru",
        "binding_only": false, "token_capacity_per_target": null}"""
    given = options(enable=True, config=config)
    check_programs(given)
    assert programs_line(given, "max_wait_ms=300000") == (
        "on max_wait_ms=300000 max_ttl_ms=10000 forget_ms=1800000 reject_after_ms=600000 capacity=320000 "
        "max_active_per_worker=64 fill=0.95"
    )
    assert unread_members(given) == ["binding_only", "resume_order"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            '{"force_resume_timeout_seconds": "soon"}',
            "force_resume_timeout_seconds is soon; it must be a number",
        ),
        (
            '{"queue_timeout_seconds": 0}',
            "queue_timeout_seconds is 0; it must be a number of seconds between",
        ),
        (
            '{"token_capacity_per_dp_rank": 1.5}',
            "token_capacity_per_dp_rank is 1.5; it must be a whole number",
        ),
        ('{"max_active_programs_per_target": true}', "it must be a whole number between 1 and 1000000"),
        ('{"high_watermark_ratio": 2}', "high_watermark_ratio is 2; it must be a share above 0 and up to 1"),
        ('{"resume_order": "lifo"}', "resume_order is lifo; it must be mru or fcfs"),
        ('{"resume_ordr": "mru"}', "resume_ordr is not known; did you mean resume_order"),
    ],
)
def test_a_mistake_in_the_json_is_named(config, message):
    with pytest.raises(ValueError, match=message):
        check_programs(options(enable=True, config=config))


def test_the_lines_of_a_file_are_for_classes_and_programs():
    assert split_lines(None) == (None, "")
    assert split_lines("class batch\nalias batch programs\nprograms fill=0.8") == (
        "class batch\nalias batch programs",
        "fill=0.8",
    )
    assert split_lines("programs fill=0.8") == ("", "fill=0.8")
