#include "http/head_parser.h"

#include <algorithm>
#include <cstring>

#include "base/limits.h"
#include "base/text.h"
#include "http/char_class.h"

namespace vllm_router {
namespace {

// Labels of the metric bad_requests_total{reason}; docs/explanation/http_parsing.md lists them.
constexpr std::string_view kSyntax = "syntax";
constexpr std::string_view kLineEnding = "line_ending";
constexpr std::string_view kTransferEncoding = "transfer_encoding";  // R1
constexpr std::string_view kContentLength = "content_length";        // R2
constexpr std::string_view kFolding = "folding";                     // R3
constexpr std::string_view kHost = "host";                           // R4
constexpr std::string_view kTarget = "target";                       // R5
constexpr std::string_view kStatus = "status";                       // R6
constexpr std::string_view kTooLarge = "too_large";                  // R7
constexpr std::string_view kConnection = "connection";               // R8
constexpr std::string_view kVersion = "version";
constexpr std::string_view kMethod = "method";
constexpr std::string_view kExpect = "expect";
constexpr std::string_view kTls = "tls";

// Registered methods have at most 17 letters.
constexpr size_t kMaxMethodBytes = 32;
constexpr size_t kMaxRequestLineBytes =
    kMaxMethodBytes + 1 + kMaxTargetBytes + 1 + sizeof("HTTP/1.1\r\n") - 1;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Calls visit(element) for each element of a comma-separated list, blanks trimmed, until it returns false.
template <typename Visit>
bool ForEachElement(std::string_view list, Visit visit) {
  for (;;) {
    const size_t comma = list.find(',');
    if (!visit(Trim(list.substr(0, comma)))) return false;
    if (comma == std::string_view::npos) return true;
    list.remove_prefix(comma + 1);
  }
}

// What both kinds of heads collect from their fields.
struct FieldChecks {
  HeadError error;  // set by the first failure, which ends the parsing
  std::string_view transfer_encoding;
  std::string_view content_length;
  uint32_t transfer_encodings = 0;
  uint32_t content_lengths = 0;
  uint32_t connection_tokens = 0;
  bool lengths_differ = false;
  bool close = false;
  bool keep_alive = false;

  void Clear() {
    transfer_encodings = content_lengths = connection_tokens = 0;
    lengths_differ = close = keep_alive = false;
  }

  bool Fail(int status, std::string_view rule, std::string_view message) {
    error = {status, rule, message};
    return false;
  }

  bool OnField(std::string_view name, std::string_view value, std::vector<std::string_view>* nominated) {
    switch (name.size()) {
      case 10:
        return !IsName(name, "connection") || Connection(value, nominated);
      case 14:
        if (IsName(name, "content-length")) {
          lengths_differ |= content_lengths > 0 && value != content_length;
          ++content_lengths;
          content_length = value;
        }
        return true;
      case 17:
        if (IsName(name, "transfer-encoding")) {
          ++transfer_encodings;
          transfer_encoding = value;
        }
        return true;
      default:
        return true;
    }
  }

  // R8.
  bool Connection(std::string_view value, std::vector<std::string_view>* nominated) {
    return ForEachElement(value, [&](std::string_view token) {
      if (token.empty()) return true;
      if (!All(token, kTokenChar)) return Fail(400, kConnection, "Connection is not a list of tokens.");
      if (++connection_tokens > kMaxConnectionTokens) {
        return Fail(400, kConnection, "Connection names more than 16 tokens.");
      }
      if (EqualsIgnoreCase(token, "close")) {
        close = true;
      } else if (EqualsIgnoreCase(token, "keep-alive")) {
        keep_alive = true;
      } else if (
          EqualsIgnoreCase(token, "host") || EqualsIgnoreCase(token, "content-length") ||
          EqualsIgnoreCase(token, "transfer-encoding") || EqualsIgnoreCase(token, "authorization")) {
        return Fail(400, kConnection, "Connection names a field that must reach the other end.");
      } else {
        nominated->push_back(token);
      }
      return true;
    });
  }

