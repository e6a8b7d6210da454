#include "proxy/telemetry/access_log_line.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>

#include "base/limits.h"
#include "base/text.h"
#include "base/time_units.h"

namespace vllm_router {
namespace {

// A line is composed on the stack and appended at once. So the check for room is made once, at compile
// time, and not for each of its hundred pieces.
constexpr size_t kMaxFailedShown = 4;  // attempts
// request_id, client, method, path, model, session, parent, agent, tenant, worker, first_worker, prefill_worker, pair_id
constexpr size_t kMostTexts = 13 + kMaxFailedShown;
constexpr size_t kMostEscapedBytes = 6;  // \u00NN for one byte
constexpr size_t kMostWordBytes = 64;    // of our own words; far more than any has
constexpr size_t kMostFields = 56 + 2 * kMaxFailedShown;
constexpr size_t kMostFieldBytes = 24 + kMostWordBytes;  // its name, and a number or a word
constexpr size_t kMostLineBytes =
    kMostTexts * kMaxLoggedTextBytes * kMostEscapedBytes + kMostFields * kMostFieldBytes;

// The prefix of `text` that fits, not ending inside a character.
std::string_view Shortened(std::string_view text) {
  if (text.size() <= kMaxLoggedTextBytes) return text;
  size_t end = kMaxLoggedTextBytes;
  while (end > kMaxLoggedTextBytes - 4 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

class Composer {
 public:
  std::string_view line() const { return {line_, static_cast<size_t>(at_ - line_)}; }

  void Put(char c) { *at_++ = c; }
  void Put(std::string_view bytes) {
    std::memcpy(at_, bytes.data(), bytes.size());
    at_ += bytes.size();
  }
  void Word(std::string_view word) { Put(word.substr(0, kMostWordBytes)); }
  void Number(uint64_t value) { at_ = std::to_chars(at_, at_ + 20, value).ptr; }

  // Nanoseconds as milliseconds with three decimals. Rounded down, so that parts never add up to more
  // than the whole.
  void Ms(int64_t nanos) {
    const uint64_t micros = static_cast<uint64_t>(std::max<int64_t>(0, nanos)) / 1000;
    Number(micros / 1000);
    const auto rest = static_cast<unsigned>(micros % 1000);
    Put('.');
    Put(static_cast<char>('0' + rest / 100));
    Put(static_cast<char>('0' + rest / 10 % 10));
    Put(static_cast<char>('0' + rest % 10));
  }

  // A client's text as a JSON string.
  void Quoted(std::string_view text) {
    text = Shortened(text);
    if (std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c != '"' && c != '\\'; })) {
      Put('"');
      Put(text);
      Put('"');
    } else {
      Put(JsonQuoted(text));
    }
  }

  // A client's text in a line of text: non-printable or non-ASCII bytes, and those that end a quoted
  // text, as \xNN.
  void Plain(std::string_view text) {
    constexpr char kDigits[] = "0123456789abcdef";
    for (const char c : Shortened(text)) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte > 0x20 && byte < 0x7f && c != '"' && c != '\\') {
        Put(c);
      } else {
        Put("\\x");
        Put(kDigits[byte >> 4]);
        Put(kDigits[byte & 15]);
      }
    }
  }

 private:
  char line_[kMostLineBytes];
  char* at_ = line_;
};

// Writes the members of an object. `name` includes the punctuation around it: ,"name":
class JsonLine {
 public:
  explicit JsonLine(Composer* out) : out_(out) {}

  void Text(std::string_view name, std::string_view text) {
    if (text.empty()) return;
    out_->Put(name);
    out_->Quoted(text);
  }
  // For our own words, which need no escapes.
  void Word(std::string_view name, std::string_view word) {
    if (word.empty()) return;
    out_->Put(name);
    out_->Put('"');
    out_->Word(word);
    out_->Put('"');
  }
  void Number(std::string_view name, uint64_t value) {
    out_->Put(name);
    out_->Number(value);
  }
  void Number(std::string_view name, const std::optional<uint64_t>& value) {
    if (value.has_value()) Number(name, *value);
  }
  void True(std::string_view name, bool value) {
    if (!value) return;
    out_->Put(name);
    out_->Put("true");
  }
  // Left out if one of the two steps was not reached.
  void Ms(std::string_view name, int64_t from_ns, int64_t to_ns) {
    if (from_ns == 0 || to_ns == 0) return;
    out_->Put(name);
    out_->Ms(to_ns - from_ns);
  }

