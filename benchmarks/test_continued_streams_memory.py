"""benchmarks/continued_streams_memory.py: does it still work, and does the limit hold?"""

import json

from benchmarks import continued_streams_memory


def test_a_small_run(tmp_path):
    file = tmp_path / "rows.json"
    arguments = ["--streams", "60", "--body-bytes", "40000", "--step-ms", "100", "--events", "6"]
    assert continued_streams_memory.main([*arguments, "--small-mib", "1", "--json", str(file)]) == 0
    off, on, small = json.loads(file.read_text())
    assert (off["counted_mib"], off["without"]) == (0, 0)
    assert on["counted_mib"] >= 60 * (40_000 + 4_096) / 2**20
    assert on["without"] == 0
    assert small["counted_mib"] <= 1
    # A stream takes its body and 4 KiB.
    assert small["without"] == 60 - 2**20 // (40_000 + 4_096)
