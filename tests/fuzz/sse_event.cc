// A hostile source of events about prefixes: the same events in whatever pieces they come, no more than the
// limit in memory, and a table that stays within its own.
#include <string>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "events/sse_event.h"
#include "fuzz.h"
#include "http/sse_reader.h"

namespace vllm_router {
namespace {

constexpr size_t kLimit = 4096;
using Events = std::vector<std::pair<std::string, std::string>>;

// The last one is ("too long", "") if an event was.
Events Read(std::string_view bytes, size_t piece) {
  SseReader reader(kLimit);
  Events events;
  for (size_t begin = 0; begin < bytes.size(); begin += piece) {
    std::string_view part = bytes.substr(begin, piece);
    SseReader::Step step;
    while ((step = reader.Next(&part)) == SseReader::Step::kEvent) {
      FUZZ_CHECK(reader.type().size() + reader.data().size() <= kLimit);
      events.emplace_back(reader.type(), reader.data());
    }
    FUZZ_CHECK(reader.last_id().size() <= SseReader::kMaxIdBytes);
    if (step == SseReader::Step::kTooLong) {
      events.emplace_back("too long", "");
      break;
    }
    FUZZ_CHECK(part.empty());
  }
  return events;
}

}  // namespace
}  // namespace vllm_router

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  const std::string_view bytes = AsText(data, size);
  const Events whole = Read(bytes, size + 1);
  for (const size_t piece : {1, 13}) FUZZ_CHECK(Read(bytes, piece) == whole);

  PrefixTable table({.max_entries = 2, .offloading = StorageOffloading::kEvictions});
  const WorkerId worker{7};
  table.SetWorkers({&worker, 1});
  for (const auto& [type, text] : whole) {
    const PrefixEventOrProblem read = ReadPrefixEvent(type, text);
    FUZZ_CHECK(read.event.has_value() == read.problem.empty());
    if (!read.event) continue;
    FUZZ_CHECK(read.event->prefix || read.event->kind == PrefixEvent::Kind::kPurged);
    FUZZ_CHECK(ApplyPrefixEvent(*read.event, worker, 0, &table));
    FUZZ_CHECK(table.stats().entries <= 2 && table.stats().entries == table.stats().prefixes);
    if (!read.event->prefix) FUZZ_CHECK(table.stats().entries == 0);
  }
  return 0;
}
