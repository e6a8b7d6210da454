"""cpp/disaggregation/pd_machine.h, row by row of the tables of the design of prefill/decode disaggregation.

The tables are those of its life cycle (`test_life_…`, for the orders serial, concurrent and SGLang), its
retries (`test_retry_…`) and its failures (`test_row_…`, numbered as there). Every order of events is checked
in tests/stress/pd_machine.cc.
"""

import pytest

from vllm_router import _core_testing as testing

SERIAL = ("planned", {"order": "serial", "rebindable": True})  # NIXL pull
BOUND = ("planned", {"order": "serial"})  # the parameters name D: MoRI-IO READ
CONCURRENT = ("planned", {"order": "concurrent"})
SGLANG = ("planned", {"order": "sglang"})
LOCAL = ("planned", {"kind": "local"})
BYPASS = ("planned", {"kind": "bypass"})
REUSE = ("planned", {"kind": "decode_only", "rebindable": True})
BOTH_AT_ONCE = pytest.mark.parametrize("order", [CONCURRENT, SGLANG], ids=["concurrent", "sglang"])
ALL = pytest.mark.parametrize("order", [SERIAL, CONCURRENT, SGLANG], ids=["serial", "concurrent", "sglang"])

# (next, exclude_p, exclude_d, prefer_p, counted)
OTHER_P = ("pair", True, False, False, True)
OTHER_PAIR = ("pair", True, True, False, True)
OTHER_D = ("pair", False, True, True, True)
SAME_CLAIM = ("decode_only", False, True, False, True)
OTHER_D_LOCAL = ("local", True, True, False, True)


def step(machine, name, **facts):
    """What the machine does, and "over" if nothing is left to do from now on."""
    was_over = machine.over
    actions = set(machine.step(name, **facts))
    return actions | {"over"} if machine.over and not was_over else actions


def run(*events, cancel="auto"):
    """The machine after the events, each a name or (name, facts), and what the last one made it do."""
    machine = testing.PdMachine(cancel)
    actions = set()
    for event in events:
        name, facts = event if isinstance(event, tuple) else (event, {})
        actions = step(machine, name, **facts)
    return machine, actions


def did(*events, cancel="auto"):
    return run(*events, cancel=cancel)[1]


def waits_for_d(order):
    """Until D has the whole request and owes its first byte."""
    return (order, "p_ok_whole", "d_sent") if order == SERIAL else (order, "d_sent")


def retried(*events, response):
    """What the next attempt must be, after making sure of what the client gets if there is none."""
    machine, actions = run(*events)
    assert "retry" in actions
    assert not actions & {"respond_p", "respond_d", "respond_502", "respond_504", "over"}
    expected = machine.retry
    at_the_end = step(machine, "no_retry")
    assert {response, "over"} <= at_the_end
    assert machine.over
    return expected


# ---- the life cycle, cell by cell


def test_life_planned_serial_opens_p_and_holds_the_reservation_of_d():
    machine, actions = run(SERIAL)
    assert actions == {"open_p"}
    assert (machine.p, machine.d, machine.client) == ("open", "idle", "wait")


@BOTH_AT_ONCE
def test_life_planned_concurrent_and_sglang_open_both(order):
    machine, actions = run(order)
    assert actions == {"open_p", "open_d_with"}
    assert (machine.p, machine.d) == ("open", "open")


def test_life_p_200_with_parameters_serial():
    assert did(SERIAL, "p_ok_whole") == {
        "p_succeeded",
        "release_p",
        "make_claim",
        "learn_identity",
        "open_d_with",
    }


def test_life_p_200_with_parameters_concurrent():
    assert did(CONCURRENT, "p_ok_whole") == {"p_succeeded", "release_p", "learn_identity"}


def test_life_p_200_with_parameters_sglang():
    assert did(SGLANG, "p_ok_whole") == {"p_succeeded", "release_p"}


def test_life_p_200_without_serial():
    assert did(SERIAL, "p_ok_without") == {"p_succeeded", "release_p", "open_d_without"}


@BOTH_AT_ONCE
def test_life_p_200_without_concurrent_and_sglang(order):
    assert did(order, "p_ok_without") == {"p_succeeded", "release_p"}


def test_life_p_4xx_serial():
    assert did(SERIAL, "p_rejected") == {"p_succeeded", "release_p", "release_d", "respond_p", "over"}


