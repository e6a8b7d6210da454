// Whatever is given as a file of keys: what is accepted holds every line of it that is a key, and no other.
#include "proxy/security/key_set.h"

#include <algorithm>
#include <string>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  const std::string_view text = AsText(data, size);
  const StatusOr<KeySet> keys = KeySet::Parse(text, "keys");
  if (!keys.ok()) {
    FUZZ_CHECK(std::string(keys.status().message()).starts_with("keys"));
    return 0;
  }
  FUZZ_CHECK(keys->size() > 0);
  size_t lines = 0;
  for (size_t at = 0; at <= size;) {
    const size_t end = std::min(text.find('\n', at), size);
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++lines;
    // Attributes follow it.
    const std::string_view key = line.substr(0, line.find_first_of(" \t\r"));
    const bool plain =
        !key.empty() && key.front() != '#' && key.front() != '\xef' && !key.starts_with("sha256:");
    if (plain) FUZZ_CHECK(keys->Contains(key));
    if (line.starts_with("#")) FUZZ_CHECK(!keys->Contains(line));
  }
  FUZZ_CHECK(keys->size() <= lines);
  return 0;
}
