"""A whole deployment in one process: simulated workers, the router's server, the openai client."""

import openai

from vllm_router import Router
from vllm_router.testing import SimulatedWorker

QUESTION = "Tell me about the great rivers of Europe, their sources and their mouths."


def main() -> None:
    with (
        SimulatedWorker(step_ms=1) as one,
        SimulatedWorker(step_ms=1) as two,
        Router(policy="consistent_hash", worker_urls=[one.url, two.url]).serve(
            port=0, log_level="warn"
        ) as server,
        openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client,
    ):
        print("models:", [model.id for model in client.models.list()])

        # The same session twice: the second time the worker has the prompt in its cache.
        served_by: list[str | None] = []
        cached = 0
        for _ in range(2):
            chat = client.chat.completions.create(
                model="simulated-model",
                messages=[{"role": "user", "content": QUESTION}],
                extra_headers={"X-Session-ID": "ada"},
                max_tokens=8,
            )
            served_by.append(chat.system_fingerprint)
            usage = chat.usage
            assert usage is not None
            if usage.prompt_tokens_details is not None:
                cached = usage.prompt_tokens_details.cached_tokens or 0
            print(f"{chat.system_fingerprint}: {cached} of {usage.prompt_tokens} prompt tokens were cached")
        assert served_by[0] == served_by[1]
        assert cached > 0

        # Streamed: each token is passed on as it comes.
        stream = client.completions.create(
            model="simulated-model", prompt=QUESTION, max_tokens=6, stream=True, user="ada"
        )
        text = "".join(event.choices[0].text for event in stream)
        print("streamed:", text)
        assert len(text.split()) == 6

        # What a worker answers comes through, errors too.
        try:
            client.completions.create(model="another-model", prompt="x")
        except openai.NotFoundError as error:
            print("refused by the worker:", error.message)
        else:
            raise AssertionError("there is one model only")


if __name__ == "__main__":
    main()
