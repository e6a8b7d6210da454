"""cpp/proxy/admin/worker_endpoints.h: a worker is the same in each list."""

import json
from urllib.parse import quote


def test_lists_of_workers_agree(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    (described,) = json.loads(client.ask("GET", "/workers").body)["workers"]
    assert json.loads(client.ask("GET", "/list_workers").body) == {"urls": [worker.url]}
    alone = json.loads(client.ask("GET", f"/workers/{quote(worker.url, safe='')}").body)
    assert alone["url"] == described["url"] == worker.url
    assert list(alone) == list(described)
