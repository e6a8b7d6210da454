"""cpp/proxy/holdout/thread_holdout.h: threads agree on the arms."""

from tests.fakes.held_out import session


def test_all_threads_hold_the_same_conversations_out(harness, held_out):
    router = harness.router(harness.worker(), threads=3, decision_headers=True, **held_out)
    for _ in range(12):  # connections, of whichever threads
        client = harness.client(router)
        for arm in ("policy", "holdout"):
            name = ("x-session-id", session(arm))
            got = client.ask("POST", "/v1/completions", name, body=b'{"prompt": "a"}')
            assert got.get("x-vllm-router-arm") == arm
