"""The dashboard in Chromium, in front of a real router."""

import csv
import io
import os
import time

import pytest

from tests.dashboard.conftest import PICTURES, Fleet, Traffic
from tests.dashboard.played_router import PlayedRouter, healthy, large, play, receipt, tick, trouble, worker
from tests.fakes.viewer import EVENTS

pytestmark = pytest.mark.browser

HOSTILE = '"><img src=x onerror="document.title=\'broken\'">'
HEAP_SECONDS = float(os.environ.get("VLLM_ROUTER_TEST_HEAP_SECONDS", "20"))
HEAP_GROWTH = 2 << 20
SILENT = "KV events of gpu-1 are silent."


def open_at(browser, url):
    browser.open(url)
    browser.wait(lambda: browser.text("#tiles .big") != "", "the page has no numbers")


def rows(browser):
    """(name, state) of each row."""
    return [tuple(text.split("\t")[:2]) for text in browser.texts("#workers tbody tr")]


def names(browser):
    return browser.texts("#workers tbody .worker b")


# ---- with a router


def test_a_page_has_a_sentence_rows_charts_and_a_receipt(browser, fleet):
    open_at(browser, fleet.url)
    assert browser.text("#sentence") == "All 3 workers serve. No request yet."
    with Traffic(fleet):
        browser.wait(lambda: browser.texts("#decisions .decision") != [], "no receipt came")
        browser.wait(lambda: "come from cache" in browser.text("#sentence"), "nothing came from a cache")
    assert len(names(browser)) == 3
    assert browser.texts("#workers .state") == ["serves"] * 3
    assert browser.run("return document.querySelectorAll('.curve[d^=M]').length") >= 3
    assert browser.messages() == []


def test_a_killed_worker_is_red_within_three_seconds(browser, fleet):
    with Traffic(fleet):
        open_at(browser, fleet.url)
        browser.wait(lambda: browser.texts("#decisions .decision") != [], "no receipt came")
        fleet.workers[1].stop()
        before = time.time()
        browser.wait(lambda: browser.text("#sentence em") != "", "the page never said it")
        after = browser.run(
            "return known.points.find((each) => each[0] >= known.tick.conditions[0].since)[0]"
        )
    assert after - before < 3
    assert fleet.status()["conditions"][0]["worker"] == fleet.workers[1].url
    browser.wait(lambda: browser.text("#workers tbody tr .state") == "down", "it is not down")
    browser.wait(
        lambda: browser.text("#sentence") == fleet.status()["sentence"], "status says something else"
    )
    assert browser.text("#workers tbody tr .worker b") in fleet.workers[1].url
    assert browser.text("#workers tbody tr .worker small") == "fails its health checks"
    assert browser.run("return document.title").startswith("(1) ")


def test_a_receipt_opens_and_closes_and_the_list_stands_still(browser, fleet):
    with Traffic(fleet):
        open_at(browser, fleet.url)
        browser.wait(lambda: len(browser.texts("#decisions .decision")) > 3, "no receipts came")
        browser.click("#decisions .decision")
        assert browser.text("#decisions .receipt p").endswith(".")
        assert "chatcmpl-" in browser.text("#decisions .receipt dl")
        before = browser.texts("#decisions .decision")
        point = browser.run("return known.points.at(-1)[0]")
        browser.wait(lambda: browser.run("return known.points.at(-1)[0]") > point + 1, "no tick came")
        assert browser.texts("#decisions .decision") == before
    browser.click("#decisions .decision[aria-expanded=true]")
    assert browser.texts("#decisions .receipt") == []


def test_filter_pause_and_csv(browser, fleet):
    open_at(browser, fleet.url)
    browser.press("/")
    port = fleet.workers[2].url.rpartition(":")[2]
    browser.press(port)
    browser.wait(lambda: len(names(browser)) == 1, "the filter does nothing")
    assert port in names(browser)[0]
    browser.press("\ue00c")  # escape
    browser.wait(lambda: len(names(browser)) == 3, "the filter stays")
    browser.press("p")
    assert browser.text("#live") == "paused"
    shown = browser.text("#who")
    before = browser.run("return known.points.length")
    browser.wait(lambda: browser.run("return known.points.length") > before, "no tick came")
    assert browser.text("#who") == shown
    browser.click("#pause")
    assert browser.text("#live") == "live, every second"
    lines = list(csv.DictReader(io.StringIO(browser.run("return workersAsCsv()"))))
    assert [line["url"] for line in lines] == [worker.url for worker in fleet.workers]
    assert {line["state"] for line in lines} == {"serves"}
    browser.click("#csv")
    browser.wait(lambda: browser.text("#csv") == "Copied", "nothing was copied")


