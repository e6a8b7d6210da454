#include "routing/routing_text.h"

#include "hashing/hash.h"

namespace vllm_router {

// No model's name contains 0x00 or RS, so no scope is a prefix of another. A client that sends such a
// name spoils only its own matches.
std::string TextScope(std::string_view model, std::string_view salt) {
  if (model.empty() && salt.empty()) return {};
  std::string scope(model);
  if (!salt.empty()) scope.append("\x1e").append(salt);
  return scope += '\0';
}

std::array<uint32_t, Prompt::kScopeTokens> TokenScope(std::string_view model, std::string_view salt) {
  const Hash128 hash = Xxh3Of128(TextScope(model, salt));
  std::array<uint32_t, Prompt::kScopeTokens> scope;
  for (size_t i = 0; i < scope.size(); ++i) {
    const uint64_t half = i % 4 < 2 ? hash.high : hash.low;
    scope[i] = static_cast<uint32_t>(i % 2 == 0 ? half >> 32 : half);
  }
  return scope;
}

}  // namespace vllm_router
