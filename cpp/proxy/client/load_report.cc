#include "proxy/client/load_report.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

#include "base/limits.h"
#include "base/text.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

constexpr size_t kCounts = 6;                                   // then the shares of the KV cache
constexpr std::array<std::string_view, kCounts + 3> kNames = {  // running and waiting alternate
    "vllm:num_requests_running", "vllm:num_requests_waiting",    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",     "llamacpp:requests_processing", "llamacpp:requests_deferred",
    "vllm:kv_cache_usage_perc",  "vllm:gpu_cache_usage_perc",    "sglang:token_usage"};
constexpr std::string_view kBlanks = " \t";

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == ':';
}

void SkipBlanks(std::string_view* line) {
  line->remove_prefix(std::min(line->find_first_not_of(kBlanks), line->size()));
}

// The labels behind a name, {a="x",b="y"}: visit(name, value). False if they are malformed.
template <typename Visit>
bool ReadLabels(std::string_view* line, Visit visit) {
  line->remove_prefix(1);
  for (;;) {
    SkipBlanks(line);
    if (line->starts_with('}')) break;
    size_t size = 0;
    while (size < line->size() && IsNameCharacter((*line)[size])) ++size;
    const std::string_view name = line->substr(0, size);
    line->remove_prefix(size);
    SkipBlanks(line);
    if (name.empty() || !line->starts_with('=')) return false;
    line->remove_prefix(1);
    SkipBlanks(line);
    if (!line->starts_with('"')) return false;
    std::string value;
    size_t i = 1;
    for (; i < line->size() && (*line)[i] != '"'; ++i) {
      if ((*line)[i] == '\\' && ++i == line->size()) return false;
      value.push_back((*line)[i]);
    }
    if (i >= line->size()) return false;
    line->remove_prefix(i + 1);
    visit(name, value);
    SkipBlanks(line);
    if (line->starts_with(',')) {
      line->remove_prefix(1);
    } else if (!line->starts_with('}')) {
      return false;
    }
  }
  line->remove_prefix(1);
  return true;
}

bool NamesRank(std::string_view label) { return label == "engine" || label == "dp_rank"; }

// The next line of `text` whose name is one of `names`: returns its index, and sets `line` to what
// follows the name. nullopt: there is no further one.
template <size_t kCount>
std::optional<size_t> NextSample(
    const std::array<std::string_view, kCount>& names, std::string_view* text, std::string_view* line) {
  while (!text->empty()) {
    const size_t end = std::min(text->find('\n'), text->size());
    *line = text->substr(0, end);
    text->remove_prefix(std::min(end + 1, text->size()));
    if (line->ends_with('\r')) line->remove_suffix(1);
    size_t size = 0;
    while (size < line->size() && IsNameCharacter((*line)[size])) ++size;
    const auto name = std::find(names.begin(), names.end(), line->substr(0, size));
    if (name == names.end()) continue;
    line->remove_prefix(size);
    SkipBlanks(line);
    return static_cast<size_t>(name - names.begin());
  }
  return std::nullopt;
}

// The value of a sample, optionally followed by a timestamp.
std::optional<double> ReadValue(std::string_view line, double maximum) {
  SkipBlanks(&line);
  double value = 0;
  const char* const end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data(), end, value);
  if (error != std::errc() || !std::isfinite(value) || value < 0 || value > maximum) return std::nullopt;
  line.remove_prefix(static_cast<size_t>(stop - line.data()));
  if (line.empty()) return value;
  if (kBlanks.find(line.front()) == std::string_view::npos) return std::nullopt;
  SkipBlanks(&line);
  if (line.starts_with('-')) line.remove_prefix(1);
  if (line.find_first_not_of("0123456789.eE+ \t") != std::string_view::npos) return std::nullopt;
  return value;
}

std::optional<ReportedLoad> CountIn(std::string_view text, std::string_view member) {
  boost::system::error_code error;
  const json::value value = json::parse(json::string_view(text.data(), text.size()), error);
  const json::object* object = error ? nullptr : value.if_object();
  const json::value* count =
      object == nullptr ? nullptr : object->if_contains({member.data(), member.size()});
  if (count == nullptr || !(count->is_int64() || count->is_uint64())) return std::nullopt;
  const int64_t number = count->is_int64() ? count->get_int64() : kMostReportedLoad + 1;
  if (number < 0 || number > kMostReportedLoad) return std::nullopt;
  return ReportedLoad{.requests = number};
}

// Ranks of tensor or pipeline parallelism repeat what their data-parallel rank says.
void NoteBlocks(const std::optional<std::string>& label, uint64_t blocks, std::vector<GpuBlocks>* all) {
  std::optional<uint32_t> rank;
  if (label) {
    const std::optional<uint64_t> number = ParseDecimal(*label);
    if (!number || *number > UINT32_MAX) return;
    rank = static_cast<uint32_t>(*number);
  }
  const auto known = std::ranges::find(*all, rank, &GpuBlocks::rank);
  if (known == all->end()) {
    all->push_back({.rank = rank, .blocks = blocks});
  } else {
    known->blocks = std::max(known->blocks, blocks);
  }
}

}  // namespace

