"""python/vllm_router/replay/command.py: the command, and what it says to mistakes."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_router import launch_router
from vllm_router.replay import command
from vllm_router.replay.command import make_parser

SLICE = str(Path(__file__).parents[3] / "data" / "mooncake_conversation_200.jsonl")


def replay(capsys, *words):
    status = command.main([*words])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_the_command_compares_and_marks_the_best(capsys):
    status, out, err = replay(capsys, SLICE, "--policy", "random", "vllm_cache_aware", "--workers", "4")
    assert (status, err) == (0, "")
    assert "mooncake_conversation_200: 200 requests, 2.68/s" in out
    assert re.search(r"vllm_cache_aware .*\*", out)
    assert "One unlimited cache would hit" in out
    assert "400 requests of 2 runs in" in out


def test_a_load_measures_the_capacity_first(capsys):
    status, out, _ = replay(
        capsys, SLICE, "--policy", "least_load", "--load", "0.5", "--workers", "2", "--quiet"
    )
    assert status == 0
    assert "(load 0.50), 2 workers" in out
    assert "Capacity " in out


def test_a_workload_has_a_load_unless_something_is_said(capsys):
    words = ("--workload", "chat", "--size", "100", "--policy", "random", "--workers", "1")
    assert "(load 0.85)" in replay(capsys, *words)[1]
    assert "(load" not in replay(capsys, *words, "--rate", "1")[1]


def test_agents_set_their_own_rate(capsys):
    words = ("--workload", "agents", "--size", "4", "--agents", "2", "--policy", "random", "--workers", "1")
    status, out, _ = replay(capsys, *words, "--cache-tokens", "300000", "--json")
    (row,) = json.loads(out)["rows"]
    assert (status, row["load"]) == (0, None)
    assert row["rate"] == pytest.approx(row["requests"] / row["span_s"])


def test_users_set_their_own_rate_and_the_fleet_is_as_it_is_told(capsys):
    words = ("--workload", "demo", "--size", "12", "--users", "6", "--policy", "random", "--workers", "2")
    fleet = ("--engine", "demo", "--cache-tokens", "10240")
    (row,) = json.loads(replay(capsys, *words, *fleet, "--json")[1])["rows"]
    assert (row["requests"], row["load"]) == (96, None)
    slower = [("--prompts-first",), ("--change-speed", "0:0:0.25", "0:1:0.25")]
    for more in slower:
        (other,) = json.loads(replay(capsys, *words, *fleet, *more, "--json")[1])["rows"]
        assert other["e2e_mean_s"] > row["e2e_mean_s"]
    (whole,) = json.loads(replay(capsys, *words, *fleet, "--whole-responses", "--json")[1])["rows"]
    assert whole["ttft_mean_s"] == row["ttft_mean_s"]  # random sees none in any case


def test_json_goes_to_stdout_or_a_file(capsys, tmp_path):
    words = (SLICE, "--policy", "random", "--seeds", "2")
    status, out, _ = replay(capsys, *words, "--json")
    told = json.loads(out)
    assert status == 0
    assert [row["seed"] for row in told["rows"]] == [1, 2]
    assert told["about"]["command"] == f"vllm-router replay {SLICE} --policy random --seeds 2 --json -"
    assert told["about"]["recommended"] == "--policy random"
    status, out, _ = replay(capsys, *words, "--json", str(tmp_path / "out.json"))
    assert "random" in out
    assert json.loads((tmp_path / "out.json").read_text())["rows"] == told["rows"]


def test_the_page_and_the_picture_are_written(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    page, picture = tmp_path / "r.html", tmp_path / "r.png"
    status, _, err = replay(capsys, SLICE, "--policy", "random", "--html", str(page), "--plot", str(picture))
    assert (status, err) == (0, "")
    assert page.read_text().startswith("<!doctype html>")
    assert picture.stat().st_size > 1000


def test_it_recommends_flags_that_the_server_takes(capsys):
    spec = "vllm_cache_aware:cache_threshold=0.4"
    status, out, _ = replay(capsys, SLICE, "--policy", "round_robin", spec, "--workers", "4", "--recommend")
    assert status == 0
    (flags,) = re.findall(r"^--policy .*$", out, re.MULTILINE)
    launch_router.parse_router_args(flags.split())
    assert "p90 time to first token" in out


def test_a_sweep_makes_a_table_for_each_point(capsys):
    status, out, _ = replay(
        capsys, SLICE, "--policy", "prefix_aware:load_factor_epsilon=0.25|1", "--workers", "2", "4",
        "--rate", "1", "2",
        "--cache-tokens", "200000", "300000",
    )  # fmt: skip
    assert status == 0
    assert out.count("One unlimited cache") == 8
    assert out.count("prefix_aware:load_factor_epsilon=0.25 ") == 8


def test_failures_joins_and_replicas_are_played(capsys):
    events = "--fail 20:0 --join 40:0 --drain 30:1 --wipe 10:2 --wipe-every 15"
    fleet = "--workers 3 --routers 2 --by-session --speeds 1 1 0.5"
    status, out, _ = replay(capsys, SLICE, "--policy", "least_load", *events.split(), *fleet.split())
    assert status == 0
    assert "2 routers" in out


def test_replicas_that_tell_each_other_are_played(capsys):
    fleet = "--workers 3 --routers 1 3 --peer-sync 0.5:1024:0.1 --isolate 5:2:5 --outage 20:5"
    status, out, _ = replay(capsys, SLICE, "--policy", "auto", *fleet.split())
    assert status == 0
    assert "3 routers" in out


def test_prefill_and_decode_workers_are_played(capsys):
    fleet = "--prefill 1 2 --decode 2 --cache-tokens 340000 --wipe-every 30"
    policy = "auto:pd_bypass_uncached_tokens=0|1024"
    status, out, _ = replay(capsys, SLICE, "--policy", policy, *fleet.split(), "--recommend")
    assert status == 0
    assert "1 prefill and 2 decode workers" in out
    assert "2 prefill and 2 decode workers" in out
    assert re.search(r"TPOT p50 ms +p99 +bypass +moved TB", out)
    assert re.search(r"=1024 .* [1-9][0-9]*\.[0-9] % ", out)
    (flags,) = re.findall(r"^--policy .*$", out, re.MULTILINE)
    launch_router.parse_router_args([*flags.split(), "--prefill", "http://p:1", "--decode", "http://d:1"])


def test_one_stage_has_no_columns_of_two(capsys):
    assert "bypass" not in replay(capsys, SLICE, "--policy", "random", "--workers", "2")[1]


def test_cuts_need_something_to_cut(capsys):
    with pytest.raises(SystemExit):
        replay(capsys, SLICE, "--policy", "auto", "--routers", "2", "--outage", "5")
    err = capsys.readouterr().err
    assert "--isolate and --outage cut replicas off from --peer-sync, which is not given; add it" in err


def test_skipped_lines_are_told_but_not_all(capsys, tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(Path(SLICE).read_text() + "nonsense\n" * 9)
    status, _, err = replay(capsys, str(path), "--policy", "random")
    assert status == 0
    assert err.count("skipped: ") == 5
    assert "skipped 4 more lines" in err
    assert "line 201: it is not JSON" in err


BAD = "vllm-router replay: error: "


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "name a file of recorded traffic, or a --workload"),
        ([SLICE, "--workload", "chat"], "a file and a --workload are both given; keep one of them"),
        (["no.jsonl"], "no.jsonl does not exist; check the path"),
        (["EMPTY"], "EMPTY has no requests; a replay needs at least one"),
        (
            ["UNSORTED"],
            "UNSORTED, line 2: the time goes back from 0.005 s to 0.001 s; sort the file, or use --sort",
        ),
        (["NEGATIVE", "--strict"], "NEGATIVE, line 1: input_length is -5; it must be from 1 to 134217728"),
        (["NEGATIVE"], "NEGATIVE has no requests: all 1 lines were skipped; a replay needs at least one"),
        ([SLICE, "--policy", "lest_load"], "policy is 'lest_load'; it must be one of"),
        ([SLICE, "--policy", "random:x=1"], "random:x=1: random has no option x"),
        (
            [SLICE, "--policy", "prefix_aware:virtual_nodes=0"],
            "prefix_aware:virtual_nodes=0: virtual_nodes is 0; it must be",
        ),
        ([SLICE, "--workers", "0"], "workers is 0; it must be a whole number from 1 to 1024"),
        (
            [SLICE, "--prefill", "2"],
            "of --prefill and --decode one is given; a fleet with stages needs both",
        ),
        (
            [SLICE, "--prefill", "2", "--decode", "2", "--workers", "4"],
            "--workers is given beside --prefill and --decode",
        ),
        ([SLICE, "--prefill", "0", "--decode", "0"], "prefill is 0; it must be 1 or more"),
        ([SLICE, "--transfer-ms", "3"], "--transfer-ms belongs to a fleet with stages"),
        (
            [SLICE, "--policy", "auto:pd_bypass_uncached_tokens=256"],
            "auto:pd_bypass_uncached_tokens=256 has pd_bypass_uncached_tokens, and a fleet without stages",
        ),
        (
            [SLICE, "--policy", "compare", "--prefill", "1", "--decode", "1"],
            "compare_",
        ),
        (
            [SLICE, "--prefill", "1", "--decode", "1", "--fail", "1:0"],
            "an event is 'fail'; a fleet with stages has wipes only",
        ),
        ([SLICE, "--workers", "x"], "argument --workers: invalid int value: 'x'"),
        ([SLICE, "--wrokers", "4"], "--wrokers is not a flag of vllm-router replay; did you mean --workers?"),
        ([SLICE, "--load", "0"], "load is 0; it must be above 0"),
        ([SLICE, "--load", "1", "--rate", "1"], "load and rate are both given"),
        ([SLICE, "--speed", "0"], "speed is 0; it must be above 0"),
        ([SLICE, "--limit", "0"], "limit is 0; at least 1 request is needed"),
        ([SLICE, "--size", "5"], "--size belongs to --workload; for a file use --limit"),
        ([SLICE, "--seeds", "0"], "seeds is 0; it must be a whole number from 1 to 1000"),
        ([SLICE, "--format", "csv"], "format is 'csv'; it must be one of"),
        ([SLICE, "--fail", "x"], "--fail is 'x'; it must be SECONDS:WORKER"),
        ([SLICE, "--fail", "1:8"], "an event is for worker 8; with 8 workers the last one is 7"),
        ([SLICE, "--speeds", "1", "2"], "there are 2 speeds for 8 workers; give one for each"),
        ([SLICE, "--engine", "gpu"], "engine is 'gpu'; it must be one of"),
        (
            [SLICE, "--engine", "no.yaml"],
            "the engine's file no.yaml cannot be read: No such file or directory",
        ),
        (
            [SLICE, "--cache-tokens", "1", "--cache-share", "1"],
            "--cache-tokens and --cache-share are both given",
        ),
        (
            [SLICE, "--html", "no/r.html"],
            "--html no/r.html: the directory no does not exist; create it first",
        ),
        (
            ["--workload", "chats"],
            "workload is 'chats'; it must be one of chat, rag, adv, hot, agents, users, demo",
        ),
        (["--workload", "chat", "--size", "0"], "the size of workload chat is 0; at least 1 is needed"),
        (["--workload", "chat", "--agents", "2"], "agents is 2, and workload chat has none; leave it out"),
        (["--workload", "chat", "--users", "2"], "users is 2, and workload chat has none; leave it out"),
        ([SLICE, "--users", "2"], "--users belongs to --workload users, demo and tenants; leave it out"),
        ([SLICE, "--change-speed", "1:2"], "--change-speed is '1:2'; it must be SECONDS:WORKER:SPEED"),
        ([SLICE, "--agents", "2"], f"agents is 2, and {SLICE} has no sessions of agents; leave it out"),
        (
            ["--workload", "agents", "--size", "2", "--load", "0.5"],
            "trace agents is a closed loop, whose requests arrive as responses end, so load, rate",
        ),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(capsys, tmp_path, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    line = '{"timestamp": %d, "input_length": %d, "output_length": 1, "hash_ids": []}\n'
    Path("EMPTY").write_text("")
    Path("UNSORTED").write_text(line % (5, 9) + line % (1, 9))
    Path("NEGATIVE").write_text(line % (5, -5))
    with pytest.raises(SystemExit) as end:
        command.main(words)
    assert end.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    *_, last = said.err.splitlines()
    assert last.startswith(BAD + sentence)


def test_a_report_that_cannot_be_written_is_status_1(capsys, tmp_path):
    (tmp_path / "r.html").mkdir()
    status, _, err = replay(capsys, SLICE, "--policy", "random", "--html", str(tmp_path / "r.html"))
    assert status == 1
    assert err == f"{BAD}{tmp_path / 'r.html'} cannot be written: Is a directory\n"


def test_it_is_a_command_of_vllm_router():
    done = subprocess.run(
        [sys.executable, "-m", "vllm_router.launch_router", "replay", SLICE, "--policy", "random", "--quiet"],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "random" in done.stdout


@pytest.mark.parametrize("sent", ["nothing", "all"])
def test_ctrl_c_ends_it_without_a_word(tmp_path, sent):
    """While it reads, and somewhere behind."""
    trace = tmp_path / "trace.jsonl"
    os.mkfifo(trace)
    line = [sys.executable, "-m", "vllm_router.launch_router", "replay", str(trace), "--seeds", "1000"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        with trace.open("wb") as pipe:  # waits for a reader
            if sent == "all":
                pipe.write(Path(SLICE).read_bytes())
            else:
                process.send_signal(signal.SIGINT)
                process.wait(timeout=100)
        if sent == "all":
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=100)
    assert (process.returncode, out, err) == (130, "", "")


def test_names_may_be_written_with_dashes_or_underscores():
    parsed = make_parser().parse_args(["x", "--cache_tokens", "5", "--no-spread", "--by_session"])
    assert (parsed.cache_tokens, parsed.spread, parsed.by_session) == ([5], False, True)


def test_the_help_shows_every_flag(capsys):
    with pytest.raises(SystemExit):
        command.main(["--help"])
    text = capsys.readouterr().out
    for action in make_parser()._actions:
        assert all(name in text for name in action.option_strings)