  // R1 and R2, when all fields are known: how the body is delimited, if a field tells it. A response may
  // repeat its length; the head that we write has one.
  bool Framing(MessageKind kind, int minor_version, BodyFraming* framing, uint64_t* length) {
    *length = 0;
    if (transfer_encodings > 0 && content_lengths > 0) {
      return Fail(400, kTransferEncoding, "Both Transfer-Encoding and Content-Length are given.");
    }
    if (transfer_encodings > 0) {
      if (transfer_encodings > 1)
        return Fail(400, kTransferEncoding, "Transfer-Encoding is given more than once.");
      if (minor_version == 0) return Fail(400, kTransferEncoding, "HTTP/1.0 has no Transfer-Encoding.");
      if (!Chunked(transfer_encoding)) return false;
      *framing = BodyFraming::kChunked;
    } else if (content_lengths > 0) {
      if (content_lengths > 1 && (kind == MessageKind::kRequest || lengths_differ))
        return Fail(400, kContentLength, "Content-Length is given more than once.");
      const std::optional<uint64_t> value = ParseDecimal(content_length);
      if (!value || (content_length.size() > 15 && *value <= kMaxContentLength)) {
        return Fail(400, kContentLength, "Content-Length is not a number of 1 to 15 digits.");
      }
      if (*value > kMaxContentLength)
        return Fail(413, kContentLength, "Content-Length has more than 15 digits.");
      *framing = BodyFraming::kLength;
      *length = *value;
    }
    return true;
  }

  // Only "chunked" alone is supported. A list of valid tokens with `chunked` in a legal place names
  // codings that we do not support (501); anything else is malformed.
  bool Chunked(std::string_view value) {
    if (EqualsIgnoreCase(value, "chunked")) return true;
    bool seen_chunked = false;
    const bool clean = ForEachElement(value, [&](std::string_view coding) {
      if (coding.empty() || !All(coding, kTokenChar) || seen_chunked) return false;
      seen_chunked = EqualsIgnoreCase(coding, "chunked");
      return true;
    });
    if (!clean) return Fail(400, kTransferEncoding, "Transfer-Encoding is malformed.");
    return Fail(501, kTransferEncoding, "Only the transfer coding chunked is supported.");
  }
};

// True if `Upgrade` names WebSocket and nothing else, and `Connection` names `Upgrade`. The router never
// switches to other protocols, since it could not know how a worker reads the bytes behind the head.
bool IsWebSocket(
    int upgrades, std::string_view upgrade, const std::vector<std::string_view>& connection_tokens) {
  return upgrades == 1 && EqualsIgnoreCase(upgrade, "websocket") &&
         std::any_of(connection_tokens.begin(), connection_tokens.end(), [](std::string_view token) {
           return EqualsIgnoreCase(token, "upgrade");
         });
}

// The common part of both parsers: it parses each line as soon as the line is complete, so that the
// result depends on the bytes alone and not on how they were split. `Impl` has the rules of one kind of
// message:
//   CheckStart(text)        a prefix of the first line, or all of it
//   CheckFirstLine(line)    the whole of it
//   OnField(name, value)    each field
//   Finish()                at the end
// They return false after filling in `checks_`.
template <typename Impl, typename Head>
class LineParser {
 public:
  void Reset() {
    state_ = ParseState::kNeedMore;
    fresh_ = true;
  }

  ParseState Feed(std::string_view buffer) {
    if (state_ != ParseState::kNeedMore) return state_;
    // All views of what was read so far point into the old buffer. Buffers grow in few large steps, so
    // parsing again costs less than keeping offsets.
    if (fresh_ || buffer.data() != buffer_) Restart(buffer.data());
    state_ = Read(buffer);
    if (state_ == ParseState::kBad && Impl::kEveryErrorIs != 0) checks_.error.status = Impl::kEveryErrorIs;
    return state_;
  }

  const Head& head() const { return head_; }
  const HeadError& error() const { return checks_.error; }

 protected:
  FieldChecks checks_;
  Head head_;