 private:
  Composer* const out_;
};

// The attempts before the one whose response the client got; of a pair, those of both stages.
template <typename Each>
void ForEachFailed(const RequestInfo& record, Each each) {
  if (record.retries == 0) return;
  size_t shown = 0;
  for (const AttemptInfo& attempt : record.attempts_made) {
    if (attempt.error.empty() && attempt.status < 400) continue;
    if (&attempt == &record.attempts_made.back() || shown == kMaxFailedShown) return;
    each(attempt);
    ++shown;
  }
}

void AppendFailed(const RequestInfo& record, Composer* out) {
  bool any = false;
  ForEachFailed(record, [&any, out](const AttemptInfo& attempt) {
    JsonLine line(out);
    out->Put(std::exchange(any, true) ? std::string_view(R"(,{"worker":)") : R"(,"failed":[{"worker":)");
    out->Quoted(attempt.worker->url.url);
    if (attempt.status != 0) line.Number(R"(,"status":)", static_cast<uint64_t>(attempt.status));
    line.Word(R"(,"error":)", attempt.error);
    out->Put('}');
  });
  if (any) out->Put(']');
}

}  // namespace

// "2026-11-21T10:50:37.123", or with a space between date and time.
std::string_view AccessLogLine::Time(int64_t wall_us, char separator) {
  constexpr size_t kToSeconds = 19;
  constexpr size_t kSeparator = 10;
  const int64_t second = wall_us / kMicrosPerSecond;
  if (second != second_) {
    const std::time_t time = static_cast<std::time_t>(second);
    std::tm utc{};
    gmtime_r(&time, &utc);
    std::strftime(time_, sizeof time_, "%Y-%m-%dT%H:%M:%S", &utc);
    second_ = second;
  }
  const auto ms = static_cast<unsigned>(wall_us / 1000 % 1000);
  time_[kSeparator] = separator;
  time_[kToSeconds] = '.';
  time_[kToSeconds + 1] = static_cast<char>('0' + ms / 100);
  time_[kToSeconds + 2] = static_cast<char>('0' + ms / 10 % 10);
  time_[kToSeconds + 3] = static_cast<char>('0' + ms % 10);
  time_[kToSeconds + 4] = '\0';
  return {time_, kToSeconds + 4};
}

