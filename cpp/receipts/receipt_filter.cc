#include "receipts/receipt_filter.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "base/text.h"

namespace vllm_router {
namespace {

constexpr std::array<std::string_view, 7> kNames = {"last", "worker",          "model", "reason",
                                                    "arm",  "min_miss_tokens", "since"};
constexpr std::string_view kShownNames = "last, worker, model, reason, arm, min_miss_tokens, since";

std::string DidYouMean(std::string_view name, std::span<const std::string_view> candidates) {
  const std::string_view nearest = NearestName(name, candidates);
  return nearest.empty() ? std::string() : Concat(" (did you mean ", nearest, "?)");
}

// All of `text` as a whole number.
std::optional<uint64_t> WholeNumber(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return number;
}

StatusOr<Reason> ReasonOf(std::string_view name) {
  std::vector<std::string_view> names;
  for (int i = 0; i < kReasonCount; ++i) {
    const auto reason = static_cast<Reason>(i);
    if (ReasonName(reason) == name) return reason;
    names.push_back(ReasonName(reason));
  }
  return absl::InvalidArgumentError(Concat(
      "reason is ", Quoted(name), "; it must be one of the reasons in docs/reference/policies.md, such as ",
      ReasonName(Reason::kLowestCost), DidYouMean(name, names)));
}

StatusOr<Arm> ArmOf(std::string_view name) {
  for (const Arm arm : {Arm::kPolicy, Arm::kHoldout}) {
    if (ArmName(arm) == name) return arm;
  }
  return absl::InvalidArgumentError(Concat("arm is ", Quoted(name), "; it must be policy or holdout"));
}

Status Take(std::string_view name, const std::string& value, ReceiptFilter* filter) {
  if (name == "last") {
    const std::optional<uint64_t> last = WholeNumber(value);
    if (!last || *last == 0 || *last > ReceiptFilter::kMostLast) {
      return absl::InvalidArgumentError(Concat(
          "last is ", Quoted(value),
          "; it is the number of receipts and must be a whole number between 1 and ",
          ReceiptFilter::kMostLast, " (default ", ReceiptFilter::kDefaultLast, ")"));
    }
    filter->last = *last;
  } else if (name == "worker") {
    filter->worker = value;
  } else if (name == "model") {
    filter->model = value;
  } else if (name == "reason") {
    const StatusOr<Reason> reason = ReasonOf(value);
    ROUTER_RETURN_IF_ERROR(reason.status());
    filter->reason = *reason;
  } else if (name == "arm") {
    const StatusOr<Arm> arm = ArmOf(value);
    ROUTER_RETURN_IF_ERROR(arm.status());
    filter->arm = *arm;
  } else if (name == "min_miss_tokens") {
    const std::optional<uint64_t> tokens = WholeNumber(value);
    if (!tokens) {
      return absl::InvalidArgumentError(
          Concat("min_miss_tokens is ", Quoted(value), "; it must be a whole number, 0 or more"));
    }
    filter->min_miss_tokens = *tokens;
  } else if (name == "since") {
    const std::optional<int64_t> since = ParseTime(value);
    if (!since) {
      return absl::InvalidArgumentError(Concat(
          "since is ", Quoted(value),
          "; it must be a time such as 2026-01-31T12:00:00Z, or the seconds since 1970 in UTC"));
    }
    filter->since_us = *since;
  } else {
    return absl::InvalidArgumentError(Concat(
        "receipts have no parameter ", Quoted(name), "; there are ", kShownNames, DidYouMean(name, kNames)));
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<ReceiptFilter> ReceiptFilter::Parse(const std::vector<Parameter>& parameters) {
  ReceiptFilter filter;
  for (const auto& [name, value] : parameters) ROUTER_RETURN_IF_ERROR(Take(name, value, &filter));
  return filter;
}

std::string TimeText(int64_t unix_us) {
  const auto seconds = static_cast<std::time_t>(unix_us / 1'000'000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[80];
  std::snprintf(
      text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", utc.tm_year + 1900, utc.tm_mon + 1,
      utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, static_cast<int>(unix_us / 1000 % 1000));
  return text;
}

std::optional<int64_t> ParseTime(std::string_view text) {
  double seconds = 0;
  const char* const last = text.data() + text.size();
  if (const auto [end, error] = std::from_chars(text.data(), last, seconds);
      error == std::errc() && end == last && !text.empty()) {
    constexpr double kLatest = 253'402'300'799;  // 9999-12-31
    if (!(seconds >= 0 && seconds <= kLatest)) return std::nullopt;
    return std::llround(seconds * 1e6);
  }
  const std::string whole(text);
  std::tm utc{};
  int size = 0;
  const int fields = std::sscanf(
      whole.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%n", &utc.tm_year, &utc.tm_mon, &utc.tm_mday, &utc.tm_hour,
      &utc.tm_min, &utc.tm_sec, &size);
  if (fields != 6 || utc.tm_year < 1970 || utc.tm_mon < 1 || utc.tm_mon > 12 || utc.tm_mday < 1 ||
      utc.tm_mday > 31 || utc.tm_hour > 23 || utc.tm_min > 59 || utc.tm_sec > 60 || utc.tm_hour < 0 ||
      utc.tm_min < 0 || utc.tm_sec < 0) {
    return std::nullopt;
  }
  utc.tm_year -= 1900;
  utc.tm_mon -= 1;
  int64_t micros = int64_t{timegm(&utc)} * 1'000'000;
  std::string_view rest = std::string_view(whole).substr(static_cast<size_t>(size));
  if (rest.starts_with('.')) {
    int64_t unit = 100'000;
    for (rest.remove_prefix(1); !rest.empty() && rest[0] >= '0' && rest[0] <= '9'; rest.remove_prefix(1)) {
      micros += (rest[0] - '0') * unit;
      unit /= 10;
    }
  }
  if (rest != "Z") return std::nullopt;
  return micros;
}

}  // namespace vllm_router