 private:
  Impl& self() { return static_cast<Impl&>(*this); }

  void Restart(const char* buffer) {
    fresh_ = false;
    buffer_ = buffer;
    line_ = searched_ = 0;
    empty_lines_ = 0;
    first_line_done_ = false;
    checks_.Clear();
    head_.fields.clear();
    head_.connection_tokens.clear();
  }

  ParseState Bad(int status, std::string_view rule, std::string_view message) {
    checks_.Fail(status, rule, message);
    return ParseState::kBad;
  }

  ParseState Read(std::string_view buffer) {
    const char* data = buffer.data();
    const size_t limit = std::min(buffer.size(), kMaxHeadBytes);
    if (!first_line_done_) {
      for (; empty_lines_ < Impl::kEmptyLinesAllowed && line_ < limit && data[line_] == '\r';
           ++empty_lines_) {
        if (line_ + 1 == limit) return ParseState::kNeedMore;
        if (data[line_ + 1] != '\n')
          return Bad(400, kLineEnding, "The head starts with a lone carriage return.");
        line_ += 2;
        searched_ = line_;
      }
      if (line_ == limit) return ParseState::kNeedMore;
      if (!self().CheckStart(buffer.substr(line_, limit - line_))) return ParseState::kBad;
    }
    for (;;) {
      const void* found = std::memchr(data + searched_, '\n', limit - searched_);
      const size_t end =
          found == nullptr ? limit : static_cast<size_t>(static_cast<const char*>(found) - data);
      searched_ = end;
      if (!first_line_done_ && end - line_ >= Impl::kFirstLineLimit) {
        // It is invalid; its check finds the error.
        self().CheckFirstLine(buffer.substr(line_, Impl::kFirstLineLimit));
        return ParseState::kBad;
      }
      if (found == nullptr) {
        if (buffer.size() < kMaxHeadBytes) return ParseState::kNeedMore;
        return Bad(431, kTooLarge, "The head is larger than 64 KiB.");
      }
      if (end == line_ || data[end - 1] != '\r') {
        return Bad(400, kLineEnding, "A line of the head ends without a carriage return.");
      }
      const std::string_view line(data + line_, end - 1 - line_);
      line_ = searched_ = end + 1;
      if (!first_line_done_) {
        if (!self().CheckFirstLine(line)) return ParseState::kBad;
        first_line_done_ = true;
      } else if (line.empty()) {
        head_.size = line_;
        return self().Finish() ? ParseState::kDone : ParseState::kBad;
      } else if (!AddField(line)) {
        return ParseState::kBad;
      }
    }
  }

  // R3 and R7.
  bool AddField(std::string_view line) {
    if (line[0] == ' ' || line[0] == '\t') {
      return checks_.Fail(400, kFolding, "A header line starts with a blank (line folding is not accepted).");
    }
    size_t size = 0;
    while (size < line.size() && Is(line[size], kTokenChar)) ++size;
    if (size == 0 || size == line.size() || line[size] != ':') {
      return checks_.Fail(
          400, kSyntax, "A header line is not a name, directly followed by a colon, and a value.");
    }
    if (size > kMaxFieldNameBytes)
      return checks_.Fail(431, kTooLarge, "A field name is longer than 256 bytes.");
    const std::string_view value = Trim(line.substr(size + 1));
    if (!AllValueChars(value)) {
      const bool lone_cr = value.find('\r') != std::string_view::npos;
      return checks_.Fail(400, lone_cr ? kLineEnding : kSyntax, "A header value holds a control byte.");
    }
    if (head_.fields.size() == kMaxHeadFields) {
      return checks_.Fail(431, kTooLarge, "The head has more than 100 fields.");
    }
    HeaderField& field = head_.fields.emplace_back();
    field.name = line.substr(0, size);
    field.value = value;
    return self().OnField(field.name, field.value);
  }

