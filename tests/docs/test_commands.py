"""The commands of README, tutorial and how-tos, as a reader types them: each succeeds, as promised.

Rows 39 and 40 of the third list: admin endpoints are at `$ADMIN` on every page, which holds with an admin
port and without one, and no command names a model that no engine serves. Each page has a router of its own
with simulated workers; its addresses stand in for those of the page. What cannot run here is in CANNOT_RUN or
in `Page.elsewhere`, with the reason.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.fakes.redis_server import RedisServer
from tests.fakes.wire import eventually
from tests.repo.rules import none_of
from vllm_router import Router
from vllm_router import _core_testing as testing
from vllm_router.discovery import WorkerSpec
from vllm_router.launch_router import _checked, _loaded, _make_parser, _settings_file
from vllm_router.server import Server
from vllm_router.testing import SimulatedWorker

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", DOCS / "tutorial" / "first_router.md", *sorted((DOCS / "how-to").glob("*.md"))]
EVERY_PAGE = [ROOT / "README.md", *sorted((ROOT / "examples").glob("*.md")), *sorted(DOCS.rglob("*.md"))]

# Commands by their first words, and why this test does not run them.
CANNOT_RUN = {
    "vllm-router replay": "",  # it runs: the exception of the next line
    "vllm-router": "test_snippets.py parses it; the router of this test stands for it",
    "vllm serve": "an engine needs a GPU; make test-engines starts some on CPUs",
    "python -m sglang.launch_server": "an engine needs a GPU",
    "python -m agentic_api": "make test-hosts installs and runs it",
    "make": "it builds the tree that runs this test",
    "apt-get": "it changes the machine",
    "pip install": "tests/wheel installs the package",
    "python3 -m venv": "tests/wheel installs the package in one",
    "/opt/vllm-router/bin/pip": "tests/wheel installs the package",
    "/opt/vllm-router/bin/python": "tests/deploy makes the man page",
    "docker": "tests/deploy builds the container where there is a daemon",
    "helm": "tests/deploy renders the chart",
    "kubectl": "it needs a cluster",
    "install": "tests/deploy installs the unit in a fresh Debian",
    "systemctl": "it needs systemd",
    "until ss": "it needs systemd",
    "kill": "tests/proxy/test_reload.py and test_shutdown.py send the signals",
    "python -m benchmarks": "it measures for minutes; tests/benchmarks runs it once",
    "python benchmarks/": "it measures for minutes; tests/benchmarks runs it once",
}
COMMANDS = (
    *CANNOT_RUN,
    "curl",
    "jq",
    "openssl",
    "echo",
    "printf",
    "until",
    "for",
    "export",
    "MODEL=",
    "ADMIN=",
    "$ ",
)

ADMIN_ADDRESS = re.compile(r"^ADMIN=(\S+)", re.MULTILINE)
MAIN = r"(?:http://)?(?:localhost|127\.0\.0\.1|router(?:-0)?):30000"

CHAT = "You are a patient teacher of geography who answers in whole sentences and never guesses."


class Page(NamedTuple):
    """How the router of a page is started, and what has to come out."""

    flags: tuple[str, ...] = ()
    says: tuple[tuple[str, str], ...] = ()  # words of a command, and a pattern of what its block prints
    model: str = "meta-llama/Llama-3.1-8B-Instruct"
    before: tuple[tuple[str, str], ...] = ()  # words of a command, and what is run before its block
    prepare: Callable[["Site"], None] = lambda _: None
    elsewhere: tuple[str, str] = ("\0", "")  # words of a command, and why it does not run here
    yaml: bool = False  # the router has a file of settings
    twice: str = "\0"  # words of a command that is to be sent twice


class Site:
    """Three simulated workers and a router in this process."""

    def __init__(self, page: Page, admin_port: bool, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.workers = [
            stack.enter_context(SimulatedWorker(engine="instant", model=page.model)) for _ in range(3)
        ]
        line = ["--host=127.0.0.1", "--port=0", "--prometheus-port=0", "--kv-events=off"]
        line += ["--admin-port=0"] if admin_port else []
        for flag in page.flags:
            if flag == "REDIS":
                flag = stack.enter_context(RedisServer(folder)).url
            line.append(re.sub(r"http://gpu-(\d):8000", lambda found: self.workers[int(found[1])].url, flag))
        if page.yaml:
            line += ["--config", str(folder / "router.yaml")]
            (folder / "router.yaml").write_text(f"worker_urls: [{self.workers[0].url}]\n")
        elif not any(flag.startswith("--vllm-pd") for flag in page.flags):
            line += ["--worker-urls", *(worker.url for worker in self.workers)]
        loaded = _checked(_loaded(line, _make_parser()))
        self.router = Router.from_args(loaded.args)
        self.server = Server(self.router, loaded.args, [], _settings_file(line, loaded))
        stack.callback(self.server.stop, 0)
        self.main = self.server.url.removeprefix("http://")
        self.admin = (self.server.admin_url or self.server.url).removeprefix("http://")
        self.metrics = (self.server.metrics_url or "").removeprefix("http://").removesuffix("/metrics")
        page.prepare(self)
        if "--worker-urls" in line:
            eventually(lambda: '"id"' in self.run("command curl -s http://localhost:30000/v1/models || true"))

    def run(self, script: str) -> str:
        """What a script prints; the addresses of a page become those of this site."""
        script = script.replace("http://ADMIN", self.admin)
        script = ADMIN_ADDRESS.sub(f"ADMIN={self.admin}", script)
        script = re.sub(MAIN, self.main, script)
        script = script.replace("localhost:29000", self.metrics)
        for number, worker in enumerate(self.workers):
            address = worker.url.removeprefix("http://")
            script = re.sub(
                rf"gpu-{number}:8000|(?:localhost|127\.0\.0\.1):{8001 + number}\b", address, script
            )
        script = re.sub(r"/(?:etc|var/(?:log|lib))/vllm-router", str(self.folder), script)
        functions = (
            'curl() { command curl -sS --fail-with-body --max-time 20 "$@"; }\n'
            f'vllm-router() {{ {sys.executable} -m vllm_router "$@"; }}\n'
        )
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", functions + script],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=self.folder,
            env={**os.environ, "KEY": "sk-search-2d11c8a7"},
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout


def wait_until_ready(site: Site) -> None:
    eventually(lambda: '"ready":3' in site.run("command curl -s 'http://ADMIN/scale?model=Qwen/Qwen3-8B'"))


def wait_until_connected(site: Site) -> None:
    eventually(lambda: '"up":true' in site.run("command curl -s http://ADMIN/ha/status"))


def remember_a_source(site: Site) -> None:
    site.router.reconcile("dns", [WorkerSpec(site.workers[0].url)])


def write_access_log(site: Site) -> None:
    record = {
        "wall_us": 1_795_258_237_123_456,
        "head_ns": 1,
        "body_ns": 2,
        "queue_ns": 1,
        "chosen_ns": 3000,
        "sent_ns": 5,
        "connected_ns": 4,
        "answered_ns": 6,
        "first_body_ns": 7,
        "end_ns": 8,
        "client": "10.0.0.7",
        "method": "POST",
        "path": "/v1/chat/completions",
        "route": "/v1/chat/completions",
        "stream": True,
        "worker": testing.WorkerHandle("http://gpu-0:8000"),
        "request_id": "chatcmpl-4YPokyhFHavqvgd9aBquj04Q",
    }
    ends = ("done", "client_gone")
    lines = [testing.access_line("json", "auto", **record, end=end, status=200) for end in ends]
    (site.folder / "access.log").write_bytes(b"".join(lines))


def write_traces(site: Site) -> None:
    lines = (
        (ROOT / "tests" / "data" / "mooncake_conversation_200.jsonl").read_text().splitlines(keepends=True)
    )
    for name in ("trace.jsonl", "traffic.jsonl"):
        (site.folder / name).write_text("".join(lines[:60]))
    (site.folder / "engine.yaml").write_text("prefill_us_per_token: 40\nstep_ms: 8\ncache_tokens: 340000\n")


def write_classes(site: Site) -> None:
    """The file of the page itself."""
    page = (DOCS / "how-to" / "share_a_fleet.md").read_text()
    found = re.search(r"```yaml\n(# classes\.yaml\n.*?)```", page, re.DOTALL)
    assert found is not None
    (site.folder / "classes.yaml").write_text(found[1])


# The worker has left when the loop of the page ends: bring it back, and drain it while it has a request.
DRAINING = """\
curl -X POST $ADMIN/workers -d '{"url": "http://gpu-0:8000"}'
trap 'kill $(jobs -p)' EXIT
for n in 1 2 3; do
  command curl -s localhost:30000/v1/completions -H 'x-sim-delay-ms: 60000' -d '{"prompt": "Hello"}' &