@BOTH_AT_ONCE
def test_life_p_4xx_concurrent_and_sglang(order):
    expected = {"p_succeeded", "close_d", "release_p", "release_d"}
    assert did(order, "p_rejected") == expected | {"respond_p", "over"}
    assert did(order, "d_sent", "d_first_byte", "p_rejected") == expected | {"over"}


@pytest.mark.parametrize(
    ("event", "verdict"),
    [("p_busy", set()), ("p_error", {"p_failed"}), ("p_lost", {"p_failed"}), ("p_unreached", {"p_failed"})],
)
@ALL
def test_life_p_408_429_5xx_transport_while_the_client_waits(order, event, verdict):
    closed = set() if order == SERIAL else {"close_d"}
    assert did(order, event) == verdict | closed | {"release_p", "release_d", "retry"}


@ALL
def test_life_p_timeout_while_the_client_waits(order):
    closed = set() if order == SERIAL else {"close_d"}
    assert did(order, "p_timeout") == {"p_failed", "close_p", "release_p", "release_d", "retry"} | closed
    assert did(order, "p_timeout", "no_retry") == {"respond_504", "over"}


@BOTH_AT_ONCE
def test_life_p_fails_after_the_response_has_begun(order):
    begun = (order, "d_sent", "d_head", "d_first_byte")
    for transport in ("p_lost", "p_unreached"):
        assert did(*begun, transport) == {"p_failed", "release_p"}
    assert did(*begun, "p_timeout") == {"p_failed", "close_p", "release_p"}
    for status in ("p_error", "p_busy"):
        assert did(*begun, status) >= {"close_d", "release_p", "release_d", "over"}


@ALL
def test_life_d_2xx_head_is_held(order):
    machine, actions = run(*waits_for_d(order), "d_head")
    assert actions == set()
    assert (machine.d, machine.client) == ("head", "wait")


def test_life_d_first_body_byte_serial_redeems_the_claim():
    machine, actions = run(*waits_for_d(SERIAL), "d_head", "d_first_byte")
    assert actions == {"redeem_claim", "commit"}
    assert machine.client == "begun"


@BOTH_AT_ONCE
def test_life_d_first_body_byte_concurrent_and_sglang_is_not_held_back_for_p(order):
    machine, actions = run(order, "d_sent", "d_head", "d_first_byte")
    assert actions == {"commit"}
    assert machine.p == "open"


def test_life_a_response_without_a_body_is_passed_at_its_end():
    expected = {"d_succeeded", "release_d", "redeem_claim", "commit", "over"}
    assert did(*waits_for_d(SERIAL), "d_head", "d_done") == expected


def test_life_d_4xx_serial():
    expected = {"d_succeeded", "release_d", "reject_claim", "respond_d", "over"}
    assert did(*waits_for_d(SERIAL), "d_rejected") == expected


@BOTH_AT_ONCE
def test_life_d_4xx_concurrent_and_sglang(order):
    expected = {"d_succeeded", "close_p", "release_p", "release_d", "respond_d", "over"}
    assert did(order, "d_sent", "d_rejected") == expected


@pytest.mark.parametrize("event", ["d_busy", "d_error", "d_lost", "d_unreached"])
@pytest.mark.parametrize("order", [CONCURRENT, SGLANG], ids=["concurrent", "sglang"])
def test_life_d_fails_before_a_body_byte_closes_p(order, event):
    actions = did(order, event)
    assert actions >= {"close_p", "release_p", "release_d"}
    lost_at_sglang = order == SGLANG and event == "d_lost"
    assert ("respond_502" if lost_at_sglang else "retry") in actions


@pytest.mark.parametrize(("event", "closed"), [("d_lost", set()), ("d_timeout", {"close_d"})])
@ALL
def test_life_d_cut_after_body_bytes_aborts(order, event, closed):
    p = set() if order == SERIAL else {"close_p", "release_p"}
    expected = {"d_failed", "release_d", "over"} | closed | p
    assert did(*waits_for_d(order), "d_first_byte", event) == expected


@ALL
def test_life_d_done(order):
    machine, actions = run(*waits_for_d(order), "d_first_byte", "d_done")
    kept = {"over"} if order == SERIAL else {"keep_p"}
    assert actions == {"d_succeeded", "release_d"} | kept
    if order != SERIAL:
        assert machine.p == "kept"
        assert step(machine, "p_ok_without") == {"release_p", "over"}


