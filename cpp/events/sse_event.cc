#include "events/sse_event.h"

#include <array>
#include <boost/json.hpp>
#include <limits>
#include <utility>

#include "base/text.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

using Kind = PrefixEvent::Kind;

constexpr std::array<std::pair<std::string_view, Kind>, 5> kKinds = {
    {{"cache_created", Kind::kCreated},
     {"cache_evicted", Kind::kEvicted},
     {"cache_offloaded", Kind::kOffloaded},
     {"cache_reloaded", Kind::kReloaded},
     {"cache_purged", Kind::kPurged}}};

std::optional<Kind> KindOf(std::string_view name) {
  for (const auto& [known, kind] : kKinds) {
    if (known == name) return kind;
  }
  return std::nullopt;
}

// Absent and null are the same.
const json::value* Member(const json::object& object, std::string_view name) {
  const json::value* const value = object.if_contains(json::string_view(name.data(), name.size()));
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string_view Text(const json::string& text) { return {text.data(), text.size()}; }

std::optional<Digest256> DigestOf(std::string_view hex) {
  Digest256 digest;
  if (hex.size() != 2 * digest.size()) return std::nullopt;
  for (size_t i = 0; i < digest.size(); ++i) {
    const int high = HexDigit(hex[2 * i]);
    const int low = HexDigit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    digest[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return digest;
}

}  // namespace

PrefixEventOrProblem ReadPrefixEvent(std::string_view type, std::string_view data) {
  const auto wrong = [](std::string_view problem) { return PrefixEventOrProblem{std::nullopt, problem}; };
  constexpr std::string_view kUnknownKind = "is of no known kind";
  std::optional<Kind> kind = KindOf(type);
  if (!kind && !type.empty()) return wrong(kUnknownKind);
  boost::system::error_code error;
  const json::value parsed = json::parse(json::string_view(data.data(), data.size()), error);
  if (error || !parsed.is_object()) return wrong("is no JSON object");
  const json::object& object = parsed.get_object();
  if (!kind) {
    const json::value* const name = Member(object, "event");
    if (name != nullptr && name->is_string()) kind = KindOf(Text(name->get_string()));
    if (!kind) return wrong(kUnknownKind);
  }
  PrefixEvent event{.kind = *kind, .prefix = {}, .tokens = {}};
  if (const json::value* const hash = Member(object, "prefix_hash"); hash != nullptr) {
    if (hash->is_string()) event.prefix = DigestOf(Text(hash->get_string()));
    if (!event.prefix) return wrong("has a prefix_hash that is not 64 hexadecimal digits");
  } else if (event.kind != Kind::kPurged) {
    return wrong("has no prefix_hash");
  }
  if (const json::value* const count = Member(object, "token_count"); count != nullptr) {
    const auto tokens = count->is_number() ? count->to_number<uint32_t>(error) : 0;
    if (!count->is_number() || error) return wrong("has a token_count that is no whole number below 2^32");
    event.tokens = tokens;
  }
  return {event};
}

bool IsOnGpu(PrefixEvent::Kind kind) { return kind == Kind::kCreated || kind == Kind::kReloaded; }

bool ApplyPrefixEvent(
    const PrefixEvent& event, WorkerId worker, int64_t now_ns, PrefixTable* table,
    std::vector<Digest256>* forgotten) {
  if (!event.prefix) {
    table->RemoveAllOf(worker, forgotten);
    return true;
  }
  const StorageOffloading offloading = table->options().offloading;
  const bool in_storage = (event.kind == Kind::kOffloaded && offloading != StorageOffloading::kOff) ||
                          (event.kind == Kind::kEvicted && offloading == StorageOffloading::kEvictions);
  if (IsOnGpu(event.kind) || in_storage)
    return table->Put(*event.prefix, worker, event.tokens, !in_storage, now_ns);
  table->Remove(*event.prefix, worker);
  return true;
}

}  // namespace vllm_router
