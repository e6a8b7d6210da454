"""Coding agents from npm as processes, set up as docs/how-to/coding_agents.md says.

    with AGENTS["codex"].start(folder, router_url, "Do the task.") as run:
        run.wait()
    run.status, run.session, run.text

An agent has a home of its own below `folder` and works in `folder/work`. It runs without approvals: what the
model says is the test's own script.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes.wire import eventually

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "build" / "agents" / "node_modules" / ".bin"
HOW_TO = ROOT / "docs" / "how-to" / "coding_agents.md"
MODEL = "tiny-coder"
KEY = "key-of-the-router"
AGENT_PATIENCE = 120.0  # seconds for a whole run; on an idle machine it takes 1 to 10

Call = dict[str, Any]
Environment = dict[str, str]


def missing() -> str | None:
    """What is not installed, or None."""
    for agent in AGENTS.values():
        if not (PROGRAMS / agent.program).exists():
            return f"{PROGRAMS / agent.program} is missing; `make test-agents` installs it"
    return None


def call(tool: str, **arguments: Any) -> Call:
    return {"name": tool, "arguments": arguments}


def block(section: str, language: str) -> str:
    """The first block in this language below a heading of the how-to."""
    found = re.search(rf"^## {section}$.*?^```{language}\n(.*?)^```$", HOW_TO.read_text(), re.M | re.S)
    assert found is not None, f"{HOW_TO} has no block in {language} below {section}"
    return found[1]


def filled_in(text: str, url: str) -> str:
    """What stands for the router and the model on the page is replaced by theirs."""
    assert "http://router:30000" in text
    assert "MODEL" in text
    return re.sub(r"(?<!_)\bMODEL\b", MODEL, text.replace("http://router:30000", url))


def set_up_codex(home: Path, url: str) -> Environment:
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text(filled_in(block("Codex", "toml"), url))
    return {"ROUTER_KEY": KEY}


def set_up_codex_with_websockets(home: Path, url: str) -> Environment:
    environment = set_up_codex(home, url)
    with (home / ".codex" / "config.toml").open("a") as config:
        config.write("supports_websockets = true\n")  # in the last table, the provider's
    return environment


def set_up_opencode(home: Path, url: str) -> Environment:
    (home / ".config" / "opencode").mkdir(parents=True)
    (home / ".config" / "opencode" / "opencode.json").write_text(filled_in(block("OpenCode", "json"), url))
    return {"ROUTER_KEY": KEY}


def set_up_qwen_code(home: Path, url: str) -> Environment:
    lines = filled_in(block("Qwen Code, Cline, aider", "shell"), url).splitlines()
    line = next(line for line in lines if "# Qwen Code" in line)
    export, *variables = shlex.split(line.replace("$ROUTER_KEY", KEY), comments=True)
    assert export == "export"
    (home / ".qwen").mkdir()
    quiet = {"privacy": {"usageStatisticsEnabled": False}, "general": {"enableAutoUpdate": False}}
    (home / ".qwen" / "settings.json").write_text(json.dumps(quiet))
    return dict(variable.split("=", 1) for variable in variables)


# Codex and OpenCode honour these: nothing listens there, so they reach nothing but loopback.
NO_INTERNET = {
    "HTTP_PROXY": "http://127.0.0.1:1",
    "HTTPS_PROXY": "http://127.0.0.1:1",
    "NO_PROXY": "127.0.0.1",
}


@dataclass(frozen=True)
class Agent:
    """How one agent is run without a terminal. The events that it prints are JSON, one a line."""

    name: str
    program: str
    set_up: Callable[[Path, str], Environment]
    """Writes its settings in a home, for a router at a URL. The environment that goes with them."""
    new: Sequence[str]
    """Arguments for a new session, before the message."""
    resumed: Sequence[str]
    """Arguments that continue the last session."""
    api: str
    """The path of its requests."""
    session_of: Callable[[dict[str, Any]], str | None]
    """The session's id, if this event has it."""
    text_of: Callable[[dict[str, Any]], str | None]
    """What the model says, if this event is a text of it."""
    shell: Callable[[str], Call]
    """A call that runs a command in the folder of the work."""
    write: Callable[[Path, str], Call]
    """A call that makes a file of one line."""
    environment: Mapping[str, str] = field(default_factory=dict)
    names_session: bool = True
    """Its requests have a header with the session's id."""
    keeps_its_opening: bool = True
    """A resumed session begins as it did; Qwen Code's with a new list of the files in the folder."""
    survives_broken_streams: bool = True

    def start(self, folder: Path, url: str, message: str, resume: bool = False) -> Run:
        """Begins to run it in `folder`, which a resumed session shares with the one before."""
        home, work = folder / "home", folder / "work"
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **self.environment}
        if not home.exists():
            home.mkdir()
            work.mkdir(exist_ok=True)
            (folder / "environment.json").write_text(json.dumps(self.set_up(home, url)))
        environment |= json.loads((folder / "environment.json").read_text())
        arguments = self.resumed if resume else self.new
        return Run(self, [str(PROGRAMS / self.program), *arguments, message], home, work, environment)


