"""cpp/proxy/server/server_reloads.h. Certificates are in test_tls_files.py."""

import re

from tests.fakes.wire import eventually


def reloads(router):
    found = re.findall(
        r'vllm_router_reloads_total{file="(\w+)",result="(\w+)"} (\d+)', router.server.metrics_text()
    )
    return {(file, result): int(count) for file, result, count in found if int(count)}


def test_a_reload_reads_all_files_and_says_which_failed(harness, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("first-key-of-a-client\n")
    router = harness.router(
        harness.worker(), client_api_key_file=str(keys), record_log=str(tmp_path / "traffic.jsonl")
    )
    router.server.reload()
    assert reloads(router) == {("client_keys", "ok"): 1, ("record_log", "ok"): 1}
    router.server.reopen_logs()
    assert reloads(router) == {("client_keys", "ok"): 1, ("record_log", "ok"): 2}
    keys.unlink()
    router.server.reload()
    assert reloads(router)[("client_keys", "failed")] == 1


def test_a_file_that_changes_is_read_without_being_told(harness, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("first-key-of-a-client\n")
    router = harness.router(harness.worker(), client_api_key_file=str(keys))
    keys.write_text("another-key-of-a-client\n")
    eventually(lambda: reloads(router) == {("client_keys", "ok"): 1}, "the file was not read again")
