// A request head from a hostile client. However the bytes arrive, the answer is the same; what is accepted holds
// together, points into the buffer, and means the same to Beast.
#include "beast.h"
#include "fuzz.h"
#include "http/head_parser.h"
#include "http/via.h"

namespace vllm_router {
namespace {

void CheckHead(const RequestHead& head, std::string_view bytes) {
  FUZZ_CHECK(head.size <= bytes.size());
  const std::string_view whole = bytes.substr(0, head.size);
  for (const std::string_view part : {head.method, head.target, head.path, head.query, head.authority}) {
    FUZZ_CHECK(Inside(part, whole));
  }
  for (const std::string_view value : head.via) FUZZ_CHECK(Inside(value, whole));
  FUZZ_CHECK(ReadVia(head.via, "vllm-router-0").routers <= static_cast<int>(head.size));
  FUZZ_CHECK(!head.method.empty());
  FUZZ_CHECK(head.target.find_first_of(std::string_view("\0\r\n ", 4)) == std::string_view::npos);
  FUZZ_CHECK(
      head.framing == BodyFraming::kNone || head.framing == BodyFraming::kLength ||
      head.framing == BodyFraming::kChunked);
  FUZZ_CHECK(head.content_length <= kMaxContentLength);
  for (const HeaderField& field : head.fields) {
    FUZZ_CHECK(Inside(field.name, whole) && Inside(field.value, whole));
    FUZZ_CHECK(!field.name.empty());
    // A value that held one of these would be two fields, or two requests, to the worker.
    FUZZ_CHECK(field.value.find_first_of(std::string_view("\0\r\n", 3)) == std::string_view::npos);
  }
}

void CompareWithBeast(const RequestHead& head, std::string_view bytes) {
  if (HasProxyConnection(head)) return;
  std::string_view whole = bytes.substr(0, head.size);
  while (whole.starts_with("\r\n")) whole.remove_prefix(2);  // Beast skips no empty lines
  BeastReader<true> beast;
  const size_t used = beast.Read(whole);
  FUZZ_CHECK(!beast.failed && beast.is_header_done());
  FUZZ_CHECK(used == whole.size());
  FUZZ_CHECK(beast.method == head.method);
  FUZZ_CHECK(
      beast.target.ends_with(head.target) || head.target == "/");  // ours is without scheme and authority
  FUZZ_CHECK(beast.version == 10 + head.minor_version);
  CheckFields(head, beast);
  FUZZ_CHECK(beast.chunked() == (head.framing == BodyFraming::kChunked));
  const auto length = beast.content_length();
  FUZZ_CHECK(length.has_value() == (head.framing == BodyFraming::kLength));
  if (length) FUZZ_CHECK(*length == head.content_length);
  // Not the other way round: to an HTTP/1.0 message that says both, Beast forgets `close`.
  if (head.keep_alive) FUZZ_CHECK(beast.keep_alive());
}

void Try(std::string_view bytes) {
  RequestHeadParser at_once;
  const ParseState state = at_once.Feed(bytes);
  if (state == ParseState::kDone) {
    CheckHead(at_once.head(), bytes);
    CompareWithBeast(at_once.head(), bytes);
  }

  RequestHeadParser piecemeal;
  ParseState last = ParseState::kNeedMore;
  for (size_t end = 0; end <= bytes.size() && last == ParseState::kNeedMore; ++end) {
    last = piecemeal.Feed(bytes.substr(0, end));
  }
  FUZZ_CHECK(last == state);
  if (state == ParseState::kDone) FUZZ_CHECK(piecemeal.head().size == at_once.head().size);
  if (state == ParseState::kBad) {
    FUZZ_CHECK(!at_once.error().rule.empty() && !at_once.error().message.empty());
    FUZZ_CHECK(piecemeal.error().status == at_once.error().status);
    FUZZ_CHECK(piecemeal.error().rule == at_once.error().rule);
  }
}

}  // namespace
}  // namespace vllm_router

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  vllm_router::Try(vllm_router::AsText(data, size));
  return 0;
}
