// Whatever is given as a worker's URL: what is accepted reads back as itself and cannot split a head.
#include "worker/worker_url.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  const StatusOr<WorkerUrl> url = ParseWorkerUrl(AsText(data, size));
  if (!url.ok()) {
    FUZZ_CHECK(!url.status().message().empty());
    return 0;
  }
  const StatusOr<WorkerUrl> again = ParseWorkerUrl(url->url);
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(again->url == url->url && again->base == url->base && again->rank == url->rank);
  FUZZ_CHECK(again->tls == url->tls);
  FUZZ_CHECK(again->host == url->host && again->port == url->port && again->prefix == url->prefix);
  FUZZ_CHECK(again->is_name == url->is_name);
  FUZZ_CHECK(!url->host.empty() && (url->port == 0) == url->is_name);
  for (const std::string& part : {url->url, url->base, url->host, url->prefix, url->authority}) {
    for (const char c : part) FUZZ_CHECK(static_cast<unsigned char>(c) > 0x20 && c != 0x7f);
  }
  return 0;
}
