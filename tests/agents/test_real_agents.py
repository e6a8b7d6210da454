"""Real coding agents work on a task through the router, in front of three simulated workers.

       turn 1           turn 2                 turn 3               turn 4             turn 5
    one.txt by a  two.txt by a file tool,  a tool that waits,   all.txt from the  a text: the
    shell         three.txt by a shell     then four.txt        four              agent ends

The tool of turn 3 waits until the test lets it go on, so what is done to a worker meanwhile is done between
turns 3 and 4, without a race.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.coding_agents import AGENTS, MODEL, Agent, Run, set_up_codex_with_websockets
from tests.fakes.router_process import RouterProcess
from tests.fakes.wire import eventually
from vllm_router.testing import SimulatedWorker

pytestmark = [pytest.mark.agents, pytest.mark.timeout(300)]

TURNS = 5
POLICIES = ("auto", "consistent_hash")
CODEX_WITH_WEBSOCKETS = dataclasses.replace(AGENTS["codex"], set_up=set_up_codex_with_websockets)


class Task:
    """What the model says, and what there is when the agent has done it."""

    def __init__(self, agent: Agent, work: Path) -> None:
        self.work = work
        work.mkdir()
        os.mkfifo(work / "go")
        self._go = os.open(work / "go", os.O_RDWR)  # what is written is there when the tool comes to read it
        shell = agent.shell
        self.script = [
            {"text": "I begin.", "calls": [shell("echo one > one.txt")]},
            {"calls": [agent.write(work / "two.txt", "two"), shell("echo three > three.txt")]},
            {
                "text": "I wait.",
                "calls": [shell("touch waits && read -r line < go && echo $line > four.txt")],
            },
            {"calls": [shell("cat one.txt two.txt three.txt four.txt > all.txt")]},
            {"text": "All is done."},
        ]
        self.said = [turn["text"] for turn in self.script if "text" in turn]

    @property
    def waits(self) -> Path:
        """There once the tool of turn 3 runs."""
        return self.work / "waits"

    def go_on(self) -> None:
        os.write(self._go, b"four\n")

    def is_done(self) -> bool:
        done = self.work / "all.txt"
        return done.exists() and done.read_text().split() == ["one", "two", "three", "four"]

    def undo(self) -> None:
        """For a second session in the same folder."""
        for path in self.work.glob("*.txt"):
            path.unlink()

    def close(self) -> None:
        os.close(self._go)


class Fleet:
    """Three workers that know the task, and the router's command in front."""

    def __init__(self, folder: Path, policy: str, agent: Agent) -> None:
        self._agent = agent
        self._logs = folder / "logs"
        self._stack = contextlib.ExitStack()
        self.task = Task(agent, folder / "work")
        self._stack.callback(self.task.close)
        script = json.dumps(self.task.script)
        self.workers = [
            self._stack.enter_context(SimulatedWorker(engine="instant", model=MODEL, tool_script=script))
            for _ in range(3)
        ]
        urls = [worker.url for worker in self.workers]
        flags = ["--policy", policy, "--log-dir", str(self._logs), "--log-format", "json"]
        self.router = self._stack.enter_context(RouterProcess(folder, "--worker-urls", *urls, *flags))
        self.url = f"http://127.0.0.1:{self.router.port}"

    def close(self) -> None:
        self._stack.close()

    def lines(self) -> list[dict[str, Any]]:
        """The access log's, of what the agent sent. Ends the router."""
        self.router.stop()
        text = "".join(path.read_text() for path in sorted(self._logs.iterdir()))
        lines = [json.loads(line) for line in text.splitlines() if line.startswith('{"ts"')]
        return [line for line in lines if line["path"] == self._agent.api]

    def turns(self) -> list[dict[str, Any]]:
        """Those with tools: OpenCode's request for a title has none, and is short."""
        return [line for line in self.lines() if line["bytes_in"] > 10_000]

    def sessions(self) -> list[dict[str, Any]]:
        return self.router.call("GET", "/admin/sessions")[1]["sessions"]

    def busiest(self) -> SimulatedWorker:
        """The worker that has had the turns."""
        return max(self.workers, key=lambda worker: worker.stats()["prompt_tokens"])


@pytest.fixture(params=AGENTS.values(), ids=AGENTS)
def agent(request: pytest.FixtureRequest) -> Agent:
    return request.param


@pytest.fixture(params=POLICIES)
def policy(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def fleet(tmp_path: Path, policy: str, agent: Agent) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, policy, agent)
    yield fleet
    fleet.close()


def ended_well(run: Run, fleet: Fleet) -> None:
    assert run.status == 0, run.output
    assert fleet.task.is_done(), run.output
    assert run.text[-len(fleet.task.said) :] == fleet.task.said
    eventually(lambda: run.processes() == [], f"{run.agent.name} has left processes")


