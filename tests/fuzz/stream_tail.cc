// The end of any answer, in any pieces: the same summary.
#include "http/stream_tail.h"
#include "fuzz.h"

namespace vllm_router {
namespace {

bool Aborted(std::string_view bytes, size_t piece, ResponseForm form) {
  StreamTail tail;
  for (size_t begin = 0; begin < bytes.size(); begin += piece) tail.Add(bytes.substr(begin, piece));
  return tail.Summarize(form).aborted;
}

StreamSummary Summary(std::string_view bytes, size_t piece) {
  StreamTail tail;
  for (size_t begin = 0; begin < bytes.size(); begin += piece) tail.Add(bytes.substr(begin, piece));
  return tail.Summarize();
}

}  // namespace
}  // namespace vllm_router

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  const std::string_view bytes = AsText(data, size);
  const StreamSummary whole = Summary(bytes, size + 1);
  for (const size_t piece : {1, 13}) {
    const StreamSummary pieces = Summary(bytes, piece);
    FUZZ_CHECK(pieces.done == whole.done && pieces.error == whole.error);
    FUZZ_CHECK(pieces.server_error == whole.server_error && (whole.error || !whole.server_error));
    FUZZ_CHECK(pieces.prompt_tokens == whole.prompt_tokens);
    FUZZ_CHECK(pieces.completion_tokens == whole.completion_tokens);
    FUZZ_CHECK(pieces.cached_tokens == whole.cached_tokens);
    for (const ResponseForm form : {ResponseForm::kChoices, ResponseForm::kMessage, ResponseForm::kResponse})
      FUZZ_CHECK(Aborted(bytes, piece, form) == Aborted(bytes, size + 1, form));
  }
  return 0;
}
