"""Row 7: SIGUSR1 opens the files of logs again, at any time, and ends no router."""

import contextlib
import json
import signal
import subprocess
import threading
from pathlib import Path

from tests.fakes.harness import Streaming
from tests.fakes.wire import PATIENCE, eventually, request, response
from tests.proxy.test_blocked_output import COMMAND, running
from vllm_router import Router

TO_NOTHING = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def signals(process, field):
    """The numbers in such a line of the kernel's page of the process: SigIgn, SigCgt."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                mask = int(line.split()[1], 16)
                return {number for number in range(1, 65) if mask >> (number - 1) & 1}
    return set()


def test_files_that_were_moved_away_are_opened_again(harness, tmp_path):
    """Row 7: log and record log, both before another line comes."""
    worker = harness.worker(lambda connection, _: connection.send(response(200, b"{}")))
    folder, record = tmp_path / "logs", tmp_path / "record"
    flags = ["--worker-urls", worker.url, "--policy", "round_robin", "--record-log", str(record)]
    with running(folder, *flags, **TO_NOTHING) as router:
        client = harness.client_at(router.port())
        for round_ in range(3):
            assert client.ask("POST", "/v1/completions", body=b'{"prompt": "x"}').status == 200
            eventually(lambda: record.read_text().count("\n") == 2)
            (file,) = folder.glob("vllm-router.*")
            file.rename(tmp_path / f"moved.{round_}")
            record.rename(tmp_path / f"moved_record.{round_}")
            router.process.send_signal(signal.SIGUSR1)
            eventually(lambda: record.exists() and " SIGUSR1: " in router.log())
        eventually(lambda: record.read_text().count("\n") == 1)
        assert "vllm_router_record_log" in json.loads(record.read_text())
        client.close()
        router.process.send_signal(signal.SIGTERM)
        assert router.process.wait(PATIENCE) == 0
    requests = [(tmp_path / f"moved_record.{round_}").read_text().count("\n") - 1 for round_ in range(3)]
    assert requests == [1, 1, 1]


def test_it_ends_no_router_that_starts_or_stops(harness, tmp_path):
    """Row 7: it comes all the time, from the first line of the command's code to its end."""
    streaming = Streaming(harness)
    flags = ["--worker-urls", streaming.url, "--policy", "round_robin"]
    with running(tmp_path / "logs", *flags, **TO_NOTHING) as router:
        process = router.process
        eventually(lambda: signal.SIGUSR1 in signals(process, "SigIgn") | signals(process, "SigCgt"))
        over = threading.Event()

        def rotate():
            while not over.wait(0.002):
                process.send_signal(signal.SIGUSR1)

        rotation = threading.Thread(target=rotate)
        rotation.start()
        try:
            client = harness.client_at(router.port())
            client.send(request("POST", "/v1/completions", body=b"{}"))
            client.read_head()
            process.send_signal(signal.SIGTERM)
            router.heard("SIGTERM: stopping")
            streaming.gate.open()
            assert client.read_to_end().endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
            assert process.wait(PATIENCE) == 0
        finally:
            over.set()
            rotation.join()


def test_without_files_it_does_nothing(harness):
    worker = harness.worker()
    command = [*COMMAND, "--worker-urls", worker.url, "--policy", "round_robin"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert any(" serves http://" in line for line in process.stderr)
        process.send_signal(signal.SIGUSR1)
        assert any("SIGUSR1: " in line for line in process.stderr)
        process.send_signal(signal.SIGTERM)
        assert process.stderr.read()
        assert process.wait(PATIENCE) == 0


def test_a_program_that_embeds_a_server_keeps_its_signals(harness):
    """Row 7: also where `start()` is called in a thread of its own."""
    numbers = [signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGPIPE]
    before = [signal.getsignal(number) for number in numbers]
    worker = harness.worker()
    router = Router(worker_urls=[worker.url], policy="round_robin")
    with router.serve(port=0, kv_events="off") as server:
        serving = threading.Thread(target=server.run)
        serving.start()
        client = harness.client_at(server.port)
        assert client.ask("GET", "/liveness").status == 200
        assert [signal.getsignal(number) for number in numbers] == before
        client.close()
        server.shutdown()
        serving.join(PATIENCE)
    assert [signal.getsignal(number) for number in numbers] == before