def is_named(run: Run, turns: list[dict[str, Any]], sessions: list[dict[str, Any]]) -> None:
    """The router knows the session by the agent's own id, and where it is."""
    if run.agent.names_session:
        assert {turn.get("session") for turn in turns} == {run.session}
        [row] = sessions
        assert (row["session"], row["worker"]) == (run.session, turns[-1]["worker"])
    else:
        assert {turn.get("session") for turn in turns} == {None}
        assert sessions == []


def test_a_session_stays_on_one_worker_and_is_found_there_when_it_is_resumed(agent, policy, fleet, tmp_path):
    for resume in (False, True):
        fleet.task.undo()
        fleet.task.go_on()
        with agent.start(tmp_path, fleet.url, "Do the task.", resume) as run:
            run.wait()
        ended_well(run, fleet)
    sessions, turns = fleet.sessions(), fleet.turns()
    assert [turn["status"] for turn in turns] == [200] * 2 * TURNS
    assert {turn["end"] for turn in turns} == {"done"}
    # By its opening a policy that hashes cannot tell a resumed session that begins otherwise.
    is_one = agent.keeps_its_opening or policy == "auto"
    for part in [turns] if is_one else [turns[:TURNS], turns[TURNS:]]:
        assert len({turn["worker"] for turn in part}) == 1
        assert min(turn["cached_tokens"] / turn["prompt_tokens"] for turn in part[1:]) > 0.9
    is_named(run, turns, sessions)


def die_while_a_tool_runs(worker: SimulatedWorker) -> int:
    worker.stop()
    return 3


def die_with_a_turn_in_hand(worker: SimulatedWorker) -> int:
    worker.set_faults(crash_after=1)  # it responds to turn 4, and takes turn 5
    return 4


@pytest.mark.parametrize("die", [die_while_a_tool_runs, die_with_a_turn_in_hand])
def test_the_agent_ends_its_task_on_another_worker_when_its_own_dies(agent, fleet, tmp_path, die):
    with agent.start(tmp_path, fleet.url, "Do the task.") as run:
        run.wait_for(fleet.task.waits)
        first = fleet.busiest()
        served = die(first)
        fleet.task.go_on()
        run.wait()
    ended_well(run, fleet)
    sessions, turns = fleet.sessions(), fleet.turns()
    assert [turn["status"] for turn in turns] == [200] * TURNS
    workers = [turn["worker"] for turn in turns]
    assert workers[:served] == [first.url] * served
    assert len({*workers[served:]} - {first.url}) == 1
    assert first.url not in workers[served:]
    is_named(run, turns, sessions)


@pytest.mark.parametrize("policy", ["auto"])
def test_a_worker_that_dies_within_a_response_costs_the_turn_or_as_documented_the_session(
    agent, fleet, tmp_path
):
    with agent.start(tmp_path, fleet.url, "Do the task.") as run:
        run.wait_for(fleet.task.waits)
        first = fleet.busiest()
        failed = first.stats()["failed"]
        first.set_faults(close_after_bytes=600)  # head and the first events
        fleet.task.go_on()
        eventually(lambda: first.stats()["failed"] > failed, "the response was not cut")
        first.stop()
        run.wait()
    sessions, turns = fleet.sessions(), fleet.turns()
    before, cut, after = turns[:3], turns[3], turns[4:]
    assert {turn["worker"] for turn in [*before, cut]} == {first.url}
    assert (cut["status"], cut["end"], cut["error"]) == (200, "worker_gone", "worker_closed")
    if agent.survives_broken_streams:
        ended_well(run, fleet)
        assert [turn["status"] for turn in after] == [200, 200]
        assert len({turn["worker"] for turn in after} - {first.url}) == 1
        assert first.url not in {turn["worker"] for turn in after}
        is_named(run, turns, sessions)
    else:
        assert after == []
        assert "API Error" in run.text[-1]
        assert not fleet.task.is_done()


@pytest.mark.parametrize("agent", [CODEX_WITH_WEBSOCKETS], ids=["codex"])
@pytest.mark.parametrize("policy", ["auto"])
def test_codex_opens_a_websocket_to_another_worker_when_its_own_dies(agent, fleet, tmp_path):
    with agent.start(tmp_path, fleet.url, "Do the task.") as run:
        run.wait_for(fleet.task.waits)
        first = fleet.busiest()
        first.stop()
        fleet.task.go_on()
        run.wait()
    ended_well(run, fleet)
    sessions, lines = fleet.sessions(), fleet.lines()
    assert [(line["method"], line["status"]) for line in lines] == [("GET", 101), ("GET", 101)]
    assert lines[0]["worker"] == first.url
    assert lines[1]["worker"] != first.url
    is_named(run, lines, sessions)
