#include "http/body_reader.h"

#include <algorithm>

namespace vllm_router {

BodyReader::BodyReader(BodyFraming framing, uint64_t content_length, MessageKind kind)
    : framing_(framing),
      ended_(framing == BodyFraming::kNone || (framing == BodyFraming::kLength && content_length == 0)),
      left_(framing == BodyFraming::kLength ? content_length : 0),
      chunked_(kind) {}

BodyReader::Step BodyReader::Feed(std::string_view input) {
  if (ended_) return {Event::kEnd, 0, {}};
  switch (framing_) {
    case BodyFraming::kLength: {
      if (input.empty()) return {Event::kNeedMore, 0, {}};
      const size_t size = static_cast<size_t>(std::min<uint64_t>(left_, input.size()));
      left_ -= size;
      ended_ = left_ == 0;
      return {Event::kData, size, input.substr(0, size)};
    }
    case BodyFraming::kUntilClose:
      if (input.empty()) return {Event::kNeedMore, 0, {}};
      return {Event::kData, input.size(), input};
    default: {
      const ChunkedScanner::Step step = chunked_.Feed(input);
      ended_ = step.event == ChunkedScanner::Event::kEnd;
      return {static_cast<Event>(step.event), step.used, step.data};
    }
  }
}

bool BodyReader::EndOfConnection() {
  if (framing_ == BodyFraming::kUntilClose) ended_ = true;
  return ended_;
}

// Feed() hands the scanner's events on by value.
static_assert(
    static_cast<int>(BodyReader::Event::kNeedMore) == static_cast<int>(ChunkedScanner::Event::kNeedMore));
static_assert(static_cast<int>(BodyReader::Event::kData) == static_cast<int>(ChunkedScanner::Event::kData));
static_assert(static_cast<int>(BodyReader::Event::kEnd) == static_cast<int>(ChunkedScanner::Event::kEnd));
static_assert(static_cast<int>(BodyReader::Event::kBad) == static_cast<int>(ChunkedScanner::Event::kBad));

}  // namespace vllm_router
