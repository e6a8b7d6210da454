// Threads look up and store the ids of conversations in one small cache: whatever is found belongs to the text that it was
// stored under, and the cache never holds more than its bound.
#include "routing/token_cache.h"

#include <string>
#include <vector>

#include "stress.h"

int main() {
  using namespace vllm_router;
  constexpr int kThreads = 4;
  constexpr uint32_t kRounds = 20'000;
  constexpr size_t kCapacity = 40 * TokenCache::kEntryBytes;

  TokenCache cache(kCapacity);
  RunTogether(kThreads, [&](int thread) {
    std::vector<TextPrefix> prefixes;
    for (uint32_t round = 0; round < kRounds; ++round) {
      // A conversation of 1 to 8 items, of which one in four is known to other threads too.
      const uint32_t conversation =
          round % 4 == 0 ? round % 32 : round * kThreads + static_cast<uint32_t>(thread);
      std::string text;
      for (uint32_t item = 0; item <= conversation % 8; ++item) {
        text.append("\x1e").append(std::to_string(conversation)).append(item, 'x');
      }
      NamePrefixes("m", TokenCall::kChat, {}, text, &prefixes);
      const TokenCache::Known known = cache.Find(prefixes);
      if (known.ids != nullptr) {
        STRESS_CHECK(known.ids->front() == conversation);
        STRESS_CHECK(known.ids->size() == known.text_size);
      }
      const TextPrefix& stored = prefixes[round % prefixes.size()];
      cache.Store(stored.name, PromptIds(stored.size, conversation));
      STRESS_CHECK(cache.stats().bytes <= kCapacity);
    }
  });
  const TokenCache::Stats stats = cache.stats();
  STRESS_CHECK(stats.whole + stats.partial + stats.unknown == uint64_t{kThreads} * kRounds);
  STRESS_CHECK(stats.whole + stats.partial > 0 && stats.evicted > 0);
}
