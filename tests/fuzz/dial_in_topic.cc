// Topics of publishers that connect: what is read lies inside the topic, and with its port back in place names
// the same worker.
#include "events/dial_in_topic.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  const std::string_view text = AsText(data, size);
  const std::optional<DialInTopic> topic = ParseDialInTopic(text);
  if (!topic) return 0;
  FUZZ_CHECK(!topic->host.empty() && Inside(topic->host, text));
  FUZZ_CHECK(!topic->port || *topic->port != 0);
  const std::string again =
      "kv@[" + std::string(topic->host) + "]:" + std::to_string(topic->port.value_or(1)) + "@m";
  if (topic->host.find(']') != std::string_view::npos) return 0;
  const std::optional<DialInTopic> second = ParseDialInTopic(again);
  FUZZ_CHECK(second && second->host == topic->host && second->port == topic->port.value_or(1));
  return 0;
}
