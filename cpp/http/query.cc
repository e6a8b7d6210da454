#include "http/query.h"

#include <algorithm>

#include "base/text.h"

namespace vllm_router {

std::optional<QueryParameter> FindQueryParameter(std::string_view query, std::string_view name) {
  std::optional<QueryParameter> found;
  while (!query.empty()) {
    const size_t end = std::min(query.find('&'), query.size());
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view spelled_name = pair.substr(0, equals);
    const bool named = spelled_name == name || PercentDecoded(spelled_name, /*plus_is_space=*/true) == name;
    if (!named) continue;
    const std::string_view spelled = pair.substr(equals + 1);
    std::optional<std::string> value = PercentDecoded(spelled, /*plus_is_space=*/true);
    if (value) found = QueryParameter{*std::move(value), spelled};
  }
  return found;
}

std::string PercentEncoded(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~").find(c) != std::string_view::npos;
    if (plain) {
      encoded.push_back(c);
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    encoded.push_back('%');
    encoded.push_back(kDigits[byte >> 4]);
    encoded.push_back(kDigits[byte & 15]);
  }
  return encoded;
}

}  // namespace vllm_router