void AccessLogLine::AppendJson(const RequestInfo& record, uint64_t number, std::string* out) {
  Composer composer;
  composer.Put(R"({"ts":")");
  composer.Put(Time(record.wall_us, 'T'));
  composer.Put("Z\"");
  JsonLine line(&composer);
  line.Number(R"(,"seq":)", number);
  line.Text(R"(,"request_id":)", record.request_id);
  line.Text(R"(,"client":)", record.client);
  line.Text(R"(,"method":)", record.method);
  line.Text(R"(,"path":)", record.path);
  line.Word(R"(,"route":)", RouteOf(record.route).label);
  line.Text(R"(,"model":)", record.model);
  if (record.session != nullptr) {
    line.Text(R"(,"session":)", record.session->session);
    line.Text(R"(,"parent":)", record.session->parent);
    line.Text(R"(,"agent":)", record.session->agent);
  }
  if (record.identity != nullptr) {
    line.Text(R"(,"tenant":)", record.identity->tenant);
    line.Word(R"(,"class":)", record.identity->priority_class);
    line.Word(R"(,"claimed_class":)", record.identity->claimed_class);
    line.Word(R"(,"dispatch":)", record.identity->dispatch);
    if (record.identity->evictions != 0)
      line.Number(R"(,"evictions":)", uint64_t{record.identity->evictions});
  }
  line.True(R"(,"stream":)", record.stream);
  if (record.status != 0) line.Number(R"(,"status":)", static_cast<uint64_t>(record.status));
  line.Word(R"(,"end":)", ExchangeEndName(record.end));
  line.Word(R"(,"error":)", record.error);
  if (record.ended_early()) line.Word(R"(,"step":)", record.stopped_at);
  line.Word(R"(,"rule":)", record.bad_request_rule);
  line.Word(R"(,"cache":)", record.cache);
  line.Word(R"(,"cache_reason":)", record.cache_reason);
  if (record.cache_ns != 0)
    line.Number(R"(,"cache_us":)", static_cast<uint64_t>(std::max<int64_t>(0, record.cache_ns)) / 1000);
  if (record.decision.has_value()) {
    line.Word(R"(,"policy":)", record.policy.empty() ? std::string_view(policy_) : record.policy);
    line.Word(R"(,"reason":)", ReasonName(record.decision->reason));
    if (record.decision->arm != Arm::kNone) line.Word(R"(,"arm":)", ArmName(record.decision->arm));
  }
  if (record.pd != nullptr) {
    const PdInfo& pd = *record.pd;
    line.Word(R"(,"pd":)", pd.kind);
    line.Word(R"(,"pd_local":)", pd.local);
    if (pd.prefill != nullptr) line.Text(R"(,"prefill_worker":)", pd.prefill->url.url);
    if (pd.prefill_status != 0)
      line.Number(R"(,"prefill_status":)", static_cast<uint64_t>(pd.prefill_status));
    if (pd.prefill_ns != 0)
      line.Ms(R"(,"prefill_ms":)", pd.prefill_end_ns - pd.prefill_ns, pd.prefill_end_ns);
    if (pd.handoff_ns != 0)
      line.Ms(R"(,"handoff_ms":)", pd.prefill_end_ns, pd.prefill_end_ns + pd.handoff_ns);
    if (pd.uncached_tokens != 0) {
      line.Number(R"(,"pd_uncached_tokens":)", pd.uncached_tokens);
      line.Number(R"(,"pd_saved_tokens":)", pd.saved_tokens);
    }
    if (!pd.pair_id.empty()) line.Text(R"(,"pair_id":)", pd.pair_id);
    line.Word(R"(,"claim":)", pd.claim);
  }
  if (record.worker != nullptr) {
    line.Text(R"(,"worker":)", record.worker->url.url);
    if (record.worker->url.rank.has_value())
      line.Number(R"(,"dp_rank":)", uint64_t{*record.worker->url.rank});
    line.Number(R"(,"attempts":)", uint64_t{record.attempts});
    if (record.retries != 0) line.Number(R"(,"retries":)", uint64_t{record.retries});
    AppendFailed(record, &composer);
    line.True(R"(,"reused":)", record.reused);
    line.True(R"(,"stale_retry":)", record.stale_retry);
  }
  if (record.continued != nullptr) {
    const ContinuedInfo& continued = *record.continued;
    if (continued.times != 0) line.Number(R"(,"continued":)", uint64_t{continued.times});
    line.Word(R"(,"continue_why":)", continued.why);
    line.Word(R"(,"continue_method":)", continued.method);
    if (continued.tokens != 0) line.Number(R"(,"continue_tokens":)", continued.tokens);
    line.Word(R"(,"continue_end":)", continued.end);
    if (continued.gap_ns != 0)
      line.Ms(R"(,"continue_gap_ms":)", record.head_ns, record.head_ns + continued.gap_ns);
    line.Text(R"(,"first_worker":)", continued.first_worker->url.url);
  }
  line.Ms(R"(,"body_ms":)", record.head_ns, record.body_ns);
  if (record.queue_ns != 0) line.Ms(R"(,"queue_ms":)", record.head_ns, record.head_ns + record.queue_ns);
  if (record.session != nullptr && record.session->program_wait_ns != 0) {
    line.Ms(R"(,"program_wait_ms":)", record.head_ns, record.head_ns + record.session->program_wait_ns);
  }
  if (const auto nanos = record.decision_ns())
    line.Number(R"(,"decision_us":)", static_cast<uint64_t>(*nanos) / 1000);
  line.Ms(R"(,"connect_ms":)", record.chosen_ns, record.connected_ns);
  line.Ms(R"(,"head_ms":)", record.sent_ns, record.responded_ns);
  line.Ms(R"(,"ttft_ms":)", record.head_ns, record.first_body_ns);
  line.Ms(R"(,"total_ms":)", record.head_ns, record.end_ns);
  if (record.keepalives != 0) line.Number(R"(,"keepalives":)", uint64_t{record.keepalives});
  line.Number(R"(,"bytes_in":)", record.bytes_in);
  line.Number(R"(,"bytes_out":)", record.bytes_out);
  line.Number(R"(,"prompt_tokens":)", record.prompt_tokens);
  line.Number(R"(,"completion_tokens":)", record.completion_tokens);
  line.Number(R"(,"cached_tokens":)", record.cached_tokens);
  if (record.decision.has_value() && record.decision->unit != MatchUnit::kNone) {
    line.Number(R"(,"matched":)", record.decision->matched);
    line.Number(R"(,"match_total":)", record.decision->total);
  }
  composer.Put("}\n");
  out->append(composer.line());
}

