"""cpp/proxy/admission/program_metrics.h: its families are there while programs are off."""


def test_its_families_are_there_where_programs_are_off(harness):
    router = harness.router(harness.worker())
    harness.client(router).ask("POST", "/v1/completions", ("x-session-id", "s"), body=b"{}")
    router.must_rest()
    text = router.server.metrics_text()
    for line in (
        'vllm_router_programs{state="paused"} 0',
        'vllm_router_program_turns_total{how="would_wait"} 0',
        'vllm_router_program_pauses_total{reason="ttl"} 0',
        "vllm_router_programs_forgotten_total 0",
        "vllm_router_program_wait_seconds_count 0",
        "vllm_router_program_turn_seconds_count 0",
    ):
        assert f"\n{line}\n" in text
