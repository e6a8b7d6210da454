#include "proxy/telemetry/traffic_log_line.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/text.h"
#include "base/time_units.h"
#include "hashing/hash.h"

namespace vllm_router {
namespace {

// Domains of the names.
constexpr uint64_t kBlocks = 1;
constexpr uint64_t kSessions = 2;
constexpr uint64_t kSalts = 3;

// For a response whose worker did not report its length and that is no event stream.
constexpr uint64_t kBytesPerToken = 4;

void AppendNumber(uint64_t value, std::string* out) {
  char digits[20];
  out->append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

void AppendHex(uint64_t value, std::string* out) {
  constexpr char kDigits[] = "0123456789abcdef";
  char digits[16];
  for (size_t i = 0; i < 16; ++i) digits[i] = kDigits[value >> (60 - 4 * i) & 15];
  out->append(digits, sizeof digits);
}

// Microseconds as seconds with six decimals.
void AppendSeconds(int64_t micros, std::string* out) {
  AppendNumber(static_cast<uint64_t>(micros / kMicrosPerSecond), out);
  const std::string rest = std::to_string(kMicrosPerSecond + micros % kMicrosPerSecond);
  out->append(".").append(rest, 1);
}

// With --stream-interval 1, the engines' default, each event of a stream is a token.
uint64_t OutputTokens(const RequestInfo& record) {
  if (record.completion_tokens.has_value()) return *record.completion_tokens;
  if (!RouteOf(record.route).generates) return 0;
  return record.stream ? record.events : (record.bytes_out + kBytesPerToken - 1) / kBytesPerToken;
}

}  // namespace

int RecordedStatus(const RequestInfo& record) {
  switch (record.end) {
    case ExchangeEnd::kDone:
    case ExchangeEnd::kNoDone:
      break;
    case ExchangeEnd::kClientGone:
    case ExchangeEnd::kSlowClient:
      return 499;
    case ExchangeEnd::kWorkerError:
    case ExchangeEnd::kWorkerAborted:
      return 500;
    case ExchangeEnd::kWorkerGone:
      return 502;
    case ExchangeEnd::kDrain:
      return 503;
    case ExchangeEnd::kTimeout:
      return 504;
  }
  return record.status;
}

void TrafficLogLine::AppendHead(std::string* out) {
  out->append(R"({"vllm_router_record_log": 1, "block_size": )");
  AppendNumber(block_size_, out);
  out->append(R"(, "salt_id": ")");
  AppendHex(names_.NameOf(kSalts, 0), out);
  out->append("\"}\n");
}

void TrafficLogLine::AppendName(std::string_view member, std::string_view of, std::string* out) {
  out->append(", \"").append(member).append("\": \"");
  AppendHex(names_.NameOf(kSessions, Xxh3(of)), out);
  out->push_back('"');
}

void TrafficLogLine::AppendRelations(std::string_view key, const SessionInfo& session, std::string* out) {
  // The parent's own requests have a key of the same kind.
  if (!session.parent.empty() && key.ends_with(session.session)) {
    key.remove_suffix(session.session.size());
    AppendName("parent", Concat(key, session.parent), out);
  }
  if (!session.agent.empty()) AppendName("agent", Concat(session.session, "\n", session.agent), out);
}

void TrafficLogLine::Append(const RequestInfo& record, std::string* out) {
  const PromptReading& prompt = *record.prompt;
  const uint64_t input_tokens = std::max<uint64_t>(1, record.prompt_tokens.value_or(prompt.tokens));
  const uint64_t room = (input_tokens + block_size_ - 1) / block_size_;
  const size_t count = static_cast<size_t>(std::min<uint64_t>(prompt.blocks.size(), room));
  blocks_.assign(prompt.blocks.begin(), prompt.blocks.begin() + static_cast<ptrdiff_t>(count));
  names_.Rename(kBlocks, blocks_);

  out->append(R"({"arrival_s": )");
  AppendSeconds(record.wall_us, out);
  out->append(R"(, "input_tokens": )");
  AppendNumber(input_tokens, out);
  out->append(R"(, "output_tokens": )");
  AppendNumber(OutputTokens(record), out);
  out->append(R"(, "blocks": ")");
  for (const uint64_t block : blocks_) AppendHex(block, out);
  out->push_back('"');
  if (!prompt.session_key.empty()) {
    AppendName("session", prompt.session_key, out);
    if (record.session != nullptr) AppendRelations(prompt.session_key, *record.session, out);
  }
  out->append(R"(, "status": )");
  AppendNumber(static_cast<uint64_t>(RecordedStatus(record)), out);
  out->append("}\n");
}

}  // namespace vllm_router
