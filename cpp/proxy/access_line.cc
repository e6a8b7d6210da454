#include "proxy/access_line.h"

#include <algorithm>
#include <charconv>
#include <ctime>

#include "base/limits.h"
#include "base/text.h"

namespace vllm_router {
namespace {

// The beginning of `text`, not ending inside a character.
std::string_view Shortened(std::string_view text) {
  if (text.size() <= kMaxLoggedTextBytes) return text;
  size_t end = kMaxLoggedTextBytes;
  while (end > kMaxLoggedTextBytes - 4 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

void AppendNumber(uint64_t value, std::string* out) {
  char digits[20];
  const char* end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  out->append(digits, static_cast<size_t>(end - digits));
}

// Nanoseconds as milliseconds with three decimals. Rounded down, so that parts never add up to more than the whole.
void AppendMs(int64_t nanos, std::string* out) {
  const uint64_t micros = static_cast<uint64_t>(std::max<int64_t>(0, nanos)) / 1000;
  AppendNumber(micros / 1000, out);
  const auto rest = static_cast<unsigned>(micros % 1000);
  const char decimals[] = {'.', static_cast<char>('0' + rest / 100), static_cast<char>('0' + rest / 10 % 10),
                           static_cast<char>('0' + rest % 10)};
  out->append(decimals, sizeof decimals);
}

// What is not printable ASCII, and what would be taken for the end of a quoted text, as \xNN.
void AppendPlain(std::string_view text, std::string* out) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (const char c : Shortened(text)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte > 0x20 && byte < 0x7f && c != '"' && c != '\\') {
      out->push_back(c);
    } else {
      const char escaped[] = {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
      out->append(escaped, sizeof escaped);
    }
  }
}

// Writes the members of an object. Names are ours and need no escapes.
class JsonLine {
 public:
  explicit JsonLine(std::string* out) : out_(out) { out_->push_back('{'); }

  void Text(std::string_view name, std::string_view text) {
    Name(name);
    AppendJsonQuoted(Shortened(text), out_);
  }
  void TextUnlessEmpty(std::string_view name, std::string_view text) {
    if (!text.empty()) Text(name, text);
  }
  // For our own words, which need no escapes.
  void Word(std::string_view name, std::string_view word) {
    Name(name);
    out_->push_back('"');
    out_->append(word);
    out_->push_back('"');
  }
  void Number(std::string_view name, uint64_t value) {
    Name(name);
    AppendNumber(value, out_);
  }
  void True(std::string_view name, bool value) {
    if (!value) return;
    Name(name);
    out_->append("true");
  }
  // Left out when one of the two steps was not reached.
  void Ms(std::string_view name, int64_t from_ns, int64_t to_ns) {
    if (from_ns == 0 || to_ns == 0) return;
    Name(name);
    AppendMs(to_ns - from_ns, out_);
  }
  void End() { out_->append("}\n"); }

 private:
  void Name(std::string_view name) {
    if (!first_) out_->push_back(',');
    first_ = false;
    out_->push_back('"');
    out_->append(name);
    out_->append("\":");
  }

  std::string* const out_;
  bool first_ = true;
};

}  // namespace

// "2026-11-21T10:50:37.123", or with a blank between day and time.
std::string_view AccessLine::Time(int64_t wall_ms, char separator) {
  constexpr size_t kToSeconds = 19;
  constexpr size_t kSeparator = 10;
  const int64_t second = wall_ms / 1000;
  if (second != second_) {
    const std::time_t time = static_cast<std::time_t>(second);
    std::tm utc{};
    gmtime_r(&time, &utc);
    std::strftime(time_, sizeof time_, "%Y-%m-%dT%H:%M:%S", &utc);
    second_ = second;
  }
  const auto ms = static_cast<unsigned>(wall_ms % 1000);
  time_[kSeparator] = separator;
  time_[kToSeconds] = '.';
  time_[kToSeconds + 1] = static_cast<char>('0' + ms / 100);
  time_[kToSeconds + 2] = static_cast<char>('0' + ms / 10 % 10);
  time_[kToSeconds + 3] = static_cast<char>('0' + ms % 10);
  time_[kToSeconds + 4] = '\0';
  return {time_, kToSeconds + 4};
}

void AccessLine::AppendJson(const ExchangeRecord& record, std::string* out) {
  JsonLine line(out);
  char time[32];
  const std::string_view until_ms = Time(record.wall_ms, 'T');
  time[until_ms.copy(time, sizeof time - 1)] = 'Z';
  line.Word("ts", {time, until_ms.size() + 1});
  line.TextUnlessEmpty("request_id", record.request_id);
  line.Text("client", record.client);
  line.TextUnlessEmpty("method", record.method);
  line.TextUnlessEmpty("path", record.path);
  line.Word("route", RouteOf(record.route).label);
  line.TextUnlessEmpty("model", record.model);
  line.True("stream", record.stream);
  if (record.status != 0) line.Number("status", static_cast<uint64_t>(record.status));
  line.Word("end", ExchangeEndName(record.end));
  if (!record.error.empty()) line.Word("error", record.error);
  if (!record.bad_request_rule.empty()) line.Word("rule", record.bad_request_rule);
  if (record.decision.has_value()) {
    line.Word("policy", policy_);
    line.Word("reason", ReasonName(record.decision->reason));
  }
  if (record.worker != nullptr) {
    line.Text("worker", record.worker->url.url);
    if (record.worker->url.rank.has_value()) line.Number("dp_rank", *record.worker->url.rank);
    line.Number("attempts", record.attempts);
    line.True("reused", record.reused);
    line.True("stale_retry", record.stale_retry);
  }
  line.Ms("body_ms", record.head_ns, record.body_ns);
  if (record.chosen_ns != 0) {
    line.Number("decision_us", static_cast<uint64_t>(std::max<int64_t>(0, record.chosen_ns - record.body_ns)) / 1000);
  }
  line.Ms("connect_ms", record.chosen_ns, record.connected_ns);
  line.Ms("head_ms", record.sent_ns, record.answered_ns);
  line.Ms("ttft_ms", record.head_ns, record.first_body_ns);
  line.Ms("total_ms", record.head_ns, record.end_ns);
  line.Number("bytes_in", record.bytes_in);
  line.Number("bytes_out", record.bytes_out);
  if (record.prompt_tokens.has_value()) line.Number("prompt_tokens", *record.prompt_tokens);
  if (record.completion_tokens.has_value()) line.Number("completion_tokens", *record.completion_tokens);
  if (record.cached_tokens.has_value()) line.Number("cached_tokens", *record.cached_tokens);
  if (record.decision.has_value() && record.decision->unit != MatchUnit::kNone) {
    line.Number("matched", record.decision->matched);
    line.Number("match_total", record.decision->total);
  }
  line.End();
}

void AccessLine::AppendText(const ExchangeRecord& record, std::string* out) {
  const auto ms = [out](std::string_view name, int64_t from_ns, int64_t to_ns) {
    if (from_ns == 0 || to_ns == 0) return;
    out->append(name);
    AppendMs(to_ns - from_ns, out);
    out->append("ms");
  };
  out->append(Time(record.wall_ms, ' '));
  out->push_back(' ');
  AppendPlain(record.client.empty() ? std::string_view("-") : record.client, out);
  if (record.method.empty()) {
    out->append(" \"-\" ");
  } else {
    out->append(" \"");
    AppendPlain(record.method, out);
    out->push_back(' ');
    AppendPlain(record.path, out);
    out->append("\" ");
  }
  if (record.status == 0) {
    out->push_back('-');
  } else {
    AppendNumber(static_cast<uint64_t>(record.status), out);
  }
  out->push_back(' ');
  out->append(ExchangeEndName(record.end));
  if (!record.error.empty()) out->append(" error=").append(record.error);
  if (!record.bad_request_rule.empty()) out->append(" rule=").append(record.bad_request_rule);
  if (record.worker != nullptr) out->append(" worker=").append(record.worker->url.url);
  if (record.decision.has_value()) out->append(" reason=").append(ReasonName(record.decision->reason));
  ms(" ttft=", record.head_ns, record.first_body_ns);
  ms(" total=", record.head_ns, record.end_ns);
  out->append(" in=");
  AppendNumber(record.bytes_in, out);
  out->append(" out=");
  AppendNumber(record.bytes_out, out);
  if (!record.request_id.empty()) {
    out->append(" id=");
    AppendPlain(record.request_id, out);
  }
  out->push_back('\n');
}

}  // namespace vllm_router
