#include "http/head_parser.h"

#include <algorithm>
#include <cstring>

#include <boost/beast/http/basic_parser.hpp>

#include "base/limits.h"
#include "base/text.h"
#include "http/char_class.h"

namespace vllm_router {
namespace {

namespace beast = boost::beast;
using beast::http::field;

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
constexpr size_t kMaxRequestLineBytes = kMaxMethodBytes + 1 + kMaxTargetBytes + 1 + sizeof("HTTP/1.1\r\n") - 1;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Calls visit(element) for each element of a comma-separated list, blanks trimmed, until it returns false.
template <typename Visit>
bool ForEachElement(std::string_view list, Visit visit) {
  for (;;) {
    const size_t comma = list.find(',');
    if (!visit(TrimBlanks(list.substr(0, comma)))) return false;
    if (comma == std::string_view::npos) return true;
    list.remove_prefix(comma + 1);
  }
}

// Finds the end of a head line by line and remembers how far it looked, so that a head that arrives byte by byte costs
// no more than one that arrives whole. Whatever depends on lines rather than on their contents is checked on the way.
class LineScan {
 public:
  // Where the first line starts; bytes before it are empty lines that were skipped.
  size_t begin() const { return begin_; }
  // One past the last byte of the head, once Scan() says kDone.
  size_t end() const { return line_; }

  // `check_start(text)` sees the beginning of the first line, `check_line(text)` the whole of it without CRLF; they
  // return false after filling in an error.
  template <typename CheckStart, typename CheckLine>
  ParseState Scan(std::string_view buffer, int empty_lines_allowed, size_t first_line_limit, CheckStart check_start,
                  CheckLine check_line, HeadError* error) {
    const char* data = buffer.data();
    const size_t limit = std::min(buffer.size(), kMaxHeadBytes);
    if (!first_line_done_) {
      while (begin_ < limit && data[begin_] == '\r' && empty_lines_ < empty_lines_allowed) {
        if (begin_ + 1 == limit) return ParseState::kNeedMore;
        if (data[begin_ + 1] != '\n') {
          *error = {400, kLineEnding, "The request starts with a carriage return."};
          return ParseState::kBad;
        }
        begin_ += 2;
        ++empty_lines_;
        line_ = searched_ = begin_;
      }
      if (begin_ >= limit) return ParseState::kNeedMore;
      if (!check_start(buffer.substr(begin_, std::min(limit - begin_, first_line_limit)))) return ParseState::kBad;
    }
    for (;;) {
      const void* found = std::memchr(data + searched_, '\n', limit - searched_);
      if (found == nullptr) {
        searched_ = limit;
        if (!first_line_done_ && limit - begin_ > first_line_limit) return TooLongFirstLine(buffer, first_line_limit, check_line);
        if (buffer.size() < kMaxHeadBytes) return ParseState::kNeedMore;
        *error = {431, kTooLarge, "The head is larger than 64 KiB."};
        return ParseState::kBad;
      }
      const size_t at = static_cast<size_t>(static_cast<const char*>(found) - data);
      if (!first_line_done_ && at + 1 - begin_ > first_line_limit) return TooLongFirstLine(buffer, first_line_limit, check_line);
      if (at == line_ || data[at - 1] != '\r') {
        *error = {400, kLineEnding, "A line of the head ends without a carriage return."};
        return ParseState::kBad;
      }
      const std::string_view text(data + line_, at - 1 - line_);
      searched_ = line_ = at + 1;
      if (!first_line_done_) {
        if (!check_line(text)) return ParseState::kBad;
        first_line_done_ = true;
        continue;
      }
      if (text.empty()) return ParseState::kDone;
      if (text[0] == ' ' || text[0] == '\t') {
        *error = {400, kFolding, "A header line starts with a blank (line folding is not accepted)."};
        return ParseState::kBad;
      }
      if (++fields_ > kMaxHeadFields) {
        *error = {431, kTooLarge, "The head has more than 100 fields."};
        return ParseState::kBad;
      }
    }
  }

