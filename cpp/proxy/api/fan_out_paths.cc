#include "proxy/api/fan_out_paths.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/text.h"

namespace vllm_router {
namespace {

struct FanOutRow {
  std::string_view path;
  bool empties_cache = false;
};

// Paths of vLLM's and SGLang's servers.
constexpr std::array<FanOutRow, 30> kPaths = {{
    {"/flush_cache", true},
    {"/reset_prefix_cache", true},
    {"/reset_mm_cache"},
    {"/reset_encoder_cache"},
    {"/start_profile"},
    {"/stop_profile"},
    {"/sleep", true},
    {"/wake_up"},
    {"/pause", true},  // vLLM's empties the cache unless told otherwise
    {"/resume"},
    {"/pause_generation"},
    {"/continue_generation"},
    {"/release_memory_occupation", true},
    {"/resume_memory_occupation"},
    {"/release_kv_cache_memory", true},
    {"/abort_requests"},
    {"/inference/v1/abort_requests"},
    {"/update_weights*", true},
    {"/init_weights_update_group"},
    {"/destroy_weights_update_group"},
    {"/init_weight_transfer_engine"},
    {"/shutdown_weight_transfer_engine"},
    {"/start_weight_update"},
    {"/start_draft_weight_update"},
    {"/finish_weight_update", true},
    {"/update_weight_version"},
    {"/weight_checker"},
    {"/load_lora_adapter"},
    {"/unload_lora_adapter"},
    {"/collective_rpc"},
}};

std::string_view WithoutVersion(std::string_view path) {
  constexpr std::string_view kVersion = "/v1";
  return path.starts_with("/v1/") ? path.substr(kVersion.size()) : path;
}

// The path without parameters, empty segments, dot segments and a trailing slash.
std::string Normal(std::string_view path) {
  std::vector<std::string_view> segments;
  path = path.substr(0, path.find_first_of(";?#"));
  while (!path.empty()) {
    const size_t slash = std::min(path.find('/'), path.size());
    const std::string_view segment = path.substr(0, slash);
    path.remove_prefix(std::min(slash + 1, path.size()));
    if (segment == "..") {
      if (!segments.empty()) segments.pop_back();
    } else if (!segment.empty() && segment != ".") {
      segments.push_back(segment);
    }
  }
  std::string normal;
  for (const std::string_view segment : segments) normal.append("/").append(segment);
  return normal;
}

// The path as a worker decodes it; a '%' without two digits stays as it is.
std::string_view Decoded(std::string_view path, std::string* room) {
  if (path.find('%') == std::string_view::npos) return path;
  std::optional<std::string> decoded = PercentDecoded(path, /*plus_is_space=*/false);
  if (!decoded.has_value()) return path;
  *room = *std::move(decoded);
  return *room;
}

}  // namespace

void FanOutPaths::Patterns::Add(std::string_view path) {
  if (path.ends_with('*')) {
    prefixes.emplace_back(path.substr(0, path.size() - 1));
  } else {
    paths.emplace(path);
  }
}

bool FanOutPaths::Patterns::Match(std::string_view path) const {
  for (const std::string_view spelling : {path, WithoutVersion(path)}) {
    const auto begins = [spelling](const std::string& prefix) { return spelling.starts_with(prefix); };
    if (paths.contains(spelling) || std::ranges::any_of(prefixes, begins)) return true;
  }
  return false;
}

FanOutPaths::FanOutPaths(std::span<const std::string> more) {
  constexpr std::string_view kGet = "GET ";
  for (const FanOutRow& row : kPaths) {
    all_.Add(row.path);
    of_get_.Add(row.path);
  }
  for (const std::string_view entry : more) {
    const bool is_of_get = entry.starts_with(kGet);
    const std::string_view path = is_of_get ? entry.substr(kGet.size()) : entry;
    all_.Add(path);
    if (is_of_get) of_get_.Add(path);
  }
}

bool FanOutPaths::Contains(std::string_view path, std::string_view method) const {
  std::string room;
  const bool only_reads = method == "GET" || method == "HEAD";
  return (only_reads ? of_get_ : all_).Match(Decoded(path, &room));
}

bool FanOutPaths::Resembles(std::string_view path) const {
  // Nearly all paths are plain, and Contains() has already compared those.
  const bool plain = path.find_first_of("%;") == std::string_view::npos && !path.ends_with('/') &&
                     path.find("//") == std::string_view::npos && path.find("/.") == std::string_view::npos;
  if (plain) return false;
  std::string room;
  const std::string normal = Normal(Decoded(path, &room));
  if (normal == path) return false;
  return all_.Match(normal) || normal == "/metrics";
}

bool FanOutPaths::EmptiesCache(std::string_view path) {
  std::string room;
  path = WithoutVersion(Decoded(path, &room));
  return std::ranges::any_of(kPaths, [path](const FanOutRow& row) {
    if (!row.empties_cache) return false;
    const bool starred = row.path.ends_with('*');
    return starred ? path.starts_with(row.path.substr(0, row.path.size() - 1)) : path == row.path;
  });
}

}  // namespace vllm_router
