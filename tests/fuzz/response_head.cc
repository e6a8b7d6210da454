// A response head from a worker that answers garbage, to a GET and to a HEAD.
#include "fuzz.h"
#include "http/head_parser.h"

namespace vllm_router {
namespace {

void Try(std::string_view bytes, bool to_head) {
  ResponseHeadParser at_once;
  at_once.Reset(to_head);
  const ParseState state = at_once.Feed(bytes);
  if (state == ParseState::kDone) {
    const ResponseHead& head = at_once.head();
    FUZZ_CHECK(head.size <= bytes.size());
    FUZZ_CHECK(head.status >= 100 && head.status <= 999);
    FUZZ_CHECK(head.content_length <= kMaxContentLength);
    if (to_head) FUZZ_CHECK(head.framing == BodyFraming::kNone);
    for (const HeaderField& field : head.fields) {
      FUZZ_CHECK(Inside(field.name, bytes.substr(0, head.size)));
      FUZZ_CHECK(Inside(field.value, bytes.substr(0, head.size)));
      FUZZ_CHECK(field.value.find_first_of(std::string_view("\0\r\n", 3)) == std::string_view::npos);
    }
  }

  ResponseHeadParser piecemeal;
  piecemeal.Reset(to_head);
  ParseState last = ParseState::kNeedMore;
  for (size_t end = 0; end <= bytes.size() && last == ParseState::kNeedMore; ++end) {
    last = piecemeal.Feed(bytes.substr(0, end));
  }
  FUZZ_CHECK(last == state);
}

}  // namespace
}  // namespace vllm_router

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  vllm_router::Try(vllm_router::AsText(data, size), false);
  vllm_router::Try(vllm_router::AsText(data, size), true);
  return 0;
}
