// Trace context: which trace a request belongs to, as W3C's header `traceparent` says it, and whether its spans are kept.
//
//   traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
//                |  trace id                         parent's span id  flags: 01 is sampled
//                version
//
//   client ── parent ──▶ router: span ── AttemptSpan(0), AttemptSpan(1), … ──▶ workers
//
// The spans of a request's attempts follow from its own by SplitMix64, so that a request keeps one span id however often it is
// sent. Pure functions but for StartTrace(), which draws; a RequestTrace belongs to one request.
// The format: W3C Trace Context, www.w3.org/TR/trace-context.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vllm_router {

class Random;

inline constexpr size_t kTraceparentBytes = 55;
inline constexpr size_t kMaxTracestateBytes = 512;

struct TraceId {
  uint64_t high = 0;
  uint64_t low = 0;
  friend bool operator==(const TraceId&, const TraceId&) = default;
};

struct Traceparent {
  TraceId trace;      // not zero
  uint64_t span = 0;  // not zero
  bool sampled = false;
};

// Nullopt unless the text is a traceparent: 55 bytes of version 00, or of a higher version, of which more may follow behind
// a '-'; lower-case digits, no id zero, version not ff.
std::optional<Traceparent> ParseTraceparent(std::string_view text);
// Of version 00.
using TraceparentText = std::array<char, kTraceparentBytes>;
TraceparentText WriteTraceparent(const Traceparent& parent);

// Samples a share of all traces: routers with the same ratio take the same ones.
class TraceSampler {
 public:
  // REQUIRES: 0 <= ratio <= 1.
  explicit TraceSampler(double ratio);
  bool Samples(const TraceId& trace) const { return (trace.low & kBits) < below_; }

 private:
  static constexpr uint64_t kBits = (uint64_t{1} << 56) - 1;  // those that W3C wants to be random
  uint64_t below_;
};

// What a request keeps of its trace.
struct RequestTrace {
  // A part of the request's time that has a span of its own.
  struct Part {
    std::string_view name;  // lives forever
    int64_t begin_ns;
    int64_t end_ns;
  };

  TraceId trace;
  uint64_t span = 0;    // of the request
  uint64_t parent = 0;  // the client's span; 0: it named none
  bool sampled = false;
  bool keeps_state = false;  // the client's tracestate is of this trace, and short enough to pass on
  bool tls = false;          // of the client's connection
  int minor_version = 1;     // of its HTTP/1
  uint32_t attempts = 0;     // that have a span
  std::string state;         // the tracestate, of a sampled request
  std::vector<Part> parts;
  TraceparentText header = {};  // that HeaderOf() wrote

  // Not zero.
  uint64_t AttemptSpan(uint32_t number) const;
  uint64_t PartSpan(uint32_t number) const;
  // The traceparent of what belongs to this span, until the next call.
  std::string_view HeaderOf(uint64_t span_id) {
    header = WriteTraceparent({.trace = trace, .span = span_id, .sampled = sampled});
    return {header.data(), header.size()};
  }
};

// Continues the client's trace, or starts one that `sampler` decides upon.
RequestTrace StartTrace(
    const std::optional<Traceparent>& parent, const TraceSampler& sampler, Random& random);

}  // namespace vllm_router
