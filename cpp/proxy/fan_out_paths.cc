#include "proxy/fan_out_paths.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/text.h"

namespace vllm_router {
namespace {

struct Row {
  std::string_view path;
  bool empties_cache = false;
};

// Of vLLM's and SGLang's servers.
constexpr std::array<Row, 11> kPaths = {{
    {"/flush_cache", true},
    {"/reset_prefix_cache", true},
    {"/start_profile"},
    {"/stop_profile"},
    {"/sleep", true},
    {"/wake_up"},
    {"/pause"},
    {"/resume"},
    {"/update_weights*", true},
    {"/load_lora_adapter"},
    {"/unload_lora_adapter"},
}};

std::string_view WithoutVersion(std::string_view path) {
  constexpr std::string_view kVersion = "/v1";
  return path.starts_with("/v1/") ? path.substr(kVersion.size()) : path;
}

// As a worker reads it; a '%' without two digits is itself.
std::string_view Decoded(std::string_view path, std::string* room) {
  if (path.find('%') == std::string_view::npos) return path;
  std::optional<std::string> decoded = PercentDecoded(path, /*plus_is_space=*/false);
  if (!decoded.has_value()) return path;
  *room = *std::move(decoded);
  return *room;
}

}  // namespace

FanOutPaths::FanOutPaths(std::span<const std::string> more) {
  const auto add = [this](std::string_view path) {
    if (path.ends_with('*')) {
      prefixes_.emplace_back(path.substr(0, path.size() - 1));
    } else {
      paths_.emplace(path);
    }
  };
  for (const Row& row : kPaths) add(row.path);
  for (const std::string& path : more) add(path);
}

bool FanOutPaths::Contains(std::string_view path) const {
  std::string room;
  path = Decoded(path, &room);
  return Matches(path) || Matches(WithoutVersion(path));
}

bool FanOutPaths::Matches(std::string_view path) const {
  return paths_.contains(path) || std::ranges::any_of(prefixes_, [path](const std::string& prefix) {
           return path.starts_with(prefix);
         });
}

bool FanOutPaths::EmptiesCache(std::string_view path) {
  std::string room;
  path = WithoutVersion(Decoded(path, &room));
  return std::ranges::any_of(kPaths, [path](const Row& row) {
    if (!row.empties_cache) return false;
    const bool starred = row.path.ends_with('*');
    return starred ? path.starts_with(row.path.substr(0, row.path.size() - 1)) : path == row.path;
  });
}

}  // namespace vllm_router
