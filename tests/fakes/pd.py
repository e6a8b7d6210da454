"""What a prefill worker with NIXL says of the blocks that it holds."""

import json
from typing import Any

PARAMETERS = {
    "remote_block_ids": [[1]],
    "remote_engine_id": "e",
    "remote_request_id": "r",
    "remote_host": "h",
    "remote_port": 1,
}


def prefill_response(parameters: Any, **more: Any) -> bytes:
    """The body of a response that hands them over."""
    choices = [{"finish_reason": "length"}]
    return json.dumps({"choices": choices, "kv_transfer_params": parameters, **more}).encode()


WHOLE = prefill_response(PARAMETERS)
