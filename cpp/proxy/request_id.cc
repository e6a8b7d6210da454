#include "proxy/request_id.h"

namespace vllm_router {

RequestId ChooseRequestId(std::span<const HeaderField> fields, const std::vector<std::string>& ranked_names,
                          std::string_view prefix, Dice& dice) {
  for (const std::string& name : ranked_names) {
    for (const HeaderField& field : fields) {
      if (!field.value.empty() && EqualsIgnoreCase(field.name, name)) {
        return {.id = std::string(field.value), .header_name = field.name};
      }
    }
  }
  constexpr std::string_view kAlphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  constexpr size_t kLetters = 24;  // 143 bits, as the reference
  constexpr size_t kPerDraw = 8;   // 62^8 is below 2^48, so the bias of one draw per eight letters is below 2^-16
  RequestId made{.own_prefix = prefix.size()};
  made.id.reserve(prefix.size() + kLetters);
  made.id.append(prefix);
  for (size_t i = 0; i < kLetters; i += kPerDraw) {
    uint64_t draw = dice.Next();
    for (size_t j = 0; j < kPerDraw; ++j, draw /= kAlphabet.size()) made.id.push_back(kAlphabet[draw % kAlphabet.size()]);
  }
  return made;
}

}  // namespace vllm_router
