"""Place a whole batch at once: one call, arrays in and out, the GIL released meanwhile.

A trainer with 100,000 rollouts wants the turns of a rollout on the worker that has its prefix, and wants to
keep as many of them there as possible when a worker leaves.
"""

import time

import numpy as np

from vllm_router import Router

ROLLOUTS = 100_000
WORKERS = [f"http://gpu-{number}:8000" for number in range(8)]


def main() -> None:
    router = Router(policy="consistent_hash", worker_urls=WORKERS, hash_function="xxh3")
    sessions = [f"rollout-{number}" for number in range(ROLLOUTS)]

    begun = time.perf_counter()
    batch = router.select_batch(session_ids=sessions)
    took = time.perf_counter() - begun
    homes = batch.workers  # int32 indices into batch.worker_urls
    shares = np.bincount(homes, minlength=len(WORKERS)) / ROLLOUTS
    print(f"{ROLLOUTS / took / 1e6:.1f} million decisions per second")
    print(f"shares of the workers: {shares.min():.1%} to {shares.max():.1%}, where {1 / 8:.1%} is even")
    assert sum(worker.load for worker in router.workers) == ROLLOUTS
    batch.finish()  # the load of all of them returns; so it would when `batch` is dropped
    assert sum(worker.load for worker in router.workers) == 0

    # One worker leaves. Indices shift, URLs do not.
    urls = np.array(batch.worker_urls)[homes]
    router.remove_worker(WORKERS[3])
    with_seven = router.select_batch(session_ids=sessions)
    moved = urls != np.array(with_seven.worker_urls)[with_seven.workers]
    with_seven.finish()
    print(f"{WORKERS[3]} left: {moved.mean():.1%} of the rollouts moved, all of them its own")
    assert (urls[moved] == WORKERS[3]).all()
    assert moved.sum() == (urls == WORKERS[3]).sum()


if __name__ == "__main__":
    main()
