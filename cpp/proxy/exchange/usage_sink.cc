#include "proxy/exchange/usage_sink.h"

#include <algorithm>
#include <optional>

#include "base/limits.h"
#include "base/text.h"
#include "disaggregation/merged_response.h"

namespace vllm_router {
namespace {

constexpr std::string_view kUsage = "\"usage\"";
constexpr std::string_view kData = "data:";
constexpr std::string_view kBlanks = " \t";

// Whether a member of that name is an object. In a text its quotes would be escaped.
bool HasUsage(std::string_view text) {
  for (size_t at = text.find(kUsage); at != std::string_view::npos; at = text.find(kUsage, at + 1)) {
    std::string_view rest = text.substr(at + kUsage.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(kBlanks), rest.size()));
    if (!rest.starts_with(':')) continue;
    rest.remove_prefix(1);
    rest.remove_prefix(std::min(rest.find_first_not_of(kBlanks), rest.size()));
    if (rest.starts_with('{')) return true;
  }
  return false;
}

}  // namespace

BodySink::Took UsageSink::Write(std::string_view data, bool last) {
  const bool is_plain = held_.empty() && !passes_ && (last || data.ends_with('\n')) &&
                        data.find(kUsage) == std::string_view::npos;
  if (is_plain) return next_.Write(data, last);
  out_.clear();
  while (!data.empty()) {
    const size_t line_end = data.find('\n');
    const bool ends = line_end != std::string_view::npos;
    const std::string_view part = ends ? data.substr(0, line_end + 1) : data;
    data.remove_prefix(part.size());
    if (passes_) {
      out_ += part;
      passes_ = !ends;
    } else if (ends && held_.empty()) {
      AddLine(part);
    } else {
      held_ += part;
      passes_ = !ends && held_.size() > kRelayBufferMost;
      if (!ends && !passes_) continue;
      if (passes_) {
        out_ += held_;
      } else {
        AddLine(held_);
      }
      held_.clear();
    }
  }
  if (last) {
    AddLine(held_);
    held_.clear();
  }
  return next_.Write(out_, last);
}

void UsageSink::AddLine(std::string_view line) {
  if (!usage_.empty() && line.starts_with(kData) && HasUsage(line)) {
    const size_t begin = std::min(line.find_first_not_of(kBlanks, kData.size()), line.size());
    const size_t end = line.find_last_not_of("\r\n") + 1;
    const std::optional<std::string> merged = MergeUsage(usage_, line.substr(begin, end - begin));
    if (merged) {
      out_ += Concat(line.substr(0, begin), *merged, line.substr(end));
      return;
    }
  }
  out_ += line;
}

}  // namespace vllm_router