  ParseState state_ = ParseState::kNeedMore;
  bool fresh_ = true;  // nothing was read of this message
  const char* buffer_ = nullptr;
  size_t line_ = 0;      // start of the first line that is not complete yet
  size_t searched_ = 0;  // there is no LF in [line_, searched_)
  int empty_lines_ = 0;  // skipped at the start
  bool first_line_done_ = false;
};

}  // namespace

class RequestHeadParser::Impl : public LineParser<RequestHeadParser::Impl, RequestHead> {
 public:
  static constexpr int kEmptyLinesAllowed = kMaxLeadingEmptyLines;
  static constexpr size_t kFirstLineLimit = kMaxRequestLineBytes;
  static constexpr int kEveryErrorIs = 0;

  void ReplacePath(std::string_view path) { head_.path = path; }
  void ReplaceQueryBy(std::string_view target) {
    head_.target = target;
    head_.query = target.substr(target.find('?') + 1);
  }

  bool CheckStart(std::string_view text) {
    size_t size = 0;
    while (size < text.size() && size <= kMaxMethodBytes && Is(text[size], kTokenChar)) ++size;
    if (size > kMaxMethodBytes) return checks_.Fail(501, kMethod, "The method is longer than 32 bytes.");
    if (size == text.size()) return true;
    if (size > 0 && text[size] == ' ') return true;
    // A TLS record of type handshake: the client speaks https to this port and would not understand a
    // response.
    if (text[0] == '\x16') return checks_.Fail(0, kTls, "TLS was spoken on a plain port.");
    return checks_.Fail(400, kSyntax, "The request does not start with a method and one space.");
  }

  bool CheckFirstLine(std::string_view line) {
    const size_t space = line.find(' ');
    if (space == std::string_view::npos) return checks_.Fail(400, kSyntax, "The request line has no target.");
    const std::string_view rest = line.substr(space + 1);
    const size_t second = rest.find(' ');
    const std::string_view target = rest.substr(0, second);
    if (target.size() > kMaxTargetBytes)
      return checks_.Fail(414, kTooLarge, "The target is longer than 8 KiB.");
    if (target.empty())
      return checks_.Fail(400, kSyntax, "The request line has no target, or two spaces before it.");
    if (!All(target, kTargetChar)) {
      return checks_.Fail(400, kTarget, "The target holds a byte that must be percent-encoded.");
    }
    if (second == std::string_view::npos)
      return checks_.Fail(400, kVersion, "The request line has no HTTP version.");
    const std::string_view version = rest.substr(second + 1);
    if (version.size() != 8 || version.substr(0, 5) != "HTTP/" || !IsDigit(version[5]) || version[6] != '.' ||
        !IsDigit(version[7])) {
      return checks_.Fail(400, kVersion, "The request line does not end with an HTTP version.");
    }
    if (version[5] != '1' || version[7] > '1') {
      return checks_.Fail(505, kVersion, "Only HTTP/1.1 and HTTP/1.0 are supported.");
    }
    head_.minor_version = version[7] - '0';
    head_.framing = BodyFraming::kNone;
    head_.expects_continue = unknown_expectation_ = false;
    head_.via.clear();
    head_.websocket = false;
    upgrades_ = 0;
    upgrade_ = {};
    hosts_ = 0;
    host_ = {};
    head_.method = line.substr(0, space);
    if (head_.method == "CONNECT")
      return checks_.Fail(405, kMethod, "This is not a forward proxy; CONNECT is not supported.");
    return SetTarget(target);
  }

  bool OnField(std::string_view name, std::string_view value) {
    switch (name.size()) {
      case 3:
        if (IsName(name, "via")) head_.via.push_back(value);
        return true;
      case 4:
        if (IsName(name, "host")) {
          ++hosts_;
          host_ = value;
        }
        return true;
      case 7:
        if (IsName(name, "upgrade")) {
          ++upgrades_;
          upgrade_ = value;
        }
        return true;
      case 6:
        if (IsName(name, "expect")) {
          const bool known = EqualsIgnoreCase(value, "100-continue");
          (known ? head_.expects_continue : unknown_expectation_) = true;
        }
        return true;
      default:
        return checks_.OnField(name, value, &head_.connection_tokens);
    }
  }