def test_hostile_models_are_text(browser, fleet):
    open_at(browser, fleet.url)
    fleet.chat("hello", model=HOSTILE)
    browser.wait(lambda: HOSTILE in browser.text("#decisions"), "the model is not shown")
    browser.click("#decisions .decision")
    assert HOSTILE in browser.text("#decisions .receipt")
    assert browser.run("return document.images.length") == 0
    assert browser.run("return document.title") == "vllm-router"
    assert browser.messages() == []


def test_nothing_is_asked_of_others_and_the_console_is_empty(browser, fleet):
    with Traffic(fleet):
        open_at(browser, fleet.url)
        browser.wait(lambda: browser.texts("#decisions .decision") != [], "no receipt came")
    root = f"http://127.0.0.1:{fleet.port}"
    asked = [url for url in browser.requested() if not url.startswith("data:")]
    assert asked == [f"{root}/dashboard", f"{root}{EVENTS}"]
    assert browser.messages() == []


def test_a_router_that_goes_and_comes(browser, fleet):
    open_at(browser, fleet.url)
    fleet.stop_router()
    browser.wait(lambda: browser.text("#sentence").startswith("Not connected since "), "it looks connected")
    assert browser.run("return document.body.className") == "lost"
    assert len(names(browser)) == 3  # greyed, but there
    fleet.start_router()
    browser.wait(lambda: browser.text("#sentence").startswith("All 3 workers serve."), "it stays lost")
    assert browser.run("return document.body.className") == ""


