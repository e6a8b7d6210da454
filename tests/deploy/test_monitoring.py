"""The board, the rules and docs/how-to/monitor.md agree with each other and with what a router says."""

import itertools
import re

from scripts.grafana_board import text
from tests.deploy.monitoring import BOARD, ROOT, expressions, panels, rules, running, selects, talk
from tests.fakes.harness import Harness
from tests.fakes.prometheus_text import parse
from tests.fakes.wire import eventually

MONITOR = (ROOT / "docs" / "how-to" / "monitor.md").read_text()
REFERENCE = (ROOT / "docs" / "reference" / "metrics.md").read_text()

# Absent until something happens that does not happen here.
SPECIAL = {
    "admission_rejected_total": "a request that is not admitted",
    "cb_state_transitions_total": "a circuit breaker that opens",
    "certificate_seconds_left": "TLS",
    "condition": "something that is wrong",
    "kv_batches_applied_total": "a worker that publishes KV events",
    "kv_batches_lost_total": "the same",
    "kv_trust": "the same",
    "peer_sync_peers": "a Redis in which routers meet",
    "peer_sync_up": "the same",
    "program_working_set_ratio": "programs at a worker whose KV cache is known",
    "rate_limit_fallback": "the same",
    "reloads_total": "a file that is read again",
}


def names(texts: list[str]) -> set[str]:
    """Names of metrics without their prefix; those that rules record have a colon."""
    found = {name for each in texts for name in re.findall(r"(?<![\w:])vllm_router_(\w+)(?!:)\b", each)}
    return {re.sub("_(bucket|count|sum)$", "", name) for name in found}


def alert_table() -> list[str]:
    """The names of alerts, as the page's first column has them."""
    section = MONITOR.split("\n## Alerts\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([^|`]+) \| [^|]+ \|$", section, re.MULTILINE)[1:]
    assert len(rows) == section.count("\n|") - 2, "a row that cannot be read"
    kept = [[word for word in row.split() if word not in ("a", "the")] for row in rows]
    return ["VllmRouter" + "".join(word[0].upper() + word[1:] for word in words) for words in kept]


def test_every_metric_of_the_board_the_rules_and_the_page_exists(harness: Harness) -> None:
    recorded = [rule["expr"] for rule in rules("recording.yml")]
    alerted = [rule["expr"] for rule in rules("alerts.yml")]
    used = names([MONITOR, *recorded, *alerted, *itertools.chain.from_iterable(expressions().values())])
    assert len(used) > 30
    with running(harness) as (router, client):
        talk(client)

        def absent() -> set[str]:
            page = parse(router.server.metrics_text())
            return used - {
                name.removeprefix("vllm_router_") for name, family in page.items() if family.series
            }

        # An exchange is counted after its last byte.
        eventually(lambda: "request_errors_total" not in absent(), "the error was not counted")
        assert absent() == set(SPECIAL)
    for name in SPECIAL:
        assert f"- `{name}`" in REFERENCE


def test_the_rules_that_record_are_those_that_the_board_uses() -> None:
    used = set(re.findall(r"\w+:\w+:\w+", " ".join(itertools.chain.from_iterable(expressions().values()))))
    assert used == {rule["record"] for rule in rules("recording.yml")}


def test_the_alerts_are_those_of_the_page() -> None:
    assert [rule["alert"] for rule in rules("alerts.yml")] == alert_table()


def test_every_alert_says_how_urgent_it_is_and_what_it_means() -> None:
    for rule in rules("alerts.yml"):
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}, rule["alert"]
        assert rule["annotations"]["runbook"] == "docs/how-to/monitor.md#alerts"


def test_the_board_is_what_its_script_writes() -> None:
    assert BOARD.read_text() == text(), (
        "run: python scripts/grafana_board.py > deploy/grafana/vllm-router.json"
    )


def test_every_panel_has_a_unit_a_description_and_selectors() -> None:
    for panel in panels():
        if panel["type"] == "row":
            continue
        assert panel["type"] in ("stat", "timeseries"), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        for target in panel["targets"]:
            assert selects(target["expr"]), target["expr"]


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    assert len({panel["id"] for panel in panels()}) == len(panels())
    cells: dict[tuple[int, int], str] = {}
    for panel in panels():
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        for x, y in itertools.product(range(place["w"]), range(place["h"])):
            cell = (place["x"] + x, place["y"] + y)
            assert cells.setdefault(cell, panel["title"]) == panel["title"], cell