@ALL
def test_life_d_done_with_an_error_of_the_engine_as_its_last_event(order):
    done = ("d_done", {"server_error": True})
    assert did(*waits_for_d(order), "d_first_byte", done) >= {"d_failed"}


def test_life_client_gone_p_open_serial():
    assert did(SERIAL, "client_gone") == {"close_p", "release_p", "release_d", "over"}


def test_life_client_gone_p_s_response_is_readable_serial():
    readable = ("client_gone", {"p_readable": True})
    assert did(SERIAL, readable) == {"keep_p", "release_d"}
    assert did(SERIAL, readable, "p_ok_whole") == {
        "release_p",
        "learn_identity",
        "make_claim",
        "orphan_claim",
        "over",
    }
    assert did(SERIAL, readable, "p_ok_without") == {"release_p", "over"}


def test_life_client_gone_p_open_concurrent():
    assert did(CONCURRENT, "d_sent", "client_gone") == {"keep_p", "keep_d"}
    # D has nothing of the request yet, so no transfer exists.
    assert did(CONCURRENT, "client_gone") == {"close_p", "close_d", "release_p", "release_d", "over"}


@pytest.mark.parametrize("events", [[], ["d_sent"], ["d_sent", "d_head"], ["d_first_byte"]])
def test_life_client_gone_sglang_closes_both_at_once(events):
    expected = {"close_p", "close_d", "release_p", "release_d", "over"}
    assert did(SGLANG, *events, "client_gone") == expected


@pytest.mark.parametrize("head", [[], ["d_head"]])
def test_life_client_gone_d_sent_without_a_byte_serial_is_kept_to_its_first_byte_or_the_grace(head):
    gone = (*waits_for_d(SERIAL), *head, "client_gone")
    assert did(*gone) == {"keep_d"}
    assert did(*gone, "d_first_byte") == {"close_d", "release_d", "redeem_claim", "over"}
    assert did(*gone, "grace_over") == {"close_d", "release_d", "expire_claim", "over"}
    assert did(*gone, "d_rejected") == {"release_d", "reject_claim", "over"}
    assert did(*gone, "d_lost") == {"release_d", "expire_claim", "over"}


def test_life_client_gone_d_sent_without_a_byte_concurrent_keeps_p_to_its_end():
    gone = (CONCURRENT, "d_sent", "client_gone")
    machine, actions = run(*gone, "grace_over")
    assert actions == {"close_d", "release_d"}
    assert step(machine, "p_ok_whole") == {"release_p", "learn_identity", "over"}
    assert did(*gone, "p_lost") == {"release_p"}
    assert did(*gone, "p_error") == {"close_d", "release_p", "release_d", "over"}  # no blocks will come


def test_life_client_gone_d_without_parameters_is_closed_at_once():
    assert did(LOCAL, "d_sent", "client_gone") == {"close_d", "release_d", "over"}
    assert did(SERIAL, "p_ok_without", "d_sent", "client_gone") == {"close_d", "release_d", "over"}


def test_life_client_gone_d_flowing():
    flowing = ("d_sent", "d_first_byte", "client_gone")
    assert did(SERIAL, "p_ok_whole", *flowing) == {"close_d", "release_d", "over"}
    assert did(CONCURRENT, *flowing) == {"close_d", "release_d", "keep_p"}
    assert did(SGLANG, *flowing) == {"close_d", "close_p", "release_d", "release_p", "over"}


def test_life_client_gone_before_the_first_attempt():
    assert did("client_gone") == {"over"}


# ---- retries, row by row


@ALL
@pytest.mark.parametrize("event", ["p_unreached", "p_lost", "p_error", "p_busy"])
def test_retry_p_failed_takes_another_p(order, event):
    own = "respond_p" if event in ("p_error", "p_busy") else "respond_502"
    assert retried(order, event, response=own) == OTHER_P


def test_retry_p_200_without_parameters_is_none():
    assert did(SERIAL, "p_ok_without") == {"p_succeeded", "release_p", "open_d_without"}


def test_retry_d_never_sent_uses_the_claim_at_another_d():
    refused = (SERIAL, "p_ok_whole", "d_unreached")
    assert did(*refused) == {"d_failed", "release_d", "retry"}
    machine, actions = run(*refused, REUSE)
    assert machine.retry == SAME_CLAIM
    assert actions == {"reuse_claim", "open_d_with"}
    assert step(machine, "d_first_byte") == {"redeem_claim", "commit"}


