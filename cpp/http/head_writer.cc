#include "http/head_writer.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "http/char_class.h"
#include "http/websocket_protocols.h"

namespace vllm_router {
namespace {

// The kinds of fields. A field that needs no treatment is kOther.
enum class Kind : uint8_t {
  kOther,
  kHopByHop,
  kContentLength,
  kHost,
  kExpect,
  kForwardedFor,
  kForwardedProto,
  kForwardedHost,
  kRequestId,
  kAuthorization,
  kApiKey,  // x-api-key, api-key
  kWebSocketProtocol,
  kDataParallelRank,
  kAcceptEncoding,
  kVary,
  kTraceparent,
  kTracestate,
  kCors,  // access-control-*
  kOurs,  // x-vllm-router-*
};

// Called for every field of every message: the length rules out nearly everything before a byte is compared.
Kind Classify(std::string_view name) {
  switch (name.size()) {
    case 2:
      return IsName(name, "te") ? Kind::kHopByHop : Kind::kOther;
    case 4:
      if (IsName(name, "vary")) return Kind::kVary;
      return IsName(name, "host") ? Kind::kHost : Kind::kOther;
    case 6:
      return IsName(name, "expect") ? Kind::kExpect : Kind::kOther;
    case 7:
      if (IsName(name, "api-key")) return Kind::kApiKey;
      return IsName(name, "upgrade") || IsName(name, "trailer") ? Kind::kHopByHop : Kind::kOther;
    case 9:
      return IsName(name, "x-api-key") ? Kind::kApiKey : Kind::kOther;
    case 10:
      if (IsName(name, "tracestate")) return Kind::kTracestate;
      return IsName(name, "connection") || IsName(name, "keep-alive") ? Kind::kHopByHop : Kind::kOther;
    case 11:
      return IsName(name, "traceparent") ? Kind::kTraceparent : Kind::kOther;
    case 12:
      return IsName(name, "x-request-id") ? Kind::kRequestId : Kind::kOther;
    case 13:
      return IsName(name, "authorization") ? Kind::kAuthorization : Kind::kOther;
    case 14:
      if (IsName(name, "content-length")) return Kind::kContentLength;
      return IsName(name, "http2-settings") ? Kind::kHopByHop : Kind::kOther;
    case 15:
      if (IsName(name, "x-forwarded-for")) return Kind::kForwardedFor;
      if (IsName(name, "accept-encoding")) return Kind::kAcceptEncoding;
      break;
    case 16:
      if (IsName(name, "x-forwarded-host")) return Kind::kForwardedHost;
      if (IsName(name, "proxy-connection")) return Kind::kHopByHop;
      break;
    case 17:
      if (IsName(name, "x-forwarded-proto")) return Kind::kForwardedProto;
      if (IsName(name, "transfer-encoding")) return Kind::kHopByHop;
      break;
    case 18:
      if (IsName(name, "proxy-authenticate")) return Kind::kHopByHop;
      break;
    case 19:
      if (IsName(name, "proxy-authorization")) return Kind::kHopByHop;
      break;
    case 20:
      if (IsName(name, "x-data-parallel-rank")) return Kind::kDataParallelRank;
      break;
    case 22:
      if (IsName(name, "sec-websocket-protocol")) return Kind::kWebSocketProtocol;
      break;
    default:
      break;
  }
  constexpr std::string_view kCorsPrefix = "access-control-";
  if (name.size() > kCorsPrefix.size() && IsName(name.substr(0, kCorsPrefix.size()), kCorsPrefix)) {
    return Kind::kCors;
  }
  constexpr std::string_view kOurPrefix = "x-vllm-router-";
  return name.size() > kOurPrefix.size() && IsName(name.substr(0, kOurPrefix.size()), kOurPrefix)
             ? Kind::kOurs
             : Kind::kOther;
}

bool IsOneOf(std::string_view name, std::span<const std::string_view> names) {
  return std::any_of(
      names.begin(), names.end(), [&](std::string_view n) { return EqualsIgnoreCase(n, name); });
}

// The same name for a server that takes _ and - for one, as CGI and WSGI do.
bool MeansSame(std::string_view name, std::string_view other) {
  const auto folded = [](char c) {
    if (c == '_') return '-';
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  return std::ranges::equal(name, other, {}, folded, folded);
}

bool IsClientsId(std::string_view name, std::span<const std::string> id_names) {
  return std::ranges::any_of(id_names, [name](std::string_view id) { return MeansSame(name, id); }) ||
         MeansSame(name, "x-request-id") || MeansSame(name, "x-data-parallel-rank");
}

// Appends to a string. The capacity reserved at the start is allocated in one step; a write beyond it
// grows the string, so that an estimate that is too small costs time and never memory safety.
class Pen {
 public:
  Pen(std::string* out, size_t room) : out_(out), at_(out->size()) { out_->resize(at_ + room); }
  Pen(const Pen&) = delete;
  Pen& operator=(const Pen&) = delete;
  ~Pen() { out_->resize(at_); }

  Pen& operator<<(std::string_view text) {
    char* to = Take(text.size());
    text.copy(to, text.size());
    return *this;
  }

  Pen& operator<<(uint64_t number) {
    char digits[20];
    const char* end = std::to_chars(digits, digits + sizeof(digits), number).ptr;
    return *this << std::string_view(digits, static_cast<size_t>(end - digits));
  }

  void Field(std::string_view name, std::string_view value) {
    char* to = Take(name.size() + value.size() + 4);
    name.copy(to, name.size());
    std::memcpy(to + name.size(), ": ", 2);
    value.copy(to + name.size() + 2, value.size());
    std::memcpy(to + name.size() + 2 + value.size(), "\r\n", 2);
  }

  void Framing(BodyFraming framing, uint64_t content_length) {
    if (framing == BodyFraming::kLength) *this << "Content-Length: " << content_length << "\r\n";
    if (framing == BodyFraming::kChunked) *this << "Transfer-Encoding: chunked\r\n";
  }

 private:
  char* Take(size_t size) {
    if (out_->size() - at_ < size) out_->resize(2 * (at_ + size));
    char* to = out_->data() + at_;
    at_ += size;
    return to;
  }

  std::string* out_;
  size_t at_;
};

constexpr std::string_view kSwitch = "Connection: Upgrade\r\nUpgrade: websocket\r\n";

// Capacity for what we add beside the views given to us: names of added fields, numbers, CRLFs.
constexpr size_t kRoomForOurs = 320;

}  // namespace

void WriteUpstreamHead(const RequestHead& head, const UpstreamHeadParts& parts, std::string* out) {
  const size_t room = head.size + head.fields.size() + parts.prefix.size() + parts.authority.size() +
                      head.authority.size() + parts.client_address.size() + parts.forwarded_proto.size() +
                      parts.request_id.size() + parts.authorization.size() + parts.hop_name.size() +
                      parts.traceparent.size() + kRoomForOurs;
  Pen pen(out, room);
  pen << head.method << " ";
  if (head.target == "*") {
    pen << "*";
  } else {
    // The path may replace an empty one; then the rest of the target begins with '?'.
    const size_t query_at = std::min(head.target.find('?'), head.target.size());
    pen << parts.prefix << head.path << head.target.substr(query_at);
  }
  pen << " HTTP/1.1\r\n";
  pen.Field("Host", parts.preserve_host ? head.authority : parts.authority);

  bool forwarded_for = false;
  bool forwarded_proto = false;
  bool forwarded_host = false;
  bool authorization = false;
  for (const HeaderField& field : head.fields) {
    if (!head.connection_tokens.empty() && IsOneOf(field.name, head.connection_tokens)) continue;
    bool keep = true;
    switch (Classify(field.name)) {
      case Kind::kVary:
      case Kind::kCors:
      case Kind::kOther:
        keep = field.name.size() != parts.request_id_name.size() ||
               !EqualsIgnoreCase(field.name, parts.request_id_name);
        if (parts.hide_ids) keep = keep && !IsClientsId(field.name, parts.id_names);
        break;
      case Kind::kHopByHop:
      case Kind::kContentLength:
      case Kind::kHost:
      case Kind::kExpect:
      case Kind::kOurs:
        keep = false;
        break;
      case Kind::kForwardedFor:
        forwarded_for = parts.trust_forwarded;
        keep = false;
        break;
      case Kind::kForwardedProto:
        forwarded_proto = keep = parts.trust_forwarded;
        break;
      case Kind::kForwardedHost:
        forwarded_host = keep = parts.trust_forwarded;
        break;
      case Kind::kRequestId:
        keep = parts.request_id.empty();
        break;
      case Kind::kAuthorization:
        authorization = keep = !parts.drop_authorization;
        break;
      case Kind::kApiKey:
        keep = !parts.drop_authorization;
        break;
      case Kind::kWebSocketProtocol:
        if (!parts.drop_authorization) break;
        keep = false;
        if (const std::string rest = WithoutKeys(field.value); !rest.empty()) pen.Field(field.name, rest);
        break;
      case Kind::kDataParallelRank:
        keep = !parts.data_parallel_rank.has_value() && !parts.drop_rank;
        break;
      case Kind::kAcceptEncoding:
        keep = !parts.identity;
        break;
      case Kind::kTraceparent:
        keep = parts.traceparent.empty();
        break;
      case Kind::kTracestate:
        keep = !parts.drop_tracestate;
        break;
    }
    if (keep) pen.Field(field.name, field.value);
  }

  if (!parts.hop_name.empty()) {
    pen << (head.minor_version == 0 ? "Via: 1.0 " : "Via: 1.1 ") << parts.hop_name << "\r\n";
  }
  if (forwarded_for || !parts.client_address.empty()) {
    // One line, since many applications read only the first or only the last of several.
    pen << "X-Forwarded-For: ";
    bool first = true;
    const auto add = [&](std::string_view address) {
      if (address.empty()) return;
      if (!first) pen << ", ";
      pen << address;
      first = false;
    };
    if (forwarded_for) {
      for (const HeaderField& field : head.fields) {
        if (Classify(field.name) == Kind::kForwardedFor) add(field.value);
      }
    }
    add(parts.client_address);
    pen << "\r\n";
  }
  if (!forwarded_proto && !parts.forwarded_proto.empty())
    pen.Field("X-Forwarded-Proto", parts.forwarded_proto);
  if (!forwarded_host && !head.authority.empty()) pen.Field("X-Forwarded-Host", head.authority);
  if (!parts.request_id.empty()) pen.Field("X-Request-Id", parts.request_id);
  if (!authorization && !parts.authorization.empty()) pen.Field("Authorization", parts.authorization);
  if (parts.data_parallel_rank)
    pen << "X-Data-Parallel-Rank: " << uint64_t{*parts.data_parallel_rank} << "\r\n";
  if (parts.identity) pen.Field("Accept-Encoding", "identity");
  if (!parts.traceparent.empty()) pen.Field("traceparent", parts.traceparent);
  pen.Framing(parts.framing, parts.content_length);
  if (parts.websocket) pen << kSwitch;
  pen << "\r\n";
}

void WriteClientHead(const ResponseHead& head, const ClientHeadParts& parts, std::string* out) {
  size_t room = head.size + head.fields.size() + parts.request_id.size() + kRoomForOurs;
  for (const HeaderField& field : parts.extra) room += field.name.size() + field.value.size() + 4;
  Pen pen(out, room);
  pen << "HTTP/1.1 " << static_cast<uint64_t>(head.status) << " " << head.reason << "\r\n";

  // Once: the worker may have sent it twice.
  bool length_passes = parts.framing == BodyFraming::kNone && head.status >= 200 && head.status != 204;
  for (const HeaderField& field : head.fields) {
    if (!head.connection_tokens.empty() && IsOneOf(field.name, head.connection_tokens)) continue;
    const Kind kind = Classify(field.name);
    if (kind == Kind::kHopByHop || kind == Kind::kOurs) continue;
    if (kind == Kind::kCors && parts.own_cors) continue;
    if (kind == Kind::kContentLength && !std::exchange(length_passes, false)) continue;
    if (kind == Kind::kRequestId && !parts.request_id.empty()) continue;
    const bool replaced = kind != Kind::kVary &&  // there may be several of it
                          std::any_of(parts.extra.begin(), parts.extra.end(), [&](const HeaderField& ours) {
                            return EqualsIgnoreCase(ours.name, field.name);
                          });
    if (replaced) continue;
    pen.Field(field.name, field.value);
  }

  if (!parts.request_id.empty()) pen.Field("x-request-id", parts.request_id);
  for (const HeaderField& field : parts.extra) pen.Field(field.name, field.value);
  pen.Framing(parts.framing, parts.content_length);
  if (parts.websocket) {
    pen << kSwitch;
  } else if (parts.close) {
    pen << "Connection: close\r\n";
  } else if (parts.keep_alive_10) {
    pen << "Connection: keep-alive\r\n";
  }
  pen << "\r\n";
}

void WriteWholeHead(const ResponseHead& head, uint64_t content_length, std::string* out) {
  Pen pen(out, head.size + head.fields.size() + kRoomForOurs);
  pen << "HTTP/1.1 " << static_cast<uint64_t>(head.status) << " " << head.reason << "\r\n";
  for (const HeaderField& field : head.fields) {
    if (!head.connection_tokens.empty() && IsOneOf(field.name, head.connection_tokens)) continue;
    const Kind kind = Classify(field.name);
    if (kind != Kind::kHopByHop && kind != Kind::kContentLength) pen.Field(field.name, field.value);
  }
  pen.Framing(BodyFraming::kLength, content_length);
  pen << "\r\n";
}

void WriteOwnResponse(const OwnResponse& response, std::string* out) {
  const bool bodiless = response.status < 200 || response.status == 204 || response.status == 304;
  const bool has_body = !bodiless && !response.to_head;
  size_t room = response.content_type.size() + response.request_id.size() +
                (has_body ? response.body.size() : 0) + kRoomForOurs;
  for (const HeaderField& field : response.extra) room += field.name.size() + field.value.size() + 4;
  Pen pen(out, room);
  pen << "HTTP/1.1 " << static_cast<uint64_t>(response.status) << " " << ReasonPhrase(response.status)
      << "\r\n";
  if (!response.content_type.empty() && !response.body.empty())
    pen.Field("Content-Type", response.content_type);
  if (!bodiless) pen << "Content-Length: " << response.body.size() << "\r\n";
  if (!response.request_id.empty()) pen.Field("x-request-id", response.request_id);
  for (const HeaderField& field : response.extra) pen.Field(field.name, field.value);
  if (response.close) pen << "Connection: close\r\n";
  pen << "\r\n";
  if (has_body) pen << response.body;
}

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 101:
      return "Switching Protocols";
    case 103:
      return "Early Hints";
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 203:
      return "Non-Authoritative Information";
    case 207:
      return "Multi-Status";
    case 204:
      return "No Content";
    case 205:
      return "Reset Content";
    case 206:
      return "Partial Content";
    case 300:
      return "Multiple Choices";
    case 301:
      return "Moved Permanently";
    case 302:
      return "Found";
    case 303:
      return "See Other";
    case 304:
      return "Not Modified";
    case 307:
      return "Temporary Redirect";
    case 308:
      return "Permanent Redirect";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 402:
      return "Payment Required";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 406:
      return "Not Acceptable";
    case 407:
      return "Proxy Authentication Required";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 410:
      return "Gone";
    case 411:
      return "Length Required";
    case 412:
      return "Precondition Failed";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 416:
      return "Range Not Satisfiable";
    case 417:
      return "Expectation Failed";
    case 421:
      return "Misdirected Request";
    case 422:
      return "Unprocessable Content";
    case 423:
      return "Locked";
    case 424:
      return "Failed Dependency";
    case 425:
      return "Too Early";
    case 426:
      return "Upgrade Required";
    case 428:
      return "Precondition Required";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 451:
      return "Unavailable For Legal Reasons";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    case 508:
      return "Loop Detected";
    case 507:
      return "Insufficient Storage";
    case 511:
      return "Network Authentication Required";
    default:
      return "Unknown";
  }
}

void WriteChunkSize(uint64_t size, std::string* out) {
  char line[18];
  char* end = std::to_chars(line, line + 16, size, 16).ptr;
  *end++ = '\r';
  *end++ = '\n';
  out->append(line, static_cast<size_t>(end - line));
}

}  // namespace vllm_router