done
until [ "$(curl $ADMIN/workers | jq '[.workers[] | select(.load > 0)] | length')" = 3 ]; do sleep 0.02; done
curl -X POST $ADMIN/admin/drain -d '{"url": "http://gpu-0:8000"}'
"""
REMOVED = 'curl -X POST "$ADMIN/remove_worker?url=http://gpu-0:8000"\n'

SETTINGS = {
    "README.md": Page(says=(("chat/completions", r'"content":'),), prepare=write_traces),
    "tutorial/first_router.md": Page(
        ("--policy=consistent_hash",),
        (
            ("X-Session-ID", r"(?s)200 OK.*200 OK.*\"cached_tokens\": ?[1-9]"),
            ("/workers", r'"url"'),
            ("processed_requests_total", r"processed_requests_total\{.*\} 2"),
            ("remove_worker", r"removed|127\.0\.0\.1"),
        ),
        model="simulated-model",
        twice="X-Session-ID",
    ),
    "how-to/cache_responses.md": Page(
        ("--response-cache",),
        (
            ("x-cache", r"(?si)200 OK.*x-cache: MISS.*200 OK.*x-cache: HIT.*age: \d"),
            ("clear_all", r'(?s)"action": ?"clear_all".*"action": ?"model"'),
            ("detail=1", r'"detail"'),
        ),
    ),
    "how-to/change_settings.md": Page(
        says=(
            ("dry_run=1", r'(?s)"dry_run": ?true.*"dry_run": ?false'),
            ("admin/config", r'"settings"'),
        ),
        yaml=True,
    ),
    "how-to/choose_a_policy.md": Page(says=(("X-Session-ID", r'"content"'),)),
    "how-to/deploy_on_kubernetes.md": Page(says=(("/workers", r'"url"'),)),
    "how-to/disaggregate_prefill.md": Page(
        ("--vllm-pd-disaggregation", "--kv-connector=p2p_nccl", "--vllm-discovery-address=127.0.0.1:0"),
        (
            ("pd_registration", r'(?s)pd_registration.*"registrations"'),
            ("grep vllm_router_pd_", r"vllm_router_pd_"),
        ),
        prepare=write_traces,
    ),
    "how-to/discover_workers.md": Page(
        says=(("adopt", r'"left"'), ("admin/discovery\n", r'"source": ?"dns"')), prepare=remember_a_source
    ),
    "how-to/drain_a_worker.md": Page(
        says=(
            ("timeout_secs", r'"draining": ?true'),
            ("-X DELETE", r'"draining": ?false'),
            ("-X POST $ADMIN/workers", r"gpu-0|127\.0\.0\.1"),
        ),
        before=(("-X DELETE", DRAINING), ("-X POST $ADMIN/workers", REMOVED)),
        elsewhere=("restart_engine", "tests/proxy/test_drains.py runs the loop"),
    ),
    "how-to/explain_decisions.md": Page(
        says=(
            ("select(.request_id", r"chatcmpl-4YPokyhFHavqvgd9aBquj04Q"),
            ("decision_us", r'(?s)"decision_us".*"ttft".*1 10\.0\.0\.7'),
        ),
        prepare=write_access_log,
    ),
    "how-to/measure_what_the_policy_saves.md": Page(
        ("--holdout-percent=1",), (("admin/holdout", r'"baseline": ?"least_load"'),)
    ),
    "how-to/replay_your_traffic.md": Page(
        says=(
            ("--policy all", r"(?s)60 requests.* hit .*auto .*60 requests are too short to tell"),
            ("--html", r"\b3 seeds\b"),
        ),
        prepare=write_traces,
        elsewhere=("--load", "a short trace saturates no fleet; tests/unit/python/replay has long ones"),
    ),
    "how-to/rotate_keys.md": Page(says=(("openssl rand", r"^sk-search-[0-9a-f]{32}$"),)),
    "how-to/run_in_front_of_engines.md": Page(
        says=(("/workers", r'(?s)"id".*"url".*vllm_router_worker_health'),)
    ),
    "how-to/run_several_routers.md": Page(
        ("--peer-sync", "REDIS"), (("ha/status", r'"up":true'),), prepare=wait_until_connected
    ),
    "how-to/scale_workers.md": Page(
        says=(("/scale", r'"model":"Qwen/Qwen3-8B","ready":3'),),
        model="Qwen/Qwen3-8B",
        prepare=wait_until_ready,
    ),
    "how-to/serve_several_models.md": Page(
        says=(("v1/models", r"^Qwen/Qwen3-8B"),),
        model="Qwen/Qwen3-8B",
        elsewhere=(
            "load_lora_adapter",
            "simulated workers load none; those of tests/proxy/test_adapters.py do",
        ),
    ),
    "how-to/set_block_size_and_capacity.md": Page(
        ("--policy=vllm_cache_aware",), (("index/stats", r'"max_blocks"'),)
    ),
    "how-to/share_a_fleet.md": Page(
        says=(("--workload classes", r"(?s)class interactive .*class batch "),), prepare=write_classes
    ),
    "how-to/share_a_mooncake_pool.md": Page(
        ("--policy=kv_logit", "--shared-cache-type=hicache", "--shared-cache-url=http://127.0.0.1:9"),
        (("shared_cache", r'(?s)shared_cache_.*"enabled"'),),
    ),
    "how-to/test_with_simulated_workers.md": Page(),
    "how-to/tune_cache_aware.md": Page(
        ("--policy=cache_aware", "--decision-headers"),
        (
            (
                "chat/completions",
                r"(?si)x-vllm-router-worker:.*x-vllm-router-policy: cache_aware.*candidates: ",
            ),
        ),
    ),
    "how-to/use_kv_events.md": Page(
        ("--policy=kv_logit", "--kv-events=auto", "--kv-events-push"),
        (("kv-events/push", r'"accepted": ?true'), ("$ADMIN/admin/kv-events\n", r'"enabled"')),
    ),
}


def blocks(page: Path) -> Iterator[str]:
    """The blocks of commands of a page: those of a shell, and indented ones that have a command."""
    language, lines, before = "", [], ""
    for line in [*page.read_text().splitlines(), "end"]:
        inside = language or (line.startswith("    ") and (lines or not before))
        if language and line != "```":
            lines.append(line)
        elif inside and not language:
            lines.append(line[4:])
        elif line or language:
            shell = language in ("bash", "sh") or (not language and any(map(is_command, lines)))
            if shell and lines:
                yield "\n".join(lines) + "\n"
            lines = []
            language = (line[3:] or "none") if line.startswith("```") and not language else ""
        elif lines:
            lines.append("")
        before = line


def is_command(line: str) -> bool:
    return re.match("|".join(rf"{re.escape(words)}(?:\b|(?<=\W))" for words in COMMANDS), line) is not None


def commands(block: str) -> str:
    """What of a block can run here."""
    kept = []
    for line in re.split(r"(?<!\\)\n", block):
        word = next((words for words in CANNOT_RUN if line.startswith((words, f"$ {words}"))), "")
        if not CANNOT_RUN.get(word):
            kept.append(line)
        elif word.startswith("python benchmarks/"):
            break  # what it prints follows
    return "\n".join(kept).strip("\n") + "\n"


def runnable(page: Path) -> list[str]:
    return [found for block in blocks(page) if (found := commands(block)).strip()]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT)).removeprefix("docs/")


RUNS = [
    pytest.param(page, admin_port, id=f"{name_of(page)}{', admin port' * admin_port}")
    for page in PAGES
    if runnable(page)
    for admin_port in ([False, True] if "ADMIN" in page.read_text() else [False])
]


@pytest.mark.parametrize(("page", "admin_port"), RUNS)
def test_the_commands_of_a_page_do_what_it_says(page: Path, admin_port: bool, tmp_path: Path) -> None:
    settings = SETTINGS[name_of(page)]
    said = dict.fromkeys(settings.says, "")
    with ExitStack() as stack:
        site = Site(settings, admin_port, tmp_path, stack)
        variables = ""
        for block in runnable(page):
            if settings.elsewhere[0] in block:
                continue
            before = "".join(script for words, script in settings.before if words in block)
            printed = site.run(variables + before + block * (2 if settings.twice in block else 1))
            # A reader's shell keeps them; the pages set none in another way.
            variables += "".join(re.findall(r"^(?:ADMIN|MODEL)=.*\n", block, re.MULTILINE))
            for words, pattern in settings.says:
                if words in block:
                    said[words, pattern] = printed
    wrong = [
        f"{words}: {printed!r}"
        for (words, pattern), printed in said.items()
        if not re.search(pattern, printed)
    ]
    none_of(wrong, "these commands print something else than the page says")


def test_a_page_has_one_name_for_the_address_of_admin_endpoints() -> None:
    """Row 39 of the third list: also where nothing runs, in the reference and in the middle of a sentence."""
    wrong = []
    for page in EVERY_PAGE:
        text = page.read_text()
        for path in re.findall(rf"(?<!ADMIN=){MAIN}(/[^\s'\"`?)]*)", text):
            if is_for_admins(path):
                wrong.append(f"{name_of(page)}: {path} is an admin endpoint; write $ADMIN{path}")
        for path in re.findall(r"\$ADMIN(/[^\s'\"`?)]*)", text):
            if not is_for_admins(path):
                wrong.append(f"{name_of(page)}: {path} is no admin endpoint; write localhost:30000{path}")
        first = text.find("$ADMIN/")
        if first >= 0 and not re.search(r"^ *ADMIN=localhost:3000[01]\b", text[:first], re.MULTILINE):
            wrong.append(f"{name_of(page)}: say where $ADMIN is before it is used: ADMIN=localhost:30000")
    none_of(wrong, "one convention for the address of admin endpoints")


def is_for_admins(path: str) -> bool:
    return testing.find_route(path)["access"] == "admin" or path in testing.FanOutPaths([])


def test_the_reasons_are_about_commands_that_are_there() -> None:
    text = "\n".join(block for page in PAGES for block in blocks(page))
    assert [
        words for words in CANNOT_RUN if not re.search(rf"^(?:\$ )?{re.escape(words)}", text, re.MULTILINE)
    ] == []


def test_no_command_is_outside_of_a_block() -> None:
    for page in PAGES:
        lines = re.findall(r"^(?: {4})?(?:curl|jq|vllm-router) .*$", page.read_text(), re.MULTILINE)
        found = "".join(blocks(page))
        assert [line for line in lines if line.strip() not in found] == [], page


def test_no_command_hides_what_a_response_says() -> None:
    """Row 40 of the third list: an error that is not seen looks like a success."""
    assert [page for page in PAGES if "-o /dev/null" in page.read_text()] == []


def test_settings_are_of_pages_that_have_commands() -> None:
    assert set(SETTINGS) == {name_of(page) for page in PAGES if runnable(page)}