def test_retry_d_never_sent_and_none_follows_orphans_the_claim():
    refused = (SERIAL, "p_ok_whole", "d_unreached")
    for last in ("no_retry", "no_other_pair"):
        assert did(*refused, last) == {"orphan_claim", "respond_502", "over"}
    assert did(*refused, "client_gone") == {"orphan_claim", "over"}


def test_retry_d_never_sent_and_the_claim_grew_old_prefills_again():
    machine, actions = run(SERIAL, "p_ok_whole", "d_unreached", "handoff_late")
    assert actions == {"expire_claim"}
    assert machine.retry[0] == "pair"


@pytest.mark.parametrize("order", [BOUND, CONCURRENT, SGLANG], ids=["bound", "concurrent", "sglang"])
def test_retry_d_refused_other_connectors_prefill_again_at_the_same_p(order):
    responded = ("p_ok_whole",) if order == BOUND else ()
    assert retried(order, *responded, "d_unreached", response="respond_502") == OTHER_D
    if order == BOUND:
        assert "orphan_claim" in did(order, "p_ok_whole", "d_unreached")


def test_retry_d_not_eligible_at_the_hand_over_is_chosen_again_and_not_counted():
    machine, actions = run(SERIAL, "p_ok_whole", "d_ineligible")
    assert actions == {"release_d", "retry"}
    assert machine.retry == ("decode_only", False, True, False, False)
    assert did(SERIAL, "p_ok_whole", "d_ineligible", "no_retry") == {"orphan_claim", "respond_503", "over"}
    machine, actions = run(BOUND, "p_ok_whole", "d_ineligible")
    assert actions == {"release_d", "orphan_claim", "retry"}
    assert machine.retry == ("pair", False, True, True, False)


@ALL
def test_retry_d_429_503_408_takes_another_d_and_the_same_p(order):
    assert retried(*waits_for_d(order), "d_busy", response="respond_d") == OTHER_D


@ALL
@pytest.mark.parametrize("event", ["d_error", "d_error_event"])
def test_retry_d_5xx_after_sending_takes_another_pair(order, event):
    assert retried(*waits_for_d(order), event, response="respond_d") == OTHER_PAIR


@pytest.mark.parametrize("order", [SERIAL, CONCURRENT], ids=["serial", "concurrent"])
@pytest.mark.parametrize(("event", "response"), [("d_lost", "respond_502"), ("d_engine_dead", "respond_d")])
def test_retry_d_lost_after_sending_is_one_d_without_parameters(order, event, response):
    """The request may have ended its engine."""
    assert retried(*waits_for_d(order), event, response=response) == OTHER_D_LOCAL
    again = (*waits_for_d(order), event, LOCAL)
    assert did(*again) == {"open_d_without"}
    assert did(*again, "d_sent", event) >= {response if event == "d_engine_dead" else "respond_502", "over"}


def test_retry_d_lost_at_sglang_is_none():
    """It cannot prefill by itself, and no second D gets the parameters."""
    expected = {"d_failed", "close_p", "release_p", "release_d", "respond_502", "over"}
    assert did(SGLANG, "d_sent", "d_lost") == expected


def test_retry_d_first_byte_timeout():
    assert did(*waits_for_d(SERIAL), "d_timeout") >= {"close_d", "release_d", "expire_claim"}
    assert retried(*waits_for_d(SERIAL), "d_timeout", response="respond_504") == OTHER_PAIR


@pytest.mark.parametrize("order", [SERIAL, CONCURRENT], ids=["serial", "concurrent"])
def test_retry_after_a_failed_transfer_and_no_other_pair_is_local(order):
    failed = (*waits_for_d(order), "d_error", "no_other_pair")
    machine, actions = run(*failed)
    assert actions == {"retry"}
    assert machine.retry == ("local", False, False, False, True)  # at the same D as well
    assert did(*failed, LOCAL) == {"open_d_without"}
    assert did(*failed, "no_other_pair") == {"respond_d", "over"}


def test_retry_after_a_failed_transfer_at_sglang_is_never_local():
    assert did(SGLANG, "d_sent", "d_error", "no_other_pair") == {"respond_d", "over"}


NOBODY = ("no_other_pair", {"p_unreached": True})


