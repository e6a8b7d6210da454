// A hostile snapshot: it is refused with a reason and changes nothing, or what the index then knows can be written
// and read again. With a secret only what the secret sealed is read.
#include <cstring>
#include <memory>
#include <string>

#include "fuzz.h"
#include "peer_sync/snapshot.h"
#include "policy/policy_registry.h"
#include "policy/pool.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  const std::string_view bytes = AsText(data, size);
  uint64_t fingerprint = 0;  // the one of the bytes
  if (size >= 16) std::memcpy(&fingerprint, data + 8, sizeof(fingerprint));
  Pool pool(*MakePolicy(
      {.policy = "auto", .block_size = 1, .max_blocks_per_worker = 1000, .peer_sync_stride_tokens = 4}));
  for (const char* const url : {"http://a:8000", "http://b:8000"}) FUZZ_CHECK(pool.registry().Add(url).ok());
  const std::shared_ptr<const FleetView> fleet = pool.fleet();
  KvIndex* const index = pool.index();
  for (const std::string_view secret : {"", "secret"}) {
    const uint64_t before = index->coarse()->strides();
    const StatusOr<SnapshotHead> head = ReadSnapshot(bytes, secret, fingerprint, *fleet, index);
    if (!head.ok()) {
      FUZZ_CHECK(!head.status().message().empty());
      FUZZ_CHECK(index->coarse()->strides() == before);
      continue;
    }
    FUZZ_CHECK(index->coarse()->strides() <= 2 * (1000 / 4));
    std::string written;
    FUZZ_CHECK(WriteSnapshot(*head, secret, *fleet, index, &written));
    FUZZ_CHECK(ReadSnapshot(written, secret, fingerprint, *fleet, index).ok());
  }
  return 0;
}
