#include "proxy/api/request_id.h"

namespace vllm_router {

RequestId ChooseRequestId(
    std::span<const HeaderField> fields, const std::vector<std::string>& ranked_names,
    std::string_view prefix, Random& random) {
  for (const std::string& name : ranked_names) {
    for (const HeaderField& field : fields) {
      if (!field.value.empty() && EqualsIgnoreCase(field.name, name)) {
        return {.id = std::string(field.value), .header_name = field.name};
      }
    }
  }
  constexpr std::string_view kAlphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  constexpr size_t kLetters = 24;  // 143 bits, as in the reference
  constexpr size_t kPerDraw = 8;
  RequestId made{.own_prefix = prefix.size()};
  made.id.reserve(prefix.size() + kLetters);
  made.id.append(prefix);
  for (size_t i = 0; i < kLetters; i += kPerDraw) {
    // The random number as a fraction of 2^64: each multiplication moves one letter in front of the
    // point. 62^8 is below 2^48, so the bias stays below 2^-16.
    uint64_t fraction = random.Next();
    for (size_t j = 0; j < kPerDraw; ++j) {
      const uint64_t high =
          (fraction >> 32) * kAlphabet.size() + ((fraction & 0xffffffff) * kAlphabet.size() >> 32);
      fraction *= kAlphabet.size();
      made.id.push_back(kAlphabet[high >> 32]);
    }
  }
  return made;
}

void HideFromWorkers(RequestId* request_id, Random& random) {
  if (request_id->header_name.empty()) return;
  request_id->for_workers = ChooseRequestId({}, {}, {}, random).id;
}

}  // namespace vllm_router
