"""What the tests in Ray Serve deploy. Ray imports this in each replica, too."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from ray import serve

from vllm_router.ray import VllmRequestRouter


class KeptRouter(VllmRequestRouter):
    """Notes the routers that were made in this process."""

    made: ClassVar[list[VllmRequestRouter]] = []

    def initialize_state(self, **options: Any) -> None:
        super().initialize_state(**options)
        KeptRouter.made.append(self)


@serve.deployment
class Model:
    """Responds with its own id, and whether it has had the messages before the last two."""

    def __init__(self) -> None:
        self.had: set[str] = set()
        self.id = serve.get_replica_context().replica_id.unique_id

    async def __call__(self, body: dict[str, Any]) -> tuple[str, bool]:
        if body.get("die"):
            os._exit(1)
        earlier = repr(body["messages"][:-2])
        self.had.add(repr(body["messages"]))
        return self.id, earlier in self.had