@pytest.mark.parametrize("order", [SERIAL, CONCURRENT], ids=["serial", "concurrent"])
@pytest.mark.parametrize(("timed_out", "response"), [(False, "respond_502"), (True, "respond_504")])
def test_retry_without_a_p_that_is_reached_is_local_if_the_host_says_so(order, timed_out, response):
    failed = (order, ("p_unreached", {"timed_out": timed_out}))
    machine, actions = run(*failed, NOBODY)
    assert actions == {"retry"}
    assert machine.retry == ("local", False, False, False, True)
    assert did(*failed, NOBODY, LOCAL) == {"open_d_without"}
    assert did(*failed, NOBODY, LOCAL, "d_first_byte") == {"commit"}
    assert did(*failed, NOBODY, NOBODY) == {response, "over"}  # nor is there a D
    assert did(*failed, "no_other_pair") == {response, "over"}


def test_retry_without_a_p_that_is_reached_is_never_local_at_sglang():
    assert did(SGLANG, "p_unreached", NOBODY) == {"respond_502", "over"}


def test_retry_of_a_local_request_stays_local():
    machine, actions = run(LOCAL, "d_sent", "d_busy")
    assert actions == {"release_d", "retry"}
    assert machine.retry == ("local", False, True, True, True)


@pytest.mark.parametrize(
    ("event", "retry"),
    [
        ("d_busy", ("pair", False, True, True, True)),
        ("d_error", ("pair", False, True, True, True)),
        ("d_unreached", ("pair", False, True, True, True)),
        ("d_lost", OTHER_D_LOCAL),
        ("d_engine_dead", OTHER_D_LOCAL),
    ],
)
def test_a_bypass_that_fails_is_retried_by_a_pair_unless_decode_was_lost(event, retry):
    sent = () if event == "d_unreached" else ("d_sent",)
    machine, actions = run(BYPASS, *sent, event)
    assert "retry" in actions
    assert machine.retry == retry
    if retry[0] == "pair":
        assert "open_p" in did(BYPASS, *sent, event, SERIAL)


def test_a_bypass_is_served_like_a_local_request():
    assert did(BYPASS) == did(LOCAL) == {"open_d_without"}
    assert did(BYPASS, "d_sent", "client_gone") == {"close_d", "release_d", "over"}


def test_retry_a_worker_s_response_is_better_than_the_router_s_own():
    assert did(SERIAL, "p_busy", SERIAL, "p_lost", "no_retry") == {"respond_p", "over"}


# ---- failures, row by row


def test_row_1_no_eligible_worker():
    assert did("no_other_pair") == {"respond_503", "over"}
    assert did("no_retry") == {"respond_503", "over"}


@ALL
@pytest.mark.parametrize(("timed_out", "response"), [(False, "respond_502"), (True, "respond_504")])
def test_row_2_p_refused_or_black_hole(order, timed_out, response):
    event = ("p_unreached", {"timed_out": timed_out})
    assert "p_failed" in did(order, event)
    assert ("close_d" in did(order, event)) == (order != SERIAL)
    assert retried(order, event, response=response) == OTHER_P


@ALL
def test_row_3_p_reset_before_its_head(order):
    assert "p_failed" in did(order, "p_lost")
    assert retried(order, "p_lost", response="respond_502") == OTHER_P


@ALL
@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_rows_5_and_6_p_4xx(order, status):
    assert testing.pd_response_class(status, False) == "rejected"
    assert did(order, "p_rejected") >= {"p_succeeded", "respond_p", "over"}


@ALL
@pytest.mark.parametrize("status", [429, 503])
def test_row_7_p_busy(order, status):
    assert testing.pd_response_class(status, status == 503) == "busy"
    assert not did(order, "p_busy") & {"p_failed", "p_succeeded"}
    assert retried(order, "p_busy", response="respond_p") == OTHER_P


@ALL
@pytest.mark.parametrize("status", [500, 502, 503, 504, 507, 529])
def test_row_8_p_5xx(order, status):
    assert testing.pd_response_class(status, False) == "error"
    assert "p_failed" in did(order, "p_error")
    assert retried(order, "p_error", response="respond_p") == OTHER_P


def test_rows_9_and_10_p_200_without_parameters_or_not_json():
    without = (SERIAL, "p_ok_without", "d_sent")
    assert did(*without, "d_first_byte") == {"commit"}
    assert did(*without, "d_error") == {"d_failed", "release_d", "retry"}  # no transfer, so D is to blame


@ALL
def test_row_11_p_s_body_cut_short(order):
    assert "p_failed" in did(order, "p_lost")
    assert retried(order, "p_lost", response="respond_502") == OTHER_P


