"""Runs the benchmarks of the block index and prints one table: this index, and how much others take.

    python benchmarks/block_index_table.py build/bench          # sizes of the documentation: some minutes
    python benchmarks/block_index_table.py build/bench --small  # does it work?

Cells of other designs are times (or bytes) divided by this index's. All structures of a row saw the same
workload in the same run; the exit status is 1 unless their answers have the same checksum.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

OTHERS = ("positional", "block_tree", "map_of_maps")
HASHES = {
    "BM_ChainedHash/block_size:16": "chained, 16 tokens",
    "BM_ParentAndTokensInOneCall/block_size:16": "one XXH3 of 72 bytes",
    "BM_StreamingTokenByToken/block_size:16": "streaming, token by token",
}
# Counter, what it is called, its unit. The index is measured without the map that its caller keeps from an
# engine's hashes to refs, and again with one (absl::flat_hash_map); the others keep such a map inside.
ROWS = {
    "Chats": [
        ("match_ns", "match", "ns/block"),
        ("stored_ns", "stored", "ns/block"),
        ("stored_map_ns", "stored, with a map of refs", "ns/block"),
        ("removed_ns", "removed", "ns/block"),
        ("removed_map_ns", "removed, with a map of refs", "ns/block"),
        ("bytes_per_pair", "memory", "B/pair"),
        ("remove_worker_us", "remove a worker", "us"),
        ("longest_sweep_us", "longest slice of its sweep", "us"),
    ],
    "Record": [
        ("match_ns", "match", "ns/block"),
        ("record_ns", "record with LRU", "ns/block"),
        ("longest_us", "longest record", "us"),
    ],
    "HalfHit": [("match_ns", "match, half hit", "ns/block")],
    "HotPrefix": [("match_us", "prefix held by all", "us")],
    "Decode": [
        ("event_ns", "event of one block", "ns"),
        ("event_map_ns", "event of one block, with a map of refs", "ns"),
    ],
    "Readers": [
        ("idle_p50_us", "match, no writer, p50", "us"),
        ("busy_p50_us", "match, writer at full speed, p50", "us"),
        ("idle_p99_us", "match, no writer, p99", "us"),
        ("busy_p99_us", "match, writer at full speed, p99", "us"),
    ],
}


def run(program: Path, small: bool) -> list[dict[str, Any]]:
    """The benchmarks of one program, as Google Benchmark tells them."""
    environment = {**os.environ, "BLOCK_INDEX_BENCH": "small" if small else "full"}
    done = subprocess.run(
        [program, "--benchmark_format=json"], env=environment, capture_output=True, text=True, check=True
    )
    benchmarks: list[dict[str, Any]] = json.loads(done.stdout)["benchmarks"]
    return benchmarks


def by_workload(benchmarks: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    """(family, sizes) -> structure -> counters."""
    workloads: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for benchmark in benchmarks:
        family, structure, *sizes = benchmark["name"].removesuffix("/iterations:1").split("/")
        workloads.setdefault((family, ", ".join(sizes)), {})[structure] = benchmark
    return workloads


def disagreements(workloads: dict[tuple[str, str], dict[str, dict[str, Any]]]) -> list[str]:
    """Workloads whose structures gave different answers."""
    return [
        f"{family} {sizes}: {found}"
        for (family, sizes), structures in workloads.items()
        if len(found := {name: row.get("label", "") for name, row in structures.items()}) > 1
        and len(set(found.values())) > 1
    ]


def table(workloads: dict[tuple[str, str], dict[str, dict[str, Any]]]) -> list[str]:
    """Markdown."""
    lines = [
        "| workload | operation | this index | " + " | ".join(f"{name}, times" for name in OTHERS) + " |",
        "|---|---|---|" + "---|" * len(OTHERS),
    ]
    for (family, sizes), structures in workloads.items():
        ours = structures["run_index"]
        for counter, what, unit in ROWS[family]:
            if counter not in ours:
                continue
            ratios = [
                f"{structures[name][counter] / ours[counter]:.1f}"
                if counter in structures.get(name, {})
                else ""
                for name in OTHERS
            ]
            cells = [f"{family} ({sizes})", what, f"{ours[counter]:.3g} {unit}", *ratios]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="One table of what the block index costs.")
    parser.add_argument("build", type=Path, help="a build with -DROUTER_BENCHMARKS=ON, such as build/bench")
    parser.add_argument("--small", action="store_true", help="small sizes, to see that it works")
    arguments = parser.parse_args()
    programs = arguments.build / "benchmarks" / "micro"
    workloads = by_workload(run(programs / "block_index_bench", arguments.small))
    for wrong in disagreements(workloads):
        print(f"answers differ: {wrong}", file=sys.stderr)
    print("\n".join(table(workloads)))
    print("\n| hashing | ns per block |\n|---|---|")
    for benchmark in run(programs / "block_hash_bench", arguments.small):
        if benchmark["name"] in HASHES:
            print(f"| {HASHES[benchmark['name']]} | {benchmark['block'] * 1e9:.1f} |")
    return 1 if disagreements(workloads) else 0


if __name__ == "__main__":
    sys.exit(main())
