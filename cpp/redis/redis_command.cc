#include "redis/redis_command.h"

#include <hiredis/hiredis.h>

#include <new>
#include <vector>

#include "base/check.h"

namespace vllm_router {

void AppendRedisCommand(std::span<const std::string_view> words, std::string* commands) {
  ROUTER_CHECK(!words.empty(), "a command has a name");
  std::vector<const char*> texts;
  std::vector<size_t> sizes;
  for (const std::string_view word : words) {
    texts.push_back(word.data());
    sizes.push_back(word.size());
  }
  char* formatted = nullptr;
  const auto size =
      redisFormatCommandArgv(&formatted, static_cast<int>(words.size()), texts.data(), sizes.data());
  if (size < 0) throw std::bad_alloc();
  commands->append(formatted, static_cast<size_t>(size));
  redisFreeCommand(formatted);
}

}  // namespace vllm_router
