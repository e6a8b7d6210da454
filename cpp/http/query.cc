#include "http/query.h"

#include <algorithm>

#include "base/text.h"

namespace vllm_router {

std::optional<QueryPair> TakeQueryPair(std::string_view* query) {
  if (query->empty()) return std::nullopt;
  const size_t end = std::min(query->find('&'), query->size());
  const std::string_view text = query->substr(0, end);
  query->remove_prefix(std::min(end + 1, query->size()));
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return QueryPair{text, std::nullopt};
  return QueryPair{text.substr(0, equals), text.substr(equals + 1)};
}

std::optional<QueryParameter> FindQueryParameter(std::string_view query, std::string_view name) {
  std::optional<QueryParameter> found;
  while (const std::optional<QueryPair> pair = TakeQueryPair(&query)) {
    if (!pair->value) continue;
    const bool named = pair->name == name || PercentDecoded(pair->name, /*plus_is_space=*/true) == name;
    if (!named) continue;
    std::optional<std::string> value = PercentDecoded(*pair->value, /*plus_is_space=*/true);
    if (value) found = QueryParameter{*std::move(value), *pair->value};
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
