"""cpp/proxy/admission/past_prompt.h: of a response in one piece, where its prompt counts as past."""

import threading

from tests.fakes.wire import eventually, request, response

BODY = b'{"model":"m","prompt":"hi"}'
LINES = "class default gate=idle_only kv_ceiling=0.5\nclass batch kv_ceiling=0.5"


class Whole:
    """A worker whose responses come in one piece when they may; the first of all with `dying` is cut off."""

    def __init__(self, harness, dying):
        self.order, self.gate, self.dying = [], threading.Semaphore(0), dying
        self.worker = harness.worker(self.answer)
        self.url = self.worker.url

    def answer(self, connection, message):
        if message.method != "POST":
            connection.send(response(200, b"hello"))
            return
        self.order.append(message.get("x-who"))
        assert self.gate.acquire(timeout=30)
        if self.dying and self.dying.pop() is not None:
            connection.close()
        else:
            connection.send(response(200, b"{}"))


def test_a_retry_is_estimated_anew_where_it_is(harness):
    dying = [True]
    workers = [Whole(harness, dying), Whole(harness, dying)]
    router = harness.router(
        *workers, load_poll_interval_secs=0, admission_config=LINES, disable_retries=False
    )

    def ask(who):
        client = harness.client(router)
        client.send(
            request("POST", "/v1/completions", ("x-smg-priority", "batch"), ("x-who", who), body=BODY)
        )
        return client

    clients = [ask("cut off")]
    eventually(lambda: any(worker.order for worker in workers))
    first, second = sorted(workers, key=lambda worker: not worker.order)
    clients.append(ask("other"))
    eventually(lambda: second.order == ["other"])
    clients.append(ask("past"))  # it goes where the prompt is past by the estimate
    eventually(lambda: len(first.order) + len(second.order) == 3)
    first.gate.release()
    eventually(lambda: "cut off" in second.order)
    clients += [ask("next") for _ in range(4)]
    eventually(lambda: "next" in second.order)
    for worker in workers:
        worker.gate.release(9)
    for client in clients:
        assert client.read_response().status == 200
