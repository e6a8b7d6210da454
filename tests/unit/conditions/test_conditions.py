"""cpp/conditions/conditions.h: what is said of a fleet, and what is not."""

from vllm_router import _core_testing as testing

A, B, C = (f"http://gpu-{name}:8000" for name in "abc")
MS = 1_000_000


def found(*fleet):
    return [(kind, worker, model) for kind, worker, model, _, _ in testing.find_conditions(list(fleet))]


def texts(*fleet):
    return [row[4] for row in testing.find_conditions(list(fleet))]


def served(count, status=200, ms=100, *, stream=True):
    return [(status, stream, ms * MS)] * count


def worker(url, attempts=(), state="serves", model="m"):
    return (url, state, {model: list(attempts)} if attempts else {})


def test_a_fleet_that_serves_has_no_conditions():
    assert found(worker(A, served(100)), worker(B, served(5)), worker(C)) == []


def test_states_of_the_fleet_are_told_with_who_serves_instead():
    assert texts(worker(A, state="unhealthy"), worker(B), worker(C)) == [
        f"{A} fails its health checks. 2 other workers take its requests."
    ]
    assert found(worker(A, state="hangs"), worker(B)) == [("worker_hangs", A, "")]
    assert found(worker(A, served(3) + served(9, 0), state="ejected"), worker(B)) == [
        ("worker_ejected", A, ""),
        ("model_fails", A, "m"),
    ]
    assert found(worker(A, state="draining"), worker(B)) == []


def test_that_no_worker_serves_comes_first():
    rows = testing.find_conditions([worker(A, state="unhealthy"), worker(B, state="hangs")])
    assert [(row[0], row[3]) for row in rows] == [
        ("no_worker_serves", True),
        ("worker_is_down", False),
        ("worker_hangs", False),
    ]
    assert "take" not in rows[1][4]
    assert found() == [("no_worker_serves", "", "")]


def test_one_worker_with_another_key_is_told_by_its_name():
    rows = testing.find_conditions([worker(A, served(30, 401) + served(10)), worker(B, served(40))])
    assert [(row[0], row[1], row[3]) for row in rows] == [("worker_rejects", A, True)]
    assert "30 of 40 responses of the last minute were 401, and clients got them." in rows[0][4]


def test_all_with_another_key_are_told_in_one_sentence():
    rows = testing.find_conditions([worker(A, served(30, 401)), worker(B, served(10, 403)), worker(C)])
    assert [row[0] for row in rows] == ["all_reject"]
    text = rows[0][4]
    assert text.startswith("All 2 workers that respond reject requests: 40 of 40 responses")
    assert " were 401 or 403, " in text
    (text,) = texts(worker(A, served(30, 403)), worker(B, served(10, 403)))
    assert text.startswith("All 2 workers reject requests: 40 of 40 responses of the last minute were 403, ")


def test_few_refusals_and_those_of_one_client_among_many_are_none():
    assert found(worker(A, served(9, 401)), worker(B, served(9, 401))) == []
    assert found(worker(A, served(100) + served(60, 401)), worker(B, served(100))) == []
    assert found(worker(A, served(400, 400)), worker(B, served(400, 429))) == []


def test_404_is_what_a_worker_does_not_find():
    assert found(worker(A, served(20, 404)), worker(B, served(9))) == [("worker_not_found", A, "")]
    assert found(worker(A, served(19, 404)), worker(B, served(9))) == []


def test_a_model_that_fails_at_one_worker_is_named():
    fleet = (A, "serves", {"bad": served(3) + served(5, 500), "good": served(100)})
    rows = testing.find_conditions([fleet, worker(B, served(100), model="bad")])
    assert [row[:3] for row in rows] == [("model_fails", A, "bad")]
    assert rows[0][4] == (
        f'{A} fails model "bad": 5 of 8 attempts of the last minute got 5xx, at the other workers 0 of 100.'
    )
    assert texts((A, "serves", {"bad": served(9, 0)}), worker(B)) == [
        f'{A} fails model "bad": 9 of 9 attempts of the last minute got no response; '
        "no other worker was tried."
    ]


def test_a_worker_that_is_down_is_not_told_again_for_its_models():
    assert found(worker(A, served(9, 0), state="unhealthy"), worker(B)) == [("worker_is_down", A, "")]


def test_a_slow_worker_is_compared_with_others_of_its_model():
    slow, fast = served(5, ms=1000), served(50, ms=100)
    assert found(worker(A, slow), worker(B, fast)) == [("worker_is_slow", A, "m")]
    assert found(worker(A, slow), worker(B, fast), worker(C, fast)) == [("worker_is_slow", A, "m")]
    assert found(worker(A, slow), worker(B, fast, model="other")) == []
    assert found(worker(A, served(5, ms=250)), worker(B, fast)) == []
    assert found(worker(A, served(4, ms=1000)), worker(B, fast)) == []
    assert found(worker(A, served(5, ms=40)), worker(B, served(5, ms=1))) == []


def test_times_are_told_as_the_table_rounds_them():
    assert texts(worker(A, served(9, ms=1000)), worker(B, served(9, ms=100))) == [
        f'{A} is slow: the median time until its streams of "m" began was 861 ms in the last minute, '
        "at the other workers 108 ms."
    ]


def test_streams_are_not_compared_with_whole_responses():
    assert found(worker(A, served(9, ms=4000, stream=False)), worker(B, served(9, ms=100))) == []
    assert found(worker(A, served(9, ms=4000, stream=False)), worker(B, served(9, ms=100, stream=False))) == [
        ("worker_is_slow", A, "m")
    ]


def test_where_half_of_the_workers_are_slow_none_is_but_the_slower_ones():
    fast, slow = served(9, ms=100), served(9, ms=1000)
    urls = [f"http://gpu-{number}:8000" for number in range(4)]
    fleet = [worker(url, fast if number < 2 else slow) for number, url in enumerate(urls)]
    assert found(*fleet) == [("worker_is_slow", url, "m") for url in urls[2:]]
    fleet[1] = worker(urls[1], slow)
    assert found(*fleet) == []
