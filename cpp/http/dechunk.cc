#include "http/dechunk.h"

#include <cstring>

namespace vllm_router {

Dechunked Dechunk(BodyReader& reader, std::span<char> bytes) {
  Dechunked result;
  char* out = bytes.data();
  for (;;) {
    const BodyReader::Step step = reader.Feed({bytes.data() + result.used, bytes.size() - result.used});
    result.used += step.used;
    if (step.event == BodyReader::Event::kData) {
      if (step.data.data() != out) std::memmove(out, step.data.data(), step.data.size());
      out += step.data.size();
      continue;
    }
    result.bad = step.event == BodyReader::Event::kBad;
    break;
  }
  result.data = {bytes.data(), static_cast<size_t>(out - bytes.data())};
  return result;
}

}  // namespace vllm_router