def test_an_admins_key_is_asked_for(browser, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("the-admin-key-1234567890\n")
    fleet = Fleet(admin_api_key_file=str(keys))
    try:
        browser.open(fleet.url)
        browser.wait(lambda: "admin's key" in browser.text("#sentence"), "it asks for no key")
        browser.press("not-the-key\n")
        browser.wait(lambda: browser.text("#sentence") == "This is no key of an admin.", "any key will do")
        browser.press("the-admin-key-1234567890\n")
        browser.wait(lambda: browser.text("#sentence").startswith("All 3"), "the key is not taken")
        browser.driver.refresh()
        browser.wait(lambda: browser.text("#sentence").startswith("All 3"), "the key is forgotten")
        assert "the-admin-key" not in browser.run("return document.documentElement.outerHTML")
    finally:
        fleet.close()


def test_the_17th_viewer_is_told_why(browser, fleet):
    import socket

    open_ = [socket.create_connection(("127.0.0.1", fleet.port)) for _ in range(16)]
    try:
        for one in open_:
            one.sendall(f"GET {EVENTS} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            assert one.recv(12) == b"HTTP/1.1 200"
        browser.open(fleet.url)
        browser.wait(lambda: "16 viewers" in browser.text("#sentence"), "it does not say so")
    finally:
        for one in open_:
            one.close()
    browser.wait(lambda: browser.text("#sentence").startswith("All 3"), "it does not come back")


@pytest.mark.timeout(900)
def test_the_page_does_not_grow(browser, fleet):
    """`VLLM_ROUTER_TEST_HEAP_SECONDS=300` looks for as long as the design wants."""
    with Traffic(fleet):
        open_at(browser, fleet.url)
        begun = time.monotonic()
        # The history has to be full for its points to be no growth.
        browser.run(
            "const p = known.points; while (p.length < 600) p.unshift([p[0][0] - 1, 0, 0, 0, 0, 0, 0]);"
        )
        browser.wait(lambda: browser.texts("#decisions .decision") != [], "no receipt came")
        before = browser.heap()
        browser.wait(lambda: time.monotonic() - begun > HEAP_SECONDS, "", patience=HEAP_SECONDS + 30)
        assert browser.heap() - before <= HEAP_GROWTH


# ---- played


def test_hostile_urls_are_text(browser):
    events = play([worker(0, url="http://gpu-0:8000/" + HOSTILE), worker(1, url=HOSTILE)])
    with PlayedRouter(events) as router:
        open_at(browser, router.url)
        assert HOSTILE in browser.text("#workers")
        assert browser.run("return document.images.length") == 0
        assert browser.messages() == []


def test_what_no_engine_reports_is_said_with_the_flag(browser):
    events = healthy()
    facts = events[-1][1]["facts"]
    facts["reporting"] = 0
    events[-1][1]["point"][4] = None
    with PlayedRouter(events) as router:
        open_at(browser, router.url)
        assert "--enable-prompt-tokens-details" in browser.text("#tiles")


def test_without_a_hold_out_its_flag_is_named(browser):
    events = healthy()
    events[0][1].pop("holdout")
    with PlayedRouter(events) as router:
        open_at(browser, router.url)
        assert "--holdout-percent 1" in browser.text("#saved")


def test_a_hold_out_is_shown_with_its_intervals(browser):
    with PlayedRouter(healthy()) as router:
        open_at(browser, router.url)
        browser.wait(lambda: "+32 points" in browser.text("#saved"), "it is not shown")
        said = browser.text("#saved")
        assert "2.1 to 2.9 billion tokens a day" in said
        assert said.count("no conclusion yet") == 2


def test_receipts_that_are_off_are_said_with_the_flag(browser):
    events = [event for event in healthy() if event[0] != "receipt"]
    events[0][1]["receipts"] = False
    with PlayedRouter(events) as router:
        open_at(browser, router.url)
        assert "--receipts" in browser.text("#decisions")
        assert "--receipts" in browser.text("#tiles")


def test_of_many_workers_those_in_trouble_and_the_busiest_are_shown(browser):
    with PlayedRouter(large()) as router:
        open_at(browser, router.url)
        shown = names(browser)
        assert len(shown) == 51
        assert shown[0] == "gpu-70"
        assert "51 of 100 shown" in browser.text("#workers-note")
        browser.press("/gpu-9")
        browser.wait(lambda: len(names(browser)) == 11, "the filter leaves workers out")


@pytest.mark.parametrize(
    ("urls", "short"),
    [
        (["http://gpu-0:8000", "http://gpu-1:8000"], ["gpu-0", "gpu-1"]),
        (["http://10.0.0.1:8000", "http://10.0.0.2:8000"], ["10.0.0.1", "10.0.0.2"]),
        (["http://h:8000", "http://h:8001"], ["h:8000", "h:8001"]),
        (["http://h:8000@0", "http://h:8000@1"], ["h@0", "h@1"]),
        (["http://a.x.example", "http://b.x.example"], ["a", "b"]),
        (["http://[::1]:80", "http://[::2]:80"], ["[::1]", "[::2]"]),
        (["http://h:8000", "https://h:8000"], ["http://h:8000", "https://h:8000"]),
        (["http://only:8000"], ["only"]),
    ],
    ids=["hosts", "addresses", "ports", "ranks", "domains", "ipv6", "schemes", "one"],
)
def test_names_are_the_shortest_that_differ(browser, urls, short):
    with PlayedRouter(healthy()) as router:
        open_at(browser, router.url)
        assert browser.run("return shortNames(arguments[0])", urls) == short


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("played", [healthy, trouble], ids=["healthy", "trouble"])
def test_nothing_is_wider_than_the_screen(browser, played, width, dark):
    with PlayedRouter(played()) as router:
        browser.size(width, 900)
        browser.open(router.url, dark=dark)
        browser.wait(lambda: "points" in browser.text("#saved"), "the page is not complete")
        browser.click("#decisions .decision")
        root = browser.run("const r = document.documentElement; return [r.scrollWidth, r.clientWidth]")
        assert root[0] <= root[1]
        cards = "[...document.querySelectorAll('.card, .tile')]"
        assert browser.run(f"return {cards}.filter(e => e.scrollWidth > e.clientWidth).length") == 0
        browser.picture(PICTURES / f"{played.__name__}_{width}_{'dark' if dark else 'light'}.png")


def test_two_troubles_are_one_sentence_and_a_line(browser):
    now = time.time()
    conditions = [
        {"condition": "worker_is_down", "severity": "ticket", "since": now - 90, "worker": "http://gpu-0:8000",
         "text": "http://gpu-0:8000 fails its health checks. 2 other workers take its requests."},
        {"condition": "kv_events", "severity": "ticket", "since": now, "text": SILENT},
    ]  # fmt: skip
    with PlayedRouter(play([worker(number) for number in range(3)], conditions)) as router:
        open_at(browser, router.url)
        assert browser.text("#sentence em") == "http://gpu-0:8000 fails its health checks."
        assert browser.text("#sentence").endswith("And 1 more.")
        assert browser.text("#under").startswith("For 1 minute.")
        assert SILENT in browser.text("#under")


def test_a_receipt_without_a_prediction_has_a_sentence(browser):
    now = time.time()
    nothing = {"predicted_cached_tokens": None, "reported_cached_tokens": None, "best_match": None,
               "foregone_tokens": None, "reason": "least_loaded", "policy": "least_load"}  # fmt: skip
    rows_ = [worker(0), worker(1)]
    events = [*play(rows_)[:2], ("receipt", receipt(now, 0, **nothing)), ("tick", tick(now, rows_, []))]
    with PlayedRouter(events) as router:
        open_at(browser, router.url)
        browser.click("#decisions .decision")
        assert browser.text("#decisions .receipt p").startswith("least_load chose gpu-1: least loaded.")