std::optional<ReportedLoad> LoadInMetrics(std::string_view text, std::optional<uint32_t> rank) {
  const std::string wanted = rank ? std::to_string(*rank) : std::string();
  std::array<bool, kNames.size()> seen{};
  double sum = 0;
  double waiting = 0;
  double shares = 0;
  uint32_t share_count = 0;
  bool is_share_known = true;
  std::string_view line;
  while (const std::optional<size_t> name = NextSample(kNames, &text, &line)) {
    std::string of_rank;
    const auto visit = [&of_rank](std::string_view label, std::string& value) {
      if (NamesRank(label)) of_rank.swap(value);
    };
    if (line.starts_with('{') && !ReadLabels(&line, visit)) return std::nullopt;
    if (*name >= kCounts) {
      if (rank && of_rank != wanted) continue;
      const std::optional<double> share = ReadValue(line, 1);
      is_share_known = is_share_known && share;
      shares += share.value_or(0);
      ++share_count;
      continue;
    }
    const std::optional<double> value = ReadValue(line, kMostReportedLoad);
    if (!value) return std::nullopt;
    if (rank && of_rank != wanted) continue;
    seen[*name] = true;
    sum += *value;
    if (*name % 2 == 1) waiting += *value;
  }
  const bool is_known = (seen[0] && seen[1]) || (seen[2] && seen[3]) || (seen[4] && seen[5]);
  if (!is_known || sum > kMostReportedLoad) return std::nullopt;
  ReportedLoad load{.requests = std::llround(sum), .waiting = std::llround(waiting)};
  if (share_count > 0 && is_share_known) load.kv_use = shares / share_count;
  return load;
}

std::optional<ReportedCache> CacheInMetrics(std::string_view text, std::optional<uint32_t> rank) {
  enum Name : size_t { kVllmCache, kSglangTokens, kSglangCache, kSglangPage };
  constexpr std::array<std::string_view, 4> kCacheNames = {
      "vllm:cache_config_info", "sglang:max_total_num_tokens", "sglang:cache_config_info",
      "sglang:page_size"};
  const std::string wanted = rank ? std::to_string(*rank) : std::string();
  ReportedCache cache;
  std::vector<GpuBlocks> token_counts;  // SGLang's, in tokens
  std::string_view line;
  while (const std::optional<size_t> name = NextSample(kCacheNames, &text, &line)) {
    std::optional<std::string> of_rank;
    std::optional<uint64_t> blocks, block_size, page_size;
    const auto visit = [&](std::string_view label, std::string& value) {
      if (NamesRank(label)) of_rank = std::move(value);
      if (label == "num_gpu_blocks") blocks = ParseDecimal(value);
      if (label == "block_size") block_size = ParseDecimal(value);
      if (label == "page_size") page_size = ParseDecimal(value);
    };
    if (line.starts_with('{') && !ReadLabels(&line, visit)) return std::nullopt;
    const std::optional<double> value = ReadValue(line, static_cast<double>(kMostCacheTokens));
    if (!value) return std::nullopt;
    if (rank && of_rank && *of_rank != wanted) continue;
    std::optional<uint64_t> size = page_size;
    switch (*name) {
      case kVllmCache:
        // An engine that has not measured its memory yet reports "None".
        if (!blocks || !block_size || *blocks > kMostCacheTokens) return std::nullopt;
        size = block_size;
        NoteBlocks(of_rank, *blocks > 0 ? *blocks - 1 : 0, &cache.gpu_blocks);
        break;
      case kSglangTokens:
        cache.tokens += static_cast<uint64_t>(*value);
        NoteBlocks(of_rank, static_cast<uint64_t>(*value), &token_counts);
        break;
      case kSglangPage:
        size = static_cast<uint64_t>(*value);
        break;
    }
    // 0: not set yet.
    if (size.value_or(0) > kMaxBlockSize) return std::nullopt;
    cache.block_tokens = std::max(cache.block_tokens, static_cast<uint32_t>(size.value_or(0)));
    if (*name == kVllmCache) cache.tokens += *blocks * *block_size;
    if (cache.tokens > kMostCacheTokens) return std::nullopt;
  }
  if (cache.tokens == 0) return std::nullopt;
  if (cache.block_tokens == 0) return cache;
  for (const GpuBlocks& tokens : token_counts)
    cache.gpu_blocks.push_back({.rank = tokens.rank, .blocks = tokens.blocks / cache.block_tokens});
  return cache;
}

std::optional<ReportedLoad> LoadInGetLoad(std::string_view json) { return CountIn(json, "load"); }
std::optional<ReportedLoad> LoadInLoad(std::string_view json) { return CountIn(json, "server_load"); }

std::string_view LoadSource::target() const {
  constexpr std::array<std::string_view, 4> kTargets = {"/metrics", "/get_load", "/load", ""};
  return kTargets[static_cast<size_t>(at())];
}

void LoadSource::Lacks() {
  if (++asked_ == 3) {
    at_ = At::kNowhere;
    paused_ = 0;
    return;
  }
  at_ = at_ == At::kMetrics ? At::kGetLoad : at_ == At::kGetLoad ? At::kLoad : At::kMetrics;
}

}  // namespace vllm_router
