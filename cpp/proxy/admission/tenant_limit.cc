#include "proxy/admission/tenant_limit.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <utility>

#include "base/text.h"
#include "base/time_units.h"

namespace vllm_router {
namespace {

constexpr int64_t kMsPerSecond = 1'000;
constexpr int64_t kSecondsPerMinute = 60;
constexpr int64_t kMinutesPerHour = 60;

// Of Anthropic's API: RFC 3339, rounded up to seconds.
std::string InstantText(int64_t unix_us) {
  const auto seconds = static_cast<std::time_t>((unix_us + kMicrosPerSecond - 1) / kMicrosPerSecond);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc));
}

// The names of one rate's fields.
struct FieldNames {
  std::string_view limit;
  std::string_view remaining;
  std::string_view reset;
  std::string_view anthropic_limit;
  std::string_view anthropic_remaining;
  std::string_view anthropic_reset;
};
constexpr FieldNames kOfRequests = {
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
    "anthropic-ratelimit-requests-limit",
    "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-requests-reset"};
constexpr FieldNames kOfTokens = {
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
    "anthropic-ratelimit-tokens-limit",
    "anthropic-ratelimit-tokens-remaining",
    "anthropic-ratelimit-tokens-reset"};
constexpr size_t kTextsOfRate = 4;  // limit, remaining, duration, instant

struct FieldTimes {
  bool anthropic;
  int64_t unix_us;
};

// `texts`: kTextsOfRate of them.
void AddRate(
    const FieldNames& names, const RateLevel& level, const FieldTimes& times, std::string* texts,
    std::vector<HeaderField>* fields) {
  texts[0] = std::to_string(level.limit);
  texts[1] = std::to_string(level.remaining);
  texts[2] = DurationText(level.reset_ns);
  fields->push_back({names.limit, texts[0]});
  fields->push_back({names.remaining, texts[1]});
  fields->push_back({names.reset, texts[2]});
  if (!times.anthropic) return;
  texts[3] = InstantText(times.unix_us + level.reset_ns / 1'000);
  fields->push_back({names.anthropic_limit, texts[0]});
  fields->push_back({names.anthropic_remaining, texts[1]});
  fields->push_back({names.anthropic_reset, texts[3]});
}

}  // namespace

std::string DurationText(int64_t nanos) {
  const int64_t ms = (nanos + kNanosPerMs - 1) / kNanosPerMs;
  if (ms == 0) return "0s";
  if (ms < kMsPerSecond) return Concat(ms, "ms");
  const int64_t seconds = ms / kMsPerSecond;
  const int64_t minutes = seconds / kSecondsPerMinute;
  const int64_t hours = minutes / kMinutesPerHour;
  std::string text;
  if (hours != 0) text = Concat(hours, "h");
  if (minutes != 0) text += Concat(minutes % kMinutesPerHour, "m");
  text += std::to_string(seconds % kSecondsPerMinute);
  if (const int64_t rest = ms % kMsPerSecond; rest != 0) {
    std::string digits = std::to_string(kMsPerSecond + rest);
    digits.front() = '.';
    digits.erase(digits.find_last_not_of('0') + 1);
    text += digits;
  }
  return text + "s";
}

std::optional<TenantLimit> TenantLimit::Find(
    ThreadTenants* thread, const AdmissionSettings& settings, std::string_view tenant, int64_t now_ns) {
  const TenantLimits& limits = settings.OfTenant(tenant).limits;
  if (!limits.any()) return std::nullopt;
  return TenantLimit(
      PartOf(limits, thread->table.parts()), std::string(tenant),
      thread->table.Find(tenant, now_ns, &thread->known, settings.Names(tenant)));
}

bool TenantLimit::Begin(int64_t now_ns) {
  rejected_ = meter_->Begin(limits_, now_ns);
  open_ = has_place_ = has_request_ = !rejected_.has_value();
  return open_;
}

bool TenantLimit::TakeTokens(uint64_t prompt, uint64_t output, bool counted, int64_t now_ns) {
  const RatePace pace = PaceOfTokens(limits_);
  if (!pace.limits()) return true;
  uint64_t tokens = prompt + output;
  if (!counted) tokens = std::min(tokens, pace.AmountIn(pace.capacity_ns()));
  rejected_ = meter_->TakeTokens(limits_, tokens, now_ns);
  needed_ = tokens;
  if (rejected_.has_value()) {
    ReturnRequest(now_ns);
    return false;
  }
  reserved_ = tokens;
  output_ = output;
  return true;
}

void TenantLimit::ReturnRequest(int64_t now_ns) {
  if (std::exchange(has_request_, false)) meter_->ReturnRequest(limits_, now_ns);
}

void TenantLimit::ReturnPlace() {
  if (std::exchange(has_place_, false)) meter_->End();
}

void TenantLimit::End(std::optional<uint64_t> used, uint64_t events, int64_t now_ns) {
  if (!std::exchange(open_, false)) return;
  ReturnPlace();
  // One that reserved nothing was rejected, or needs no tokens.
  if (reserved_ == 0) return;
  const uint64_t seen = reserved_ + (events > output_ ? events - output_ : 0);
  meter_->SettleTokens(limits_, reserved_, used.value_or(seen), now_ns);
}

int64_t TenantLimit::retry_after_ns() const {
  if (!rejected_.has_value() || rejected_->wait_ns == RateBucket::kNever) return 0;
  return std::max<int64_t>(1, rejected_->wait_ns);
}

std::string TenantLimit::Message() const {
  const auto at_once = [](const RatePace& pace) { return pace.AmountIn(pace.capacity_ns()); };
  const std::string tenant = Concat("Tenant ", Quoted(tenant_));
  switch (rejected_->reason) {
    case TenantRejection::kConcurrency:
      return Concat(
          tenant, " has ", limits_.concurrency,
          " requests under way, which is its limit; wait for the response to one of them.");
    case TenantRejection::kRequests:
      return Concat(
          tenant, " is limited to ", limits_.requests_per_minute, " requests per minute, ",
          at_once(PaceOfRequests(limits_)), " of them at once; see Retry-After.");
    case TenantRejection::kTokens:
      break;
  }
  const std::string limit = Concat(
      tenant, " is limited to ", limits_.tokens_per_minute, " tokens per minute, ",
      at_once(PaceOfTokens(limits_)), " of them at once");
  if (rejected_->wait_ns == RateBucket::kNever) {
    return Concat(
        limit, ", and this request needs ", needed_,
        "; send a shorter prompt or a lower max_tokens, since waiting does not help.");
  }
  return Concat(limit, ", and this request needs ", needed_, "; see Retry-After.");
}

void TenantLimit::AddFields(
    bool anthropic, int64_t now_ns, int64_t unix_us, std::vector<HeaderField>* fields) {
  const FieldTimes times{.anthropic = anthropic, .unix_us = unix_us};
  const TenantMeter& meter = *meter_;
  if (const RatePace pace = PaceOfRequests(limits_); pace.limits())
    AddRate(kOfRequests, LevelOf(pace, meter.requests().Used(now_ns)), times, texts_.data(), fields);
  if (const RatePace pace = PaceOfTokens(limits_); pace.limits()) {
    AddRate(
        kOfTokens, LevelOf(pace, meter.tokens().Used(now_ns)), times, texts_.data() + kTextsOfRate, fields);
  }
}

}  // namespace vllm_router
