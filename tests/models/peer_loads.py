"""The slow twin of cpp/peer_sync/peer_table.h's loads: what every router has open, and who counts it.

Routers tell everything of themselves in each frame here; the production object tells what changed. After a
full frame of each has come through, both must agree.
"""

import dataclasses
import math

LIVE, DECAY, GONE = 2.0, 2.0, 10.0

Counts = tuple[int, int, int, int, int]
NONE: Counts = (0, 0, 0, 0, 0)


@dataclasses.dataclass
class Peer:
    heard: float
    sequence: int
    loads: dict[str, Counts]
    left: bool = False


@dataclasses.dataclass
class PeerLoads:
    peers: dict[int, Peer] = dataclasses.field(default_factory=dict)

    def hear(self, router: int, sequence: int, loads: dict[str, Counts], now: float) -> None:
        known = self.peers.get(router)
        if known is None:
            self.peers[router] = Peer(now, sequence, dict(loads))
        elif sequence > known.sequence:
            known.heard, known.sequence = now, sequence
            known.loads |= loads

    def bye(self, router: int) -> None:
        if router in self.peers:
            self.peers[router].left = True

    def state(self, router: int, now: float) -> str:
        peer = self.peers[router]
        if peer.left or now - peer.heard > GONE:
            return "gone"
        return "live" if now - peer.heard <= LIVE else "late"

    def load(self, worker: str, now: float) -> Counts:
        sums = [0] * 5
        for router, peer in self.peers.items():
            state = self.state(router, now)
            late = now - peer.heard - LIVE
            share = {"live": 1.0, "late": 2.0 ** (-late / DECAY), "gone": 0.0}[state]
            for at, count in enumerate(peer.loads.get(worker, NONE)):
                sums[at] += math.floor(share * count + 0.5)
        first, second, third, fourth, fifth = sums
        return first, second, third, fourth, fifth