@pytest.mark.parametrize("order", [SERIAL, SGLANG], ids=["serial", "sglang"])
def test_row_12_p_silent(order):
    expected = {"p_failed", "close_p", "release_p", "release_d", "retry"}
    assert did(order, "p_timeout") == expected | ({"close_d"} if order == SGLANG else set())


def test_row_12_p_silent_beside_a_d_that_waits_is_kept():
    """If both are aborted, vLLM's blocks at D stay held for the engine's life."""
    expected = {"p_failed", "close_d", "keep_p", "release_d", "respond_504"}
    assert did(CONCURRENT, "d_sent", "p_timeout") == expected


def test_row_13_p_s_response_over_the_limit():
    assert did(SERIAL, "p_too_large") == {"close_p", "release_p", "open_d_without"}
    assert did(CONCURRENT, "d_sent", "p_too_large") == {"release_p"}


def test_row_14_a_late_hand_over_prefills_again_for_another_decode():
    machine, actions = run(SERIAL, "p_ok_whole", "handoff_late")
    assert actions == {"close_d", "release_d", "expire_claim", "retry"}
    assert machine.retry == ("pair", False, True, True, True)


@ALL
def test_row_15_d_refused(order):
    first = (order, "p_ok_whole") if order == SERIAL else (order,)
    assert "d_failed" in did(*first, "d_unreached")
    assert retried(*first, "d_unreached", response="respond_502") == (
        SAME_CLAIM if order == SERIAL else OTHER_D
    )


@ALL
def test_row_16_d_400(order):
    assert did(*waits_for_d(order), "d_rejected") >= {"d_succeeded", "respond_d", "over"}


@ALL
def test_row_17_d_429_503(order):
    actions = did(*waits_for_d(order), "d_busy")
    assert not actions & {"d_failed", "d_succeeded", "p_failed"}
    assert ("close_p" in actions) == (order != SERIAL)


@ALL
def test_row_18_d_5xx_before_a_byte_counts_for_neither(order):
    """A transfer that failed: one dead P would open the breakers of all D."""
    assert not did(*waits_for_d(order), "d_error") & {"d_failed", "p_failed"}
    assert "d_failed" in did(LOCAL, "d_sent", "d_error")


@ALL
def test_row_19_d_head_then_reset(order):
    actions = did(*waits_for_d(order), "d_head", "d_lost")
    assert "d_failed" in actions
    assert ("retry" in actions) == (order != SGLANG)


@ALL
def test_row_20_d_cut_mid_stream(order):
    assert did(*waits_for_d(order), "d_first_byte", "d_lost") >= {"d_failed", "over"}


@ALL
def test_row_21_d_s_first_bytes_are_an_error_event(order):
    actions = did(*waits_for_d(order), "d_head", "d_error_event")
    assert not actions & {"d_failed", "p_failed", "commit"}
    assert retried(*waits_for_d(order), "d_head", "d_error_event", response="respond_d") == OTHER_PAIR


def test_row_22_d_waits_for_blocks_past_the_limit():
    """P may have stopped, so it does not count against D."""
    assert did(*waits_for_d(SERIAL), "d_timeout") == {"close_d", "release_d", "expire_claim", "retry"}
    closed = {"close_d", "close_p", "release_d", "release_p", "retry"}
    assert did(SGLANG, "d_sent", "d_timeout") == closed
    assert did(CONCURRENT, "d_sent", "d_timeout") == {"close_d", "keep_p", "release_d", "respond_504"}
    assert "d_failed" in did(LOCAL, "d_sent", "d_timeout")


@BOTH_AT_ONCE
def test_row_23_p_5xx_after_d_s_first_byte(order):
    actions = did(order, "d_sent", "d_first_byte", "p_error")
    assert actions == {"p_failed", "close_d", "release_p", "release_d", "over"}


@BOTH_AT_ONCE
def test_row_24_p_lost_after_d_s_first_byte(order):
    begun = (order, "d_sent", "d_first_byte", "p_lost")
    assert did(*begun) == {"p_failed", "release_p"}
    assert did(*begun, "d_done") == {"d_succeeded", "release_d", "over"}


@BOTH_AT_ONCE
def test_row_25_d_done_and_p_never_responds(order):
    done = (order, "d_sent", "d_first_byte", "d_done")
    assert did(*done) == {"d_succeeded", "release_d", "keep_p"}
    assert did(*done, "keep_over") == {"close_p", "release_p", "over"}


