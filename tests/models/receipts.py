"""Which receipts a filter finds, by lists that are searched whole: the twin of cpp/receipts/receipt_log.h."""

from typing import Any


class ReceiptLog:
    def __init__(self, threads: int, per_thread: int) -> None:
        self.per_thread = per_thread
        self.rings: list[list[dict[str, Any]]] = [[] for _ in range(threads)]

    def write(self, thread: int, **receipt: Any) -> None:
        self.rings[thread].append(receipt)

    def kept(self) -> list[dict[str, Any]]:
        return [receipt for ring in self.rings for receipt in ring[-self.per_thread :]]

    def find(
        self,
        last: int = 100,
        worker: str | None = None,
        model: str | None = None,
        reason: str | None = None,
        arm: str | None = None,
        min_miss_tokens: int = 0,
        since: float = 0,
    ) -> tuple[list[str], int, int, float | None]:
        """The ids, the newest end first; how many are kept, and were overwritten; the share with a report."""

        def is_wanted(receipt: dict[str, Any]) -> bool:
            known = receipt["predicted"] is not None and receipt["reported"] is not None
            miss = max(0, receipt["predicted"] - receipt["reported"]) if known else 0
            return (
                worker in (None, receipt["worker"])
                and model in (None, receipt["model"])
                and reason in (None, receipt["reason"])
                and arm in (None, "policy")
                and miss >= min_miss_tokens
                and receipt["wall_us"] >= since * 1e6
            )

        wanted = [receipt for receipt in self.kept() if is_wanted(receipt)]
        reporting = [receipt for receipt in wanted if receipt["reported"] is not None]
        wanted.sort(key=lambda receipt: receipt["wall_us"] + receipt["total_us"], reverse=True)
        overwritten = sum(max(0, len(ring) - self.per_thread) for ring in self.rings)
        share = round(len(reporting) / len(wanted), 4) if wanted else None
        return [receipt["id"] for receipt in wanted[:last]], len(self.kept()), overwritten, share
