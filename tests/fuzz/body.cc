// A body, chunked or counted, whole and byte by byte: the same data, the same end, the same complaint. A chunked body
// that we accept is the same to Beast.
#include <algorithm>
#include <string>

#include "beast.h"
#include "fuzz.h"
#include "http/body_reader.h"

namespace vllm_router {
namespace {

struct Reading {
  BodyReader::Event last = BodyReader::Event::kNeedMore;
  size_t used = 0;
  std::string data;
  bool operator==(const Reading&) const = default;
};

Reading Read(BodyReader reader, std::string_view bytes, size_t piece) {
  Reading reading;
  if (reader.ended()) return reading;
  for (size_t begin = 0; begin < bytes.size(); begin += piece) {
    std::string_view rest = bytes.substr(begin, piece);
    for (;;) {
      const BodyReader::Step step = reader.Feed(rest);
      FUZZ_CHECK(step.used <= rest.size());
      FUZZ_CHECK(Inside(step.data, rest.substr(0, step.used)));
      reading.data += step.data;
      // How much of a bad byte's neighbourhood was looked at may depend on the pieces; where data ends may not.
      if (step.event != BodyReader::Event::kBad) reading.used += step.used;
      reading.last = step.event;
      if (step.event == BodyReader::Event::kBad) FUZZ_CHECK(!reader.error().empty());
      if (step.event == BodyReader::Event::kEnd || step.event == BodyReader::Event::kBad) return reading;
      if (step.event == BodyReader::Event::kNeedMore) break;
      FUZZ_CHECK(step.used > 0 || !step.data.empty());
      rest.remove_prefix(step.used);
    }
  }
  return reading;
}

void Try(const BodyReader& reader, std::string_view bytes) {
  const Reading whole = Read(reader, bytes, std::max<size_t>(bytes.size(), 1));
  for (const size_t piece : {1, 2, 7}) {
    const Reading pieces = Read(reader, bytes, piece);
    FUZZ_CHECK(pieces.data == whole.data);
    FUZZ_CHECK((pieces.last == BodyReader::Event::kBad) == (whole.last == BodyReader::Event::kBad));
    FUZZ_CHECK((pieces.last == BodyReader::Event::kEnd) == (whole.last == BodyReader::Event::kEnd));
    if (whole.last == BodyReader::Event::kEnd) FUZZ_CHECK(pieces.used == whole.used);
  }
}

void CompareWithBeast(std::string_view bytes) {
  const Reading ours = Read(BodyReader(BodyFraming::kChunked, 0), bytes, std::max<size_t>(bytes.size(), 1));
  if (ours.last != BodyReader::Event::kEnd) return;
  const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  BeastReader<false> beast;
  const size_t used = beast.Read(head + std::string(bytes));
  FUZZ_CHECK(!beast.failed && beast.is_done());
  FUZZ_CHECK(used == head.size() + ours.used);
  FUZZ_CHECK(beast.body == ours.data);
}

}  // namespace
}  // namespace vllm_router

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  const std::string_view bytes = AsText(data, size);
  Try(BodyReader(BodyFraming::kChunked, 0), bytes);
  CompareWithBeast(bytes);
  Try(BodyReader(BodyFraming::kLength, size == 0 ? 0 : data[0]), bytes);
  Try(BodyReader(BodyFraming::kUntilClose, 0), bytes);
  return 0;
}