def test_row_26_sglang_p_refused_while_d_waits():
    actions = did(SGLANG, "d_sent", "p_unreached")
    assert actions == {"p_failed", "close_d", "release_p", "release_d", "retry"}


def test_row_27_sglang_d_refused_while_p_waits():
    assert did(SGLANG, "d_unreached") == {"d_failed", "close_p", "release_p", "release_d", "retry"}


def test_row_28_mooncake_engine_id_unknown_is_a_worker_that_is_not_eligible():
    assert did("no_other_pair") == {"respond_503", "over"}


def test_row_29_mooncake_engine_id_stale_is_a_d_5xx():
    assert retried(*waits_for_d(CONCURRENT), "d_error", response="respond_d") == OTHER_PAIR


def test_row_30_push_identity_stale_and_the_next_attempt_is_serial():
    stale = (*waits_for_d(CONCURRENT), "d_error")
    assert did(*stale) >= {"close_p", "retry"}
    assert did(*stale, SERIAL) == {"open_p"}


def test_row_31_moriio_without_a_registration_is_a_plan_without_workers():
    assert did("no_retry") == {"respond_503", "over"}


def test_row_32_a_claim_that_is_too_old_is_never_sent():
    machine, _ = run(SERIAL, "p_ok_whole", "handoff_late", SERIAL)
    assert not machine.holds_claim
    assert did(SERIAL, "p_ok_whole", "handoff_late", SERIAL) == {"open_p"}
    # Once D has the request, its own clock decides.
    assert did(*waits_for_d(SERIAL), "handoff_late") == set()


@ALL
def test_row_33_client_gone_is_neutral_for_the_breakers(order):
    verdicts = {"p_failed", "p_succeeded", "d_failed", "d_succeeded"}
    gone = (*waits_for_d(order), "client_gone")
    for late in ("client_gone", "p_lost", "p_ok_whole", "d_lost", "d_done", "d_rejected"):
        assert not did(*gone, late) & verdicts


def test_row_35_the_limit_of_kept_legs_closes_them():
    expected = {"close_p", "close_d", "release_p", "release_d", "over"}
    assert did(CONCURRENT, "d_sent", "client_gone", "keep_over") == expected
    actions = did(*waits_for_d(SERIAL), "client_gone", "keep_over")
    assert actions == {"close_d", "release_d", "expire_claim", "over"}


def test_row_38_body_budget_exhausted_by_p_s_response():
    assert did(SERIAL, "p_over_budget") == {"close_p", "release_p", "release_d", "respond_503", "over"}
    expected = {"close_p", "close_d", "release_p", "release_d", "respond_503", "over"}
    assert did(SGLANG, "d_sent", "p_over_budget") == expected
    assert did(CONCURRENT, "d_sent", "p_over_budget") == {"keep_p", "close_d", "release_d", "respond_503"}


# ---- what the tables do not say


def test_a_refusal_after_a_byte_has_left_is_a_loss():
    """UpstreamRequest took a fresh connection for a stale one, whose engine may have died of the request."""
    machine, actions = run(SERIAL, "p_ok_whole", "d_sent", "d_unreached")
    assert actions == {"d_failed", "release_d", "expire_claim", "retry"}
    assert machine.retry == OTHER_D_LOCAL


def test_cancel_prefill_always_closes_p_although_d_waits():
    assert did(CONCURRENT, "d_sent", "client_gone", cancel="always") == {"close_p", "release_p", "keep_d"}


def test_cancel_prefill_never_keeps_p_and_gives_up_the_retry():
    assert did(SERIAL, "client_gone", cancel="never") == {"keep_p", "release_d"}
    expected = {"d_failed", "keep_p", "release_d", "respond_502"}
    assert did(SGLANG, "d_unreached", cancel="never") == expected


@pytest.mark.parametrize("status", [200, 204, 206])
def test_2xx_is_ok(status):
    assert testing.pd_response_class(status, False) == "ok"


@pytest.mark.parametrize("status", [101, 302, 413, 422, 499, 501, 505])
def test_statuses_that_no_retry_changes_are_the_client_s(status):
    assert testing.pd_response_class(status, False) == "rejected"


def test_events_of_legs_that_are_over_do_nothing():
    assert did(SERIAL, "p_ok_whole", "p_lost") == set()
    assert did(SERIAL, "d_first_byte") == set()
    assert did(SERIAL, "p_rejected", "client_gone") == set()
