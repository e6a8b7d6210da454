#include "proxy/load_report.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>
#include <string>

namespace vllm_router {
namespace json = boost::json;
namespace {

constexpr std::array<std::string_view, 4> kNames = {
    "vllm:num_requests_running", "vllm:num_requests_waiting", "sglang:num_running_reqs",
    "sglang:num_queue_reqs"};
constexpr std::string_view kBlanks = " \t";

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == ':';
}

void SkipBlanks(std::string_view* line) {
  line->remove_prefix(std::min(line->find_first_not_of(kBlanks), line->size()));
}

// The labels behind a name, {a="x",b="y"}; `rank` gets that of the rank. False when they do not hold together.
bool ReadLabels(std::string_view* line, std::string* rank) {
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
    if (name == "engine" || name == "dp_rank") *rank = value;
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

// The value of a sample, and behind it at most a time.
std::optional<double> ReadValue(std::string_view line) {
  SkipBlanks(&line);
  double value = 0;
  const char* const end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data(), end, value);
  if (error != std::errc() || !std::isfinite(value) || value < 0 || value > kMostReportedLoad)
    return std::nullopt;
  line.remove_prefix(static_cast<size_t>(stop - line.data()));
  if (line.empty()) return value;
  if (kBlanks.find(line.front()) == std::string_view::npos) return std::nullopt;
  SkipBlanks(&line);
  if (line.starts_with('-')) line.remove_prefix(1);
  if (line.find_first_not_of("0123456789.eE+ \t") != std::string_view::npos) return std::nullopt;
  return value;
}

std::optional<int64_t> CountIn(std::string_view text, std::string_view member) {
  boost::system::error_code error;
  const json::value value = json::parse(json::string_view(text.data(), text.size()), error);
  const json::object* object = error ? nullptr : value.if_object();
  const json::value* count =
      object == nullptr ? nullptr : object->if_contains({member.data(), member.size()});
  if (count == nullptr || !(count->is_int64() || count->is_uint64())) return std::nullopt;
  const int64_t number = count->is_int64() ? count->get_int64() : kMostReportedLoad + 1;
  if (number < 0 || number > kMostReportedLoad) return std::nullopt;
  return number;
}

}  // namespace

std::optional<int64_t> LoadInMetrics(std::string_view text, std::optional<uint32_t> rank) {
  const std::string wanted = rank ? std::to_string(*rank) : std::string();
  std::array<bool, kNames.size()> seen{};
  double sum = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    size_t size = 0;
    while (size < line.size() && IsNameCharacter(line[size])) ++size;
    const auto name = std::find(kNames.begin(), kNames.end(), line.substr(0, size));
    if (name == kNames.end()) continue;
    line.remove_prefix(size);
    SkipBlanks(&line);
    std::string of_rank;
    if (line.starts_with('{') && !ReadLabels(&line, &of_rank)) return std::nullopt;
    const std::optional<double> value = ReadValue(line);
    if (!value) return std::nullopt;
    if (rank && of_rank != wanted) continue;
    seen[static_cast<size_t>(name - kNames.begin())] = true;
    sum += *value;
  }
  const bool vllm = seen[0] && seen[1];
  const bool sglang = seen[2] && seen[3];
  if ((!vllm && !sglang) || sum > kMostReportedLoad) return std::nullopt;
  return static_cast<int64_t>(std::llround(sum));
}

std::optional<int64_t> LoadInGetLoad(std::string_view json) { return CountIn(json, "load"); }
std::optional<int64_t> LoadInLoad(std::string_view json) { return CountIn(json, "server_load"); }

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
