// A response head from a worker that answers garbage, to a GET and to a HEAD. What is accepted means the same to Beast.
#include "beast.h"
#include "fuzz.h"
#include "http/head_parser.h"

namespace vllm_router {
namespace {

void CompareWithBeast(const ResponseHead& head, std::string_view bytes, bool to_head) {
  if (HasProxyConnection(head)) return;
  BeastReader<false> beast(to_head);
  std::string whole(bytes.substr(0, head.size));
  if (whole[12] == '\r') whole.insert(12, " ");  // without which Beast takes no status
  const size_t used = beast.Read(whole);
  FUZZ_CHECK(!beast.failed && beast.is_header_done());
  FUZZ_CHECK(used == whole.size());
  FUZZ_CHECK(beast.status == head.status);
  FUZZ_CHECK(beast.reason == head.reason);
  FUZZ_CHECK(beast.version == 10 + head.minor_version);
  CheckFields(head, beast);
  const bool empty = head.framing == BodyFraming::kLength && head.content_length == 0;
  FUZZ_CHECK(beast.is_done() == (head.framing == BodyFraming::kNone || empty));
  FUZZ_CHECK(beast.need_eof() == (head.framing == BodyFraming::kUntilClose));
  if (head.framing == BodyFraming::kChunked) FUZZ_CHECK(beast.chunked());
  if (head.framing == BodyFraming::kLength) FUZZ_CHECK(*beast.content_length() == head.content_length);
  // Not the other way round: to an HTTP/1.0 message that says both, Beast forgets `close`.
  if (head.keep_alive) FUZZ_CHECK(beast.keep_alive());
}

void Try(std::string_view bytes, bool to_head, bool to_upgrade) {
  ResponseHeadParser at_once;
  at_once.Reset(to_head, to_upgrade);
  const ParseState state = at_once.Feed(bytes);
  if (state == ParseState::kDone) {
    const ResponseHead& head = at_once.head();
    FUZZ_CHECK(head.size <= bytes.size());
    FUZZ_CHECK(head.status >= 100 && head.status <= 599);
    FUZZ_CHECK(head.content_length <= kMaxContentLength);
    if (to_head) FUZZ_CHECK(head.framing == BodyFraming::kNone);
    for (const HeaderField& field : head.fields) {
      FUZZ_CHECK(Inside(field.name, bytes.substr(0, head.size)));
      FUZZ_CHECK(Inside(field.value, bytes.substr(0, head.size)));
      FUZZ_CHECK(field.value.find_first_of(std::string_view("\0\r\n", 3)) == std::string_view::npos);
    }
    CompareWithBeast(head, bytes, to_head);
  }

  ResponseHeadParser piecemeal;
  piecemeal.Reset(to_head, to_upgrade);
  ParseState last = ParseState::kNeedMore;
  for (size_t end = 0; end <= bytes.size() && last == ParseState::kNeedMore; ++end) {
    last = piecemeal.Feed(bytes.substr(0, end));
  }
  FUZZ_CHECK(last == state);
  if (state == ParseState::kBad) {
    FUZZ_CHECK(at_once.error().status == 502);
    FUZZ_CHECK(piecemeal.error().rule == at_once.error().rule);
  }
}

}  // namespace
}  // namespace vllm_router

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  vllm_router::Try(vllm_router::AsText(data, size), false, false);
  vllm_router::Try(vllm_router::AsText(data, size), true, false);
  vllm_router::Try(vllm_router::AsText(data, size), false, true);
  return 0;
}