 private:
  // The line cannot be right; let its check say what is wrong with it.
  template <typename CheckLine>
  ParseState TooLongFirstLine(std::string_view buffer, size_t first_line_limit, CheckLine check_line) {
    check_line(buffer.substr(begin_, first_line_limit));
    return ParseState::kBad;
  }

  size_t begin_ = 0;
  size_t line_ = 0;      // first byte of the line being looked for
  size_t searched_ = 0;  // no LF in [line_, searched_)
  size_t fields_ = 0;
  int empty_lines_ = 0;
  bool first_line_done_ = false;
};

// What both kinds of heads collect from their fields.
struct FieldChecks {
  HeadError error;
  bool failed = false;
  int transfer_encodings = 0;
  std::string_view transfer_encoding;
  int content_lengths = 0;
  std::string_view content_length;
  size_t connection_tokens = 0;
  bool close = false;
  bool keep_alive = false;

  bool Fail(int status, std::string_view rule, std::string_view message) {
    if (!failed) error = {status, rule, message};
    failed = true;
    return false;
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
      } else if (EqualsIgnoreCase(token, "host") || EqualsIgnoreCase(token, "content-length") ||
                 EqualsIgnoreCase(token, "transfer-encoding") || EqualsIgnoreCase(token, "authorization")) {
        return Fail(400, kConnection, "Connection names a field that must reach the other end.");
      } else {
        nominated->push_back(token);
      }
      return true;
    });
  }

  // R1 and R2, when all fields are known: how the body is delimited.
  bool Framing(int minor_version, BodyFraming* framing, uint64_t* length) {
    if (transfer_encodings > 0 && content_lengths > 0) {
      return Fail(400, kTransferEncoding, "Both Transfer-Encoding and Content-Length are given.");
    }
    if (transfer_encodings > 0) {
      if (transfer_encodings > 1) return Fail(400, kTransferEncoding, "Transfer-Encoding is given more than once.");
      if (minor_version == 0) return Fail(400, kTransferEncoding, "HTTP/1.0 has no Transfer-Encoding.");
      if (!Chunked(transfer_encoding)) return false;
      *framing = BodyFraming::kChunked;
    } else if (content_lengths > 0) {
      if (content_lengths > 1) return Fail(400, kContentLength, "Content-Length is given more than once.");
      const std::optional<uint64_t> value = ParseDecimal(content_length);
      if (!value || (content_length.size() > 15 && *value <= kMaxContentLength)) {
        return Fail(400, kContentLength, "Content-Length is not a number of 1 to 15 digits.");
      }
      if (*value > kMaxContentLength) return Fail(413, kContentLength, "Content-Length has more than 15 digits.");
      *framing = BodyFraming::kLength;
      *length = *value;
    }
    return true;
  }

  // Only "chunked" alone is understood. A list of clean tokens that leaves `chunked` where it belongs asks for codings
  // that we lack (501); anything else is malformed.
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

  void BeastError(const beast::error_code& ec) {
    using beast::http::error;
    if (ec == error::bad_transfer_encoding) {
      if (content_lengths > 0) {
        Fail(400, kTransferEncoding, "Both Transfer-Encoding and Content-Length are given.");
      } else {
        Fail(400, kTransferEncoding, "Transfer-Encoding is given more than once.");
      }
    } else if (ec == error::bad_content_length || ec == error::multiple_content_length) {
      if (transfer_encodings > 0) {
        Fail(400, kTransferEncoding, "Both Transfer-Encoding and Content-Length are given.");
      } else {
        Fail(400, kContentLength, "Content-Length is not a number of 1 to 15 digits.");
      }
    } else if (ec == error::bad_field) {
      Fail(400, kSyntax, "A header line has no valid field name.");
    } else if (ec == error::bad_line_ending) {
      Fail(400, kLineEnding, "A line of the head holds a lone carriage return.");
    } else if (ec == error::bad_value) {
      Fail(400, kSyntax, "A header value holds a byte that is not allowed.");
    } else {
      Fail(400, kSyntax, "The head is malformed.");
    }
  }
};