class Run:
    """An agent's process, and all that it starts."""

    def __init__(
        self, agent: Agent, command: list[str], home: Path, work: Path, environment: Environment
    ) -> None:
        self.agent, self.home, self.work = agent, home, work
        self.status: int | None = None
        number = len(list(home.parent.glob("events-*")))
        self._events, self._errors = (home.parent / f"{kind}-{number}" for kind in ("events", "errors"))
        with self._events.open("wb") as events, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=events,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._process.wait()

    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> None:
        """Until the agent has ended."""
        try:
            self.status = self._process.wait(AGENT_PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.agent.name} did not end\n{self.output}") from None

    def wait_for(self, path: Path) -> None:
        """Until a tool has made this file."""
        eventually(
            lambda: path.exists() or not self.is_running(),
            f"{self.agent.name} made no {path.name}",
            AGENT_PATIENCE,
        )
        assert path.exists(), f"{self.agent.name} has ended without {path.name}\n{self.output}"

    def processes(self) -> list[int]:
        """What runs with this agent's home."""
        found = []
        mark = f"HOME={self.home}".encode()
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if mark in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
        return found

    @property
    def output(self) -> str:
        """The end of what it has printed."""
        return "\n".join(path.read_text(errors="replace")[-4000:] for path in (self._events, self._errors))

    @property
    def events(self) -> list[dict[str, Any]]:
        lines = self._events.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    @property
    def session(self) -> str:
        """The id of its session."""
        found = {self.agent.session_of(event) for event in self.events} - {None}
        assert len(found) == 1, f"{self.agent.name} has the sessions {found}\n{self.output}"
        return str(found.pop())

    @property
    def text(self) -> list[str]:
        """What the model has said."""
        return [text for event in self.events if (text := self.agent.text_of(event)) is not None]


def _codex_text(event: dict[str, Any]) -> str | None:
    item = event.get("item", {})
    return item["text"] if item.get("type") == "agent_message" else None


def _opencode_text(event: dict[str, Any]) -> str | None:
    return event["part"]["text"] if event["type"] == "text" else None


def _qwen_text(event: dict[str, Any]) -> str | None:
    if event["type"] != "assistant":
        return None
    return "".join(part.get("text", "") for part in event["message"]["content"]) or None


def _patch(path: Path, line: str) -> Call:
    patch = f"*** Begin Patch\n*** Add File: {path.name}\n+{line}\n*** End Patch\n"
    return call("exec_command", cmd=f"apply_patch <<'END'\n{patch}END")


# Codex: reports of use, and a catalogue of plugins on GitHub.
_CODEX = (
    *("exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
    *("-c", "analytics.enabled=false", "-c", "features.plugins=false"),
)

AGENTS = {
    agent.name: agent
    for agent in (
        Agent(
            name="codex",
            program="codex",
            set_up=set_up_codex,
            new=_CODEX,
            resumed=(*_CODEX, "resume", "--last"),
            api="/v1/responses",
            session_of=lambda event: event.get("thread_id"),
            text_of=_codex_text,
            shell=lambda command: call("exec_command", cmd=command),
            write=_patch,
            environment=NO_INTERNET,
        ),
        Agent(
            name="opencode",
            program="opencode",
            set_up=set_up_opencode,
            new=("run", "--format", "json", "--auto"),
            resumed=("run", "--format", "json", "--auto", "--continue"),
            api="/v1/chat/completions",
            session_of=lambda event: event["sessionID"],
            text_of=_opencode_text,
            shell=lambda command: call("bash", command=command, description="Runs a command"),
            write=lambda path, line: call("write", filePath=str(path), content=f"{line}\n"),
            environment={
                **NO_INTERNET,
                "OPENCODE_DISABLE_AUTOUPDATE": "1",
                "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
                "OPENCODE_DISABLE_MODELS_FETCH": "1",
            },
        ),
        Agent(
            name="qwen_code",
            program="qwen",
            set_up=set_up_qwen_code,
            new=("--output-format", "stream-json", "--yolo"),
            resumed=("--output-format", "stream-json", "--yolo", "--continue"),
            api="/v1/chat/completions",
            session_of=lambda event: event.get("session_id"),
            text_of=_qwen_text,
            shell=lambda command: call("run_shell_command", command=command, is_background=False),
            write=lambda path, line: call("write_file", file_path=str(path), content=f"{line}\n"),
            names_session=False,
            keeps_its_opening=False,
            survives_broken_streams=False,
        ),
    )
}