  bool Finish() {
    if (!checks_.Framing(MessageKind::kRequest, head_.minor_version, &head_.framing, &head_.content_length)) {
      return false;
    }
    if (hosts_ > 1) return checks_.Fail(400, kHost, "Host is given more than once.");
    if (hosts_ == 0 && head_.minor_version == 1)
      return checks_.Fail(400, kHost, "HTTP/1.1 needs the field Host.");
    if (!All(host_, kAuthorityChar))
      return checks_.Fail(400, kHost, "Host is not a host name with an optional port.");
    if (head_.authority.empty()) head_.authority = host_;
    // HTTP/1.0 has no expectations.
    if (head_.minor_version == 0) head_.expects_continue = unknown_expectation_ = false;
    if (unknown_expectation_)
      return checks_.Fail(417, kExpect, "Only the expectation 100-continue is supported.");
    head_.keep_alive = !checks_.close && (head_.minor_version == 1 || checks_.keep_alive);
    head_.websocket = upgrades_ != 0 && head_.minor_version == 1 && head_.method == "GET" &&
                      head_.framing == BodyFraming::kNone &&
                      IsWebSocket(upgrades_, upgrade_, head_.connection_tokens);
    return true;
  }

 private:
  // R5.
  bool SetTarget(std::string_view target) {
    head_.authority = {};
    std::string_view slash;  // the path of a URL without one
    if (target[0] == '/' || (target == "*" && head_.method == "OPTIONS")) {
      head_.target = target;
    } else {
      size_t scheme = 0;
      if (EqualsIgnoreCase(target.substr(0, 7), "http://")) scheme = 7;
      if (EqualsIgnoreCase(target.substr(0, 8), "https://")) scheme = 8;
      if (scheme == 0) return checks_.Fail(400, kTarget, "The target is neither a path nor an http URL.");
      slash = target.substr(scheme - 1, 1);
      target.remove_prefix(scheme);
      const size_t end = std::min(target.find_first_of("/?"), target.size());
      head_.authority = target.substr(0, end);
      if (head_.authority.empty() || !All(head_.authority, kAuthorityChar)) {
        return checks_.Fail(400, kTarget, "The URL in the request line has no valid host.");
      }
      head_.target = end == target.size() ? slash : target.substr(end);
    }
    const size_t question = head_.target.find('?');
    head_.path = question == 0 ? slash : head_.target.substr(0, question);
    head_.query = question == std::string_view::npos ? std::string_view() : head_.target.substr(question + 1);
    return true;
  }

  int hosts_ = 0;
  int upgrades_ = 0;
  std::string_view host_;
  std::string_view upgrade_;
  bool unknown_expectation_ = false;
};

class ResponseHeadParser::Impl : public LineParser<ResponseHeadParser::Impl, ResponseHead> {
 public:
  static constexpr int kEmptyLinesAllowed = 0;
  static constexpr size_t kFirstLineLimit = kMaxHeadBytes;
  static constexpr int kEveryErrorIs = 502;  // whatever a worker does wrong, the client gets a bad gateway

  void set_request(bool to_head, bool to_upgrade) {
    to_head_ = to_head;
    to_upgrade_ = to_upgrade;
  }

  bool CheckStart(std::string_view text) {
    constexpr std::string_view kStart = "HTTP/1.";
    const size_t size = std::min(text.size(), kStart.size());
    if (text.substr(0, size) == kStart.substr(0, size)) return true;
    return checks_.Fail(502, kSyntax, "The worker's response does not start with HTTP/1.");
  }

