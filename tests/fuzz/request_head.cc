// A request head from a hostile client. However the bytes arrive, the answer is the same; what is accepted holds
// together and points into the buffer.
#include "fuzz.h"
#include "http/head_parser.h"

namespace vllm_router {
namespace {

void CheckHead(const RequestHead& head, std::string_view bytes) {
  FUZZ_CHECK(head.size <= bytes.size());
  const std::string_view whole = bytes.substr(0, head.size);
  for (const std::string_view part : {head.method, head.query, head.authority}) {
    FUZZ_CHECK(Inside(part, whole));
  }
  FUZZ_CHECK(Inside(head.target, whole) || head.target == "/");  // what http://host means
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

void Try(std::string_view bytes) {
  RequestHeadParser at_once;
  const ParseState state = at_once.Feed(bytes);
  if (state == ParseState::kDone) CheckHead(at_once.head(), bytes);

  RequestHeadParser piecemeal;
  ParseState last = ParseState::kNeedMore;
  for (size_t end = 0; end <= bytes.size() && last == ParseState::kNeedMore; ++end) {
    last = piecemeal.Feed(bytes.substr(0, end));
  }
  FUZZ_CHECK(last == state);
  if (state == ParseState::kDone) FUZZ_CHECK(piecemeal.head().size == at_once.head().size);
  if (state == ParseState::kBad)
    FUZZ_CHECK(!at_once.error().rule.empty() && !at_once.error().message.empty());
}

}  // namespace
}  // namespace vllm_router

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  vllm_router::Try(vllm_router::AsText(data, size));
  return 0;
}
