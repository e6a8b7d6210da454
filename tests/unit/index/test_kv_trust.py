"""cpp/index/kv_trust.h: what each trust makes of events."""

from vllm_router import _core_testing as testing


def test_trust_is_off_until_it_is_set():
    blocks = testing.ReportedBlocks()
    blocks.set_workers([(1, 0)])
    assert blocks.trust(0) == "off"
    names = []
    for trust in range(7):
        blocks.set_trust(1, trust)
        names.append(blocks.trust(0))
    assert names == ["off", "waiting", "exact", "settled", "partial", "silent", "mismatch"]