  // R6. A line may end after the status: the reason and the blank before it are optional.
  bool CheckFirstLine(std::string_view line) {
    if (line.size() < 12 || (line[7] != '0' && line[7] != '1') || line[8] != ' ' || !IsDigit(line[9]) ||
        !IsDigit(line[10]) || !IsDigit(line[11]) || (line.size() > 12 && line[12] != ' ')) {
      return checks_.Fail(502, kStatus, "The worker's status line is malformed.");
    }
    const int status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
    if (status < 100 || status > 599)
      return checks_.Fail(502, kStatus, "The worker's status is not in 100..599.");
    if (status == 101 && !to_upgrade_)
      return checks_.Fail(502, kStatus, "The worker switches protocols, which the request did not ask for.");
    head_.minor_version = line[7] - '0';
    head_.framing = BodyFraming::kUntilClose;
    head_.event_stream = false;
    upgrades_ = 0;
    upgrade_ = {};
    head_.status = status;
    head_.reason = line.substr(std::min<size_t>(line.size(), 13));
    if (!AllValueChars(head_.reason))
      return checks_.Fail(502, kStatus, "The worker's reason phrase holds a control byte.");
    return true;
  }

  bool OnField(std::string_view name, std::string_view value) {
    if (name.size() == 7 && IsName(name, "upgrade")) {
      ++upgrades_;
      upgrade_ = value;
      return true;
    }
    if (name.size() == 12) {
      if (IsName(name, "content-type")) {
        head_.event_stream = EqualsIgnoreCase(Trim(value.substr(0, value.find(';'))), "text/event-stream");
      }
      return true;
    }
    return checks_.OnField(name, value, &head_.connection_tokens);
  }

  bool Finish() {
    if (!checks_.Framing(
            MessageKind::kResponse, head_.minor_version, &head_.framing, &head_.content_length)) {
      return false;
    }
    if (head_.status == 101 &&
        (head_.minor_version == 0 || !IsWebSocket(upgrades_, upgrade_, head_.connection_tokens))) {
      return checks_.Fail(
          502, kStatus, "The worker switches to another protocol than the request asked for.");
    }
    if (to_head_ || head_.status < 200 || head_.status == 204 || head_.status == 304) {
      head_.framing = BodyFraming::kNone;
      head_.content_length = 0;
    }
    head_.keep_alive = !checks_.close && (head_.minor_version == 1 || checks_.keep_alive) &&
                       head_.framing != BodyFraming::kUntilClose;
    return true;
  }

 private:
  bool to_head_ = false;
  bool to_upgrade_ = false;
  int upgrades_ = 0;
  std::string_view upgrade_;
};

RequestHeadParser::RequestHeadParser() : impl_(std::make_unique<Impl>()) {}
RequestHeadParser::~RequestHeadParser() = default;
RequestHeadParser::RequestHeadParser(RequestHeadParser&&) noexcept = default;
RequestHeadParser& RequestHeadParser::operator=(RequestHeadParser&&) noexcept = default;
void RequestHeadParser::Reset() { impl_->Reset(); }
ParseState RequestHeadParser::Feed(std::string_view buffer) { return impl_->Feed(buffer); }
const RequestHead& RequestHeadParser::head() const { return impl_->head(); }
void RequestHeadParser::ReplacePath(std::string_view path) { impl_->ReplacePath(path); }
void RequestHeadParser::ReplaceQueryBy(std::string_view target) { impl_->ReplaceQueryBy(target); }
const HeadError& RequestHeadParser::error() const { return impl_->error(); }

ResponseHeadParser::ResponseHeadParser() : impl_(std::make_unique<Impl>()) {}
ResponseHeadParser::~ResponseHeadParser() = default;
ResponseHeadParser::ResponseHeadParser(ResponseHeadParser&&) noexcept = default;
ResponseHeadParser& ResponseHeadParser::operator=(ResponseHeadParser&&) noexcept = default;
void ResponseHeadParser::Reset(bool to_head, bool to_upgrade) {
  impl_->Reset();
  impl_->set_request(to_head, to_upgrade);
}
ParseState ResponseHeadParser::Feed(std::string_view buffer) { return impl_->Feed(buffer); }
const ResponseHead& ResponseHeadParser::head() const { return impl_->head(); }
const HeadError& ResponseHeadParser::error() const { return impl_->error(); }

}  // namespace vllm_router