// Beast's grammar over one complete head. It is given nothing after the head, so the callbacks about bodies are never
// reached; its own reading of framing and keep-alive is not used. `on_field(id, field)` is called for each field and
// returns false, after filling in `checks`, to stop.
template <bool is_request, typename OnField>
class Grammar final : public beast::http::basic_parser<is_request> {
 public:
  Grammar(std::vector<HeaderField>* fields, FieldChecks* checks, OnField on_field)
      : fields_(fields), checks_(checks), on_field_(on_field) {
    this->eager(false);
    this->header_limit(static_cast<uint32_t>(kMaxHeadBytes + 1));
    this->body_limit(boost::none);  // the default would refuse a Content-Length above 1 MB
  }

  bool Parse(std::string_view text) {
    beast::error_code ec;
    const size_t used = this->put(boost::asio::const_buffer(text.data(), text.size()), ec);
    if (checks_->failed) return false;
    if (ec) {
      checks_->BeastError(ec);
      return false;
    }
    if (used != text.size() || !this->is_header_done()) return checks_->Fail(400, kSyntax, "The head is malformed.");
    return true;
  }

 private:
  using Code = beast::error_code;
  using View = beast::string_view;
  void on_request_impl(beast::http::verb, View, View, int, Code&) override {}
  void on_response_impl(int, View, int, Code&) override {}
  void on_field_impl(field id, View name, View value, Code& ec) override {
    const HeaderField& added = fields_->emplace_back(
        HeaderField{{name.data(), name.size()}, {value.data(), value.size()}});
    if (!on_field_(id, added)) ec = beast::http::error::bad_value;
  }
  void on_header_impl(Code&) override {}
  void on_body_init_impl(const boost::optional<uint64_t>&, Code&) override {}
  size_t on_body_impl(View, Code&) override { return 0; }
  void on_chunk_header_impl(uint64_t, View, Code&) override {}
  size_t on_chunk_body_impl(uint64_t, View, Code&) override { return 0; }
  void on_finish_impl(Code&) override {}

  std::vector<HeaderField>* fields_;
  FieldChecks* checks_;
  OnField on_field_;
};

// The checks that every field passes, whatever its name (R3, R7).
bool CheckField(const HeaderField& field, std::string_view head, FieldChecks* checks) {
  if (field.name.size() > kMaxFieldNameBytes) {
    return checks->Fail(431, kTooLarge, "A field name is longer than 256 bytes.");
  }
  // Beast copies folded values into a buffer of its own. LineScan has refused them before; a view that points
  // elsewhere than into the head must never leave this file all the same.
  if (field.value.data() < head.data() || field.value.data() + field.value.size() > head.data() + head.size()) {
    return checks->Fail(400, kFolding, "A header value is folded.");
  }
  return true;
}

}  // namespace

class RequestHeadParser::Impl {
 public:
  void Reset() {
    scan_ = LineScan();
    state_ = ParseState::kNeedMore;
    checks_ = FieldChecks();
    std::vector<HeaderField> fields = std::move(head_.fields);
    std::vector<std::string_view> tokens = std::move(head_.connection_tokens);
    head_ = RequestHead();
    head_.fields = std::move(fields);
    head_.fields.clear();
    head_.connection_tokens = std::move(tokens);
    head_.connection_tokens.clear();
  }

  ParseState Feed(std::string_view buffer) {
    if (state_ != ParseState::kNeedMore) return state_;
    state_ = scan_.Scan(
        buffer, kMaxLeadingEmptyLines, kMaxRequestLineBytes,
        [this](std::string_view start) { return CheckMethod(start); },
        [this, buffer](std::string_view line) {
          line_checked_in_ = buffer.data();
          return CheckRequestLine(line);
        },
        &checks_.error);
    if (state_ == ParseState::kDone && !ParseFields(buffer)) state_ = ParseState::kBad;
    return state_;
  }

