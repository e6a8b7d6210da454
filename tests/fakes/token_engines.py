"""Engines with token ids: streams of completions, and /detokenize."""

import json

from tests.fakes.continued import HEAD
from tests.fakes.wire import chunk, response


class Engine:
    """A worker with answers of its own to streams and to /detokenize."""

    def __init__(self, harness, stream, detokenize=None):
        self.sent = []
        self._stream, self._detokenize = stream, detokenize
        self.worker = harness.worker(self._answer)
        self.url = self.worker.url

    def _answer(self, connection, message):
        if message.method != "POST":
            connection.send(response(200, b""))
        elif message.target == "/detokenize":
            text = self._detokenize(json.loads(message.body)["tokens"]) if self._detokenize else None
            connection.send(
                response(404, b"") if text is None else response(200, json.dumps({"prompt": text}).encode())
            )
        else:
            self.sent.append(json.loads(message.body))
            self._stream(connection, self.sent[-1])


def event(text, ids, prompt=None, end=None):
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": end}
    choice |= {"prompt_token_ids": prompt, "token_ids": ids}
    return chunk(
        b"data: "
        + json.dumps(
            {"id": "a", "created": 1, "model": "m", "choices": [choice]}, separators=(",", ":")
        ).encode()
        + b"\n\n"
    )


def sends(*events, then="reset"):
    def stream(connection, _sent):
        connection.send(HEAD + b"".join(events))
        if then == "reset":
            connection.wait_until_read()
            connection.reset()
        else:
            connection.send(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    return stream
