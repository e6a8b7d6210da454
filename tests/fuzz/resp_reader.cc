// A hostile Redis: the same replies in whatever pieces its bytes come, none beyond the limits.
#include <string>
#include <vector>

#include "fuzz.h"
#include "redis/resp_reader.h"

namespace vllm_router {
namespace {

constexpr size_t kLimit = 4096;

// Writes a reply as text, and counts its elements.
void Describe(RedisValue value, size_t depth, size_t* elements, std::string* text) {
  FUZZ_CHECK(depth <= RespReader::kMaxDepth);
  FUZZ_CHECK(value.text().size() <= kLimit);
  *text += std::to_string(static_cast<int>(value.kind())) + ":" + std::to_string(value.integer()) + ":";
  *text += std::string(value.text()) + "[";
  *elements += value.size();
  for (size_t i = 0; i < value.size(); ++i) Describe(value[i], depth + 1, elements, text);
  *text += "]";
}

// The last one is "wrong" if the bytes were.
std::vector<std::string> Read(std::string_view bytes, size_t piece) {
  RespReader reader(kLimit);
  std::vector<std::string> texts;
  for (size_t begin = 0; begin < bytes.size(); begin += piece) {
    std::vector<RedisReply> replies;
    const Status status = reader.Feed(bytes.substr(begin, piece), &replies);
    for (const RedisReply& reply : replies) {
      size_t elements = 0;
      Describe(reply.value(), 0, &elements, &texts.emplace_back());
      FUZZ_CHECK(elements <= RespReader::kMaxElements);
      (void)reply.value().FirstError();
    }
    FUZZ_CHECK(reader.reply_bytes() <= kLimit + 1);
    if (status.ok()) continue;
    FUZZ_CHECK(!status.message().empty());
    texts.emplace_back("wrong");
    break;
  }
  return texts;
}

}  // namespace
}  // namespace vllm_router

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  const std::string_view bytes = AsText(data, size);
  const std::vector<std::string> whole = Read(bytes, size + 1);
  for (const size_t piece : {1, 13}) FUZZ_CHECK(Read(bytes, piece) == whole);
  return 0;
}