  const RequestHead& head() const { return head_; }
  const HeadError& error() const { return checks_.error; }

 private:
  bool CheckMethod(std::string_view line) {
    size_t size = 0;
    while (size < line.size() && size <= kMaxMethodBytes && Is(line[size], kTokenChar)) ++size;
    if (size > kMaxMethodBytes) return checks_.Fail(501, kMethod, "The method is longer than 32 bytes.");
    if (size == line.size()) return true;
    if (size > 0 && line[size] == ' ') return true;
    // A TLS record of type handshake: somebody speaks https to this port and would not understand an answer.
    if (line[0] == '\x16') return checks_.Fail(0, kTls, "TLS was spoken on a plain port.");
    return checks_.Fail(400, kSyntax, "The request does not start with a method and one space.");
  }

  bool CheckRequestLine(std::string_view line) {
    const size_t space = line.find(' ');
    if (space == std::string_view::npos) return checks_.Fail(400, kSyntax, "The request line has no target.");
    const std::string_view rest = line.substr(space + 1);
    const size_t second = rest.find(' ');
    const std::string_view target = rest.substr(0, second);
    if (target.size() > kMaxTargetBytes) return checks_.Fail(414, kTooLarge, "The target is longer than 8 KiB.");
    if (target.empty()) return checks_.Fail(400, kSyntax, "The request line has no target, or two spaces before it.");
    if (!All(target, kTargetChar)) {
      return checks_.Fail(400, kTarget, "The target holds a byte that must be percent-encoded.");
    }
    if (second == std::string_view::npos) return checks_.Fail(400, kVersion, "The request line has no HTTP version.");
    const std::string_view version = rest.substr(second + 1);
    if (version.size() != 8 || version.substr(0, 5) != "HTTP/" || !IsDigit(version[5]) || version[6] != '.' ||
        !IsDigit(version[7])) {
      return checks_.Fail(400, kVersion, "The request line does not end with an HTTP version.");
    }
    if (version[5] != '1' || version[7] > '1') {
      return checks_.Fail(505, kVersion, "Only HTTP/1.1 and HTTP/1.0 are supported.");
    }
    head_.minor_version = version[7] - '0';
    head_.method = line.substr(0, space);
    if (head_.method == "CONNECT") return checks_.Fail(405, kMethod, "This is not a forward proxy; CONNECT is refused.");
    return SetTarget(target);
  }

  // R5.
  bool SetTarget(std::string_view target) {
    if (target[0] == '/' || (target == "*" && head_.method == "OPTIONS")) {
      head_.target = target;
    } else {
      size_t scheme = 0;
      if (EqualsIgnoreCase(target.substr(0, 7), "http://")) scheme = 7;
      if (EqualsIgnoreCase(target.substr(0, 8), "https://")) scheme = 8;
      if (scheme == 0) return checks_.Fail(400, kTarget, "The target is neither a path nor an http URL.");
      target.remove_prefix(scheme);
      const size_t end = std::min(target.find_first_of("/?"), target.size());
      head_.authority = target.substr(0, end);
      if (head_.authority.empty() || !All(head_.authority, kAuthorityChar)) {
        return checks_.Fail(400, kTarget, "The URL in the request line has no valid host.");
      }
      head_.target = end == target.size() ? std::string_view("/") : target.substr(end);
    }
    const size_t question = head_.target.find('?');
    head_.path = question == 0 ? std::string_view("/") : head_.target.substr(0, question);
    if (question != std::string_view::npos) head_.query = head_.target.substr(question + 1);
    return true;
  }

