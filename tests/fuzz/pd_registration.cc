// What is sent to the socket where workers of prefill/decode register: what is taken is a worker's URL and fits into a
// request's id, and the table stays within its limits and its order of events.
#include "disaggregation/pd_registration.h"

#include <cstdint>
#include <string>
#include <vector>

#include "disaggregation/pd_registrations.h"
#include "fuzz.h"
#include "worker/worker_url.h"

namespace vllm_router {
namespace {

void CheckTaken(const PdRegistration& told) {
  const StatusOr<WorkerUrl> url = ParseWorkerUrl("http://" + told.http_address);
  FUZZ_CHECK(url.ok() && url->prefix.empty() && !url->rank && !url->is_name);
  FUZZ_CHECK(!told.zmq_address.empty() && told.zmq_address.size() <= kMaxZmqAddress);
  for (const char c : told.zmq_address) FUZZ_CHECK(c > ' ' && c < 0x7f);
  FUZZ_CHECK(told.zmq_address.find("___") == std::string::npos);
  FUZZ_CHECK(told.tp_size >= 1 && told.tp_size <= kMaxRegisteredRanks);
  FUZZ_CHECK(told.dp_size >= 1 && told.dp_size <= kMaxRegisteredRanks);
}

}  // namespace
}  // namespace vllm_router

// The bytes are a map, or several that each have their length in front.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  const std::string_view text = AsText(data, size);
  std::vector<std::string> whole = {"identity", "", std::string(text)};
  PdRegistration told;
  const PdMessage message = DecodePdMessage(whole, &told);
  if (message == PdMessage::kRegistration) CheckTaken(told);
  FUZZ_CHECK((size + 8 > kMaxPdMessage) == (message == PdMessage::kTooLong));
  whole.erase(whole.begin() + 1);
  FUZZ_CHECK(DecodePdMessage(whole, &told) == message);

  PdRegistrations registrations(/*forget_ns=*/60'000'000'000, /*max_instances=*/4);
  std::vector<PdChange> changes;
  int64_t now_ns = 0;
  for (size_t at = 0; at + 1 < text.size();) {
    const size_t length = static_cast<uint8_t>(text[at]);
    now_ns += static_cast<uint8_t>(text[at + 1]) * int64_t{250'000'000};
    const std::vector<std::string> frames = {"", std::string(text.substr(at + 2, length))};
    if (DecodePdMessage(frames, &told) == PdMessage::kRegistration)
      registrations.Register(told, now_ns, &changes);
    FUZZ_CHECK(registrations.size() <= 4);
    at += 2 + length;
  }
  registrations.Expire(now_ns + 60'000'000'000, &changes);
  FUZZ_CHECK(registrations.size() == 0 && !registrations.mode());
  int64_t here = 0;
  for (const PdChange& change : changes) {
    here += change.kind == PdChange::Kind::kAdded ? 1 : 0;
    here -= change.kind == PdChange::Kind::kRemoved ? 1 : 0;
    FUZZ_CHECK(here >= 0 && here <= 4);
  }
  FUZZ_CHECK(here == 0);
  return 0;
}
