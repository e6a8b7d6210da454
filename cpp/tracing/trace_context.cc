#include "tracing/trace_context.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/random.h"
#include "base/text.h"

namespace vllm_router {
namespace {

static_assert(std::endian::native == std::endian::little, "the first digit is the lowest byte");

// Where the parts of a traceparent begin.
constexpr size_t kTraceAt = 3;
constexpr size_t kSpanAt = 36;
constexpr size_t kFlagsAt = 53;
constexpr uint64_t kSampledFlag = 1;

// Nullopt for other bytes than lower-case hex digits.
std::optional<uint64_t> ParseHex(std::string_view digits) {
  uint64_t value = 0;
  for (const char c : digits) {
    if (c >= 'A' && c <= 'F') return std::nullopt;
    const int digit = HexDigit(c);
    if (digit < 0) return std::nullopt;
    value = value << 4 | static_cast<uint64_t>(digit);
  }
  return value;
}

// Each byte of `digits` becomes one of eight digits of `value`, and all are turned into letters at once.
void PutHex(uint32_t value, char* to) {
  uint64_t digits = value;
  digits = (digits | digits << 16) & 0x0000ffff0000ffff;
  digits = (digits | digits << 8) & 0x00ff00ff00ff00ff;
  digits = (digits | digits << 4) & 0x0f0f0f0f0f0f0f0f;
  const uint64_t above_nine = (digits + 0x0606060606060606) >> 4 & 0x0101010101010101;
  digits = __builtin_bswap64(digits + 0x3030303030303030 + above_nine * ('a' - '0' - 10));
  std::memcpy(to, &digits, sizeof(digits));
}

void PutHex(uint64_t value, char* to) {
  PutHex(static_cast<uint32_t>(value >> 32), to);
  PutHex(static_cast<uint32_t>(value), to + 8);
}

// The first number of SplitMix64 that is not zero, from this state on.
uint64_t Mixed(uint64_t state) {
  Random random(state);
  const uint64_t id = random.Next();
  return id != 0 ? id : random.Next();
}

// Attempts and parts take different numbers of the same stream.
uint64_t StreamAt(uint64_t span, uint64_t number) {
  constexpr uint64_t kGamma = 0x9e3779b97f4a7c15u;
  return Mixed(span + number * kGamma);
}

uint64_t NonZero(Random& random) {
  for (;;) {
    if (const uint64_t number = random.Next(); number != 0) return number;
  }
}

}  // namespace

std::optional<Traceparent> ParseTraceparent(std::string_view text) {
  if (text.size() < kTraceparentBytes) return std::nullopt;
  for (const size_t dash : {kTraceAt - 1, kSpanAt - 1, kFlagsAt - 1}) {
    if (text[dash] != '-') return std::nullopt;
  }
  const std::optional<uint64_t> version = ParseHex(text.substr(0, 2));
  if (!version || *version == 0xff) return std::nullopt;
  if (text.size() > kTraceparentBytes && (*version == 0 || text[kTraceparentBytes] != '-'))
    return std::nullopt;
  const std::optional<uint64_t> high = ParseHex(text.substr(kTraceAt, 16));
  const std::optional<uint64_t> low = ParseHex(text.substr(kTraceAt + 16, 16));
  const std::optional<uint64_t> span = ParseHex(text.substr(kSpanAt, 16));
  const std::optional<uint64_t> flags = ParseHex(text.substr(kFlagsAt, 2));
  if (!high || !low || !span || !flags) return std::nullopt;
  if ((*high | *low) == 0 || *span == 0) return std::nullopt;
  return Traceparent{
      .trace = {.high = *high, .low = *low}, .span = *span, .sampled = (*flags & kSampledFlag) != 0};
}

TraceparentText WriteTraceparent(const Traceparent& parent) {
  TraceparentText text;
  text.fill('-');
  text[0] = text[1] = '0';
  PutHex(parent.trace.high, &text[kTraceAt]);
  PutHex(parent.trace.low, &text[kTraceAt + 16]);
  PutHex(parent.span, &text[kSpanAt]);
  text[kFlagsAt] = '0';
  text[kFlagsAt + 1] = parent.sampled ? '1' : '0';
  return text;
}

TraceSampler::TraceSampler(double ratio)
    : below_(static_cast<uint64_t>(std::llround(ratio * static_cast<double>(kBits + 1)))) {}

uint64_t RequestTrace::AttemptSpan(uint32_t number) const { return StreamAt(span, 2 * uint64_t{number} + 1); }

uint64_t RequestTrace::PartSpan(uint32_t number) const { return StreamAt(span, 2 * uint64_t{number} + 2); }

RequestTrace StartTrace(
    const std::optional<Traceparent>& parent, const TraceSampler& sampler, Random& random) {
  RequestTrace trace{.span = NonZero(random)};
  if (parent) {
    trace.trace = parent->trace;
    trace.parent = parent->span;
    trace.sampled = parent->sampled;
  } else {
    trace.trace = {.high = random.Next(), .low = NonZero(random)};
    trace.sampled = sampler.Samples(trace.trace);
  }
  return trace;
}

}  // namespace vllm_router
