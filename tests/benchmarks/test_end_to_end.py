"""benchmarks/end_to_end still works, tells the truth about itself, and cleans up behind itself."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / "benchmarks" / "end_to_end" / "run.py"

spec = importlib.util.spec_from_file_location("end_to_end_run", RUN)
run = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = run
spec.loader.exec_module(run)


def start(directory, *arguments):
    """run.py as the leader of a session: whatever it starts can be recognised by that."""
    return subprocess.Popen(
        [sys.executable, RUN, "--json", directory / "rows.json", *arguments],
        env=os.environ | {"TMPDIR": str(directory)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def processes_of_session(session):
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                name, _, rest = (directory / "stat").read_text().rpartition(")")
            except OSError:
                continue  # it has just ended
            state, _parent, _group, its_session = rest.split()[:4]
            if int(its_session) == session and state != "Z":
                found.append(name)
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_smoke_run_measures_every_scenario_and_leaves_no_process_behind(tmp_path):
    # Its windows are of 0.1 s, in which a machine that stands still for longer serves nothing.
    for _ in range(3):
        process = start(tmp_path, "--smoke")
        out, _ = process.communicate()
        assert process.returncode == 0, out
        assert processes_of_session(process.pid) == []
        rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
        all_rows = [row for by_contender in rows.values() for (row,) in by_contender.values()]
        if all(row["requests"] + row["events"] > 0 for row in all_rows):
            break
    assert set(rows) == {scenario.name for scenario in run.SCENARIOS}
    for by_contender in rows.values():
        assert "ours" in by_contender
        for (row,) in by_contender.values():
            assert row["errors"]["all"] == 0
            assert row["requests"] + row["events"] > 0
            assert row["cpu_us"] > 0


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_run_leaves_no_process_behind(number, tmp_path):
    process = start(tmp_path, "--scenarios", "json1k", "--rounds", "50")
    for line in process.stdout:  # until the proxies are up
        if "returned the same bytes" in line:
            break
    assert processes_of_session(process.pid) != []
    os.kill(process.pid, number)
    out, _ = process.communicate()  # stdout closes when the last process that inherited it has ended
    assert process.returncode == (-number if number == signal.SIGKILL else 130), out
    while processes_of_session(process.pid):  # after SIGKILL the kernel ends them, soon
        pass


def row(**changes):
    return {"errors": {"all": 0}, "checksum": "1", "core_busy": [0.5, 0.5], "rps": 2000.0} | changes


class FakeBench:
    load_core = 1


SCENARIOS = {scenario.name: scenario for scenario in run.SCENARIOS}


def test_an_open_loop_with_a_saturated_generator_is_not_valid():
    saturated = row(core_busy=[0.1, 0.97])
    assert "97% busy" in run.judge(saturated, SCENARIOS["open2k"], FakeBench, "1")
    assert "97% busy" in run.judge(saturated, SCENARIOS["sse1000"], FakeBench, "1")
    assert run.judge(saturated, SCENARIOS["json1k"], FakeBench, "1") == ""  # a closed loop fills its core


def test_an_open_loop_that_did_not_keep_its_rate_is_not_valid():
    assert "1900 of 2000" in run.judge(row(rps=1900.0), SCENARIOS["open2k"], FakeBench, "1")
    assert run.judge(row(rps=1990.0), SCENARIOS["open2k"], FakeBench, "1") == ""


def test_a_row_with_errors_or_other_bytes_is_not_valid():
    assert "errors" in run.judge(row(errors={"all": 1}), SCENARIOS["json1k"], FakeBench, "1")
    assert "checksum" in run.judge(row(checksum="2"), SCENARIOS["json1k"], FakeBench, "1")


def test_ratios_are_taken_within_a_round_and_without_the_rows_that_are_not_valid():
    results = run.Results()
    for ours, nginx, invalid in [(10, 20, ""), (40, 50, ""), (100, 10, "errors"), (30, 40, "")]:
        results.add("json1k", "ours", {"cpu_us": ours, "invalid": invalid})
        results.add("json1k", "nginx", {"cpu_us": nginx, "invalid": ""})
    ratio = results.paired("json1k", "ours", "nginx", lambda row: row["cpu_us"], lambda a, b: a / b)
    assert ratio == 0.75  # of 0.5, 0.8 and 0.75


class Answers:
    """A server that gives one answer per connection, the next each time, then closes it."""

    def __init__(self, bodies):
        self._bodies = bodies
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        for body in self._bodies:
            connection, _ = self._listener.accept()
            with connection:
                request = b""
                while b'"}]}' not in request:  # its end
                    request += connection.recv(65536)
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body
                )
        self._listener.close()


def ask(port, requests):
    command = [run.PROGRAMS / "load_generator", "--port", str(port), "--mode", "closed", "--connections", "1"]
    done = subprocess.run(
        [*command, "--requests", str(requests), "--seconds", "30", "--warmup", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return json.loads(done.stdout)


def test_the_load_generator_notices_one_byte_that_differs():
    result = ask(Answers([b"same", b"same", b"sane", b"same", b"same"]).port, requests=4)
    assert result["errors"]["differs"] == 1
    assert result["errors"]["all"] == 1
    assert result["requests"] == 4


def test_the_load_generator_notices_a_body_that_is_longer():
    result = ask(Answers([b"same", b"same and more", b"same"]).port, requests=2)
    assert result["errors"]["differs"] == 1
    assert result["requests"] == 2


def test_the_load_generator_counts_a_status_that_is_not_200_as_an_error(tmp_path):
    # The mock worker knows no other status, but ours answers an unknown worker's absence itself.
    with run.Processes() as processes:
        bench = run.Bench(processes, tmp_path, None)
        ours = bench.start("ours")
        processes.end(bench.upstream.process)
        with pytest.raises(run.BenchmarkError, match="more than 1000 errors"):
            bench.load(ours, run.SCENARIOS[0].arguments(seconds=60, warmup=0), 60)


def test_the_chart_shows_each_median_and_leaves_out_what_is_not_valid():
    chart_spec = importlib.util.spec_from_file_location("end_to_end_chart", RUN.with_name("chart.py"))
    chart = importlib.util.module_from_spec(chart_spec)
    chart_spec.loader.exec_module(chart)

    def rows(*costs):
        return [{"cpu_us": cost, "invalid": ""} for cost in costs] + [{"cpu_us": 99.0, "invalid": "errors"}]

    results = {
        "rows": {
            "json1k": {
                "ours": rows(20.0, 22.0, 21.0),
                "ours/auto": rows(23.0),
                "nginx": rows(25.0),
                "haproxy": rows(),
            },
            "lat1": {},
        },
        "about": {"machine": "2 x CPU", "commit": "abc-dirty"},
    }
    assert chart.medians(results) == {"json1k": {"ours": 21.0, "ours/auto": 23.0, "nginx": 25.0}}
    drawn = chart.svg(results)
    assert "21.0 vllm-router, round_robin" in drawn
    assert "23.0 vllm-router, auto" in drawn
    assert "25.0 nginx" in drawn
    assert "99.0" not in drawn
    assert "commit abc." in drawn