  bool ParseFields(std::string_view buffer) {
    const std::string_view text = buffer.substr(scan_.begin(), scan_.end() - scan_.begin());
    // The first line was checked by an earlier call if the head came in pieces; the buffer may have moved since.
    if (line_checked_in_ != buffer.data()) CheckRequestLine(text.substr(0, text.find('\r')));
    head_.size = scan_.end();

    int hosts = 0;
    std::string_view host;
    bool unknown_expectation = false;
    const auto on_field = [&](field id, const HeaderField& added) {
      if (!CheckField(added, text, &checks_)) return false;
      switch (id) {
        case field::transfer_encoding:
          ++checks_.transfer_encodings;
          checks_.transfer_encoding = added.value;
          return true;
        case field::content_length:
          ++checks_.content_lengths;
          checks_.content_length = added.value;
          return true;
        case field::host:
          ++hosts;
          host = added.value;
          return true;
        case field::connection:
          return checks_.Connection(added.value, &head_.connection_tokens);
        case field::expect:
          if (EqualsIgnoreCase(added.value, "100-continue")) {
            head_.expects_continue = true;
          } else {
            unknown_expectation = true;
          }
          return true;
        default:
          return true;
      }
    };
    Grammar<true, decltype(on_field)> grammar(&head_.fields, &checks_, on_field);
    if (!grammar.Parse(text)) return false;

    if (!checks_.Framing(head_.minor_version, &head_.framing, &head_.content_length)) return false;
    if (hosts > 1) return checks_.Fail(400, kHost, "Host is given more than once.");
    if (hosts == 0 && head_.minor_version == 1) return checks_.Fail(400, kHost, "HTTP/1.1 needs the field Host.");
    if (!All(host, kAuthorityChar)) return checks_.Fail(400, kHost, "Host is not a host name with an optional port.");
    if (head_.authority.empty()) head_.authority = host;
    // HTTP/1.0 knows no expectations.
    if (head_.minor_version == 0) head_.expects_continue = unknown_expectation = false;
    if (unknown_expectation) return checks_.Fail(417, kExpect, "Only the expectation 100-continue is supported.");
    head_.keep_alive = !checks_.close && (head_.minor_version == 1 || checks_.keep_alive);
    return true;
  }

  LineScan scan_;
  ParseState state_ = ParseState::kNeedMore;
  const char* line_checked_in_ = nullptr;  // the buffer that the views of the request line point into
  FieldChecks checks_;
  RequestHead head_;
};

class ResponseHeadParser::Impl {
 public:
  void Reset(bool to_head) {
    to_head_ = to_head;
    scan_ = LineScan();
    state_ = ParseState::kNeedMore;
    checks_ = FieldChecks();
    std::vector<HeaderField> fields = std::move(head_.fields);
    std::vector<std::string_view> tokens = std::move(head_.connection_tokens);
    head_ = ResponseHead();
    head_.fields = std::move(fields);
    head_.fields.clear();
    head_.connection_tokens = std::move(tokens);
    head_.connection_tokens.clear();
  }

  ParseState Feed(std::string_view buffer) {
    if (state_ != ParseState::kNeedMore) return state_;
    state_ = scan_.Scan(
        buffer, 0, kMaxHeadBytes, [this](std::string_view start) { return CheckStart(start); },
        [this](std::string_view line) { return CheckStatusLine(line); }, &checks_.error);
    if (state_ == ParseState::kDone && !ParseFields(buffer)) state_ = ParseState::kBad;
    // Whatever a worker does wrong, the client hears of a bad gateway.
    if (state_ == ParseState::kBad) checks_.error.status = 502;
    return state_;
  }

  const ResponseHead& head() const { return head_; }
  const HeadError& error() const { return checks_.error; }

 private:
  bool CheckStart(std::string_view line) {
    constexpr std::string_view kStart = "HTTP/1.";
    const size_t size = std::min(line.size(), kStart.size());
    if (line.substr(0, size) == kStart.substr(0, size)) return true;
    return checks_.Fail(502, kSyntax, "The worker's answer does not start with HTTP/1.");
  }