void AccessLogLine::AppendText(const RequestInfo& record, uint64_t number, std::string* out) {
  Composer line;
  const auto word = [&line](std::string_view name, std::string_view value) {
    if (value.empty()) return;
    line.Put(name);
    line.Word(value);
  };
  const auto plain = [&line](std::string_view name, std::string_view value) {
    if (value.empty()) return;
    line.Put(name);
    line.Plain(value);
  };
  const auto ms = [&line](std::string_view name, int64_t from_ns, int64_t to_ns) {
    if (from_ns == 0 || to_ns == 0) return;
    line.Put(name);
    line.Ms(to_ns - from_ns);
    line.Put("ms");
  };
  line.Put(Time(record.wall_us, ' '));
  line.Put(' ');
  line.Plain(record.client.empty() ? std::string_view("-") : record.client);
  line.Put(" \"");
  if (record.method.empty()) {
    line.Put('-');
  } else {
    line.Plain(record.method);
    line.Put(' ');
    line.Plain(record.path);
  }
  line.Put("\" ");
  if (record.status == 0) {
    line.Put('-');
  } else {
    line.Number(static_cast<uint64_t>(record.status));
  }
  line.Put(' ');
  line.Word(ExchangeEndName(record.end));
  word(" error=", record.error);
  word(" rule=", record.bad_request_rule);
  word(" cache=", record.cache);
  if (record.identity != nullptr) {
    plain(" tenant=", record.identity->tenant);
    word(" class=", record.identity->priority_class);
    word(" dispatch=", record.identity->dispatch);
    if (record.identity->evictions != 0) {
      line.Put(" evictions=");
      line.Number(uint64_t{record.identity->evictions});
    }
  }
  if (record.pd != nullptr && record.pd->prefill != nullptr) plain(" prefill=", record.pd->prefill->url.url);
  if (record.worker != nullptr) plain(" worker=", record.worker->url.url);
  if (record.decision.has_value()) word(" reason=", ReasonName(record.decision->reason));
  if (record.continued != nullptr) word(" continue_end=", record.continued->end);
  if (record.retries != 0) {
    line.Put(" retries=");
    line.Number(record.retries);
  }
  ForEachFailed(record, [&line, first = true](const AttemptInfo& attempt) mutable {
    line.Put(std::exchange(first, false) ? " failed=" : ",");
    line.Plain(attempt.worker->url.url);
    line.Put(':');
    if (attempt.status == 0) {
      line.Word(attempt.error);
    } else {
      line.Number(static_cast<uint64_t>(attempt.status));
    }
  });
  ms(" ttft=", record.head_ns, record.first_body_ns);
  ms(" total=", record.head_ns, record.end_ns);
  line.Put(" in=");
  line.Number(record.bytes_in);
  line.Put(" out=");
  line.Number(record.bytes_out);
  line.Put(" seq=");
  line.Number(number);
  plain(" id=", record.request_id);
  line.Put('\n');
  out->append(line.line());
}

}  // namespace vllm_router