  // R6. What is left of the line after the code is Beast's to judge.
  bool CheckStatusLine(std::string_view line) {
    if (line.size() < 13 || (line[7] != '0' && line[7] != '1') || line[8] != ' ' || !IsDigit(line[9]) ||
        !IsDigit(line[10]) || !IsDigit(line[11]) || line[12] != ' ') {
      return checks_.Fail(502, kStatus, "The worker's status line is malformed.");
    }
    const int status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
    if (status < 100 || status > 599) return checks_.Fail(502, kStatus, "The worker's status is not in 100..599.");
    if (status == 101) return checks_.Fail(502, kStatus, "The worker switches protocols, which nobody asked for.");
    head_.minor_version = line[7] - '0';
    head_.status = status;
    head_.reason = line.substr(13);
    return true;
  }

  bool ParseFields(std::string_view buffer) {
    const std::string_view text = buffer.substr(0, scan_.end());
    head_.reason = text.substr(13, text.find('\r') - 13);  // the buffer may have moved since the line was checked
    head_.size = text.size();

    const auto on_field = [&](field id, const HeaderField& added) {
      if (!CheckField(added, text, &checks_)) return false;
      switch (id) {
        case field::transfer_encoding:
          ++checks_.transfer_encodings;
          checks_.transfer_encoding = added.value;
          return true;
        case field::content_length:
          ++checks_.content_lengths;
          checks_.content_length = added.value;
          return true;
        case field::connection:
          return checks_.Connection(added.value, &head_.connection_tokens);
        case field::content_type: {
          const std::string_view type = TrimBlanks(added.value.substr(0, added.value.find(';')));
          head_.event_stream = EqualsIgnoreCase(type, "text/event-stream");
          return true;
        }
        default:
          return true;
      }
    };
    Grammar<false, decltype(on_field)> grammar(&head_.fields, &checks_, on_field);
    if (!grammar.Parse(text)) return false;

    if (!checks_.Framing(head_.minor_version, &head_.framing, &head_.content_length)) return false;
    if (to_head_ || head_.status < 200 || head_.status == 204 || head_.status == 304) {
      head_.framing = BodyFraming::kNone;
      head_.content_length = 0;
    }
    head_.keep_alive = !checks_.close && (head_.minor_version == 1 || checks_.keep_alive) &&
                       head_.framing != BodyFraming::kUntilClose;
    return true;
  }

  bool to_head_ = false;
  LineScan scan_;
  ParseState state_ = ParseState::kNeedMore;
  FieldChecks checks_;
  ResponseHead head_;
};

RequestHeadParser::RequestHeadParser() : impl_(std::make_unique<Impl>()) {}
RequestHeadParser::~RequestHeadParser() = default;
RequestHeadParser::RequestHeadParser(RequestHeadParser&&) noexcept = default;
RequestHeadParser& RequestHeadParser::operator=(RequestHeadParser&&) noexcept = default;
void RequestHeadParser::Reset() { impl_->Reset(); }
ParseState RequestHeadParser::Feed(std::string_view buffer) { return impl_->Feed(buffer); }
const RequestHead& RequestHeadParser::head() const { return impl_->head(); }
const HeadError& RequestHeadParser::error() const { return impl_->error(); }

ResponseHeadParser::ResponseHeadParser() : impl_(std::make_unique<Impl>()) {}
ResponseHeadParser::~ResponseHeadParser() = default;
ResponseHeadParser::ResponseHeadParser(ResponseHeadParser&&) noexcept = default;
ResponseHeadParser& ResponseHeadParser::operator=(ResponseHeadParser&&) noexcept = default;
void ResponseHeadParser::Reset(bool to_head) { impl_->Reset(to_head); }
ParseState ResponseHeadParser::Feed(std::string_view buffer) { return impl_->Feed(buffer); }
const ResponseHead& ResponseHeadParser::head() const { return impl_->head(); }
const HeadError& ResponseHeadParser::error() const { return impl_->error(); }

}  // namespace vllm_router
