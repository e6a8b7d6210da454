// SseReader: the events of a text/event-stream (WHATWG HTML, 9.2), from bytes in whatever pieces they come.
//
//   : a comment            ignored
//   event: cache_created   type()
//   data: {"a":            data() = {"a":\n1}
//   data: 1}
//   id: 7                  last_id(), from the end of the event on
//   retry: 2000            retry_ms()
//                          the empty line ends the event; one without data is none
//
// Lines end with LF, CR or CRLF. An event or line that exceeds the limit ends the reading for good, so
// memory is bounded by the limit.
//
//   while ((step = reader.Next(&bytes)) == SseReader::Step::kEvent) Use(reader.type(), reader.data());
//
// Cost: a search for line ends, and a copy of the data. Sans-io; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace vllm_router {

// The first CR or LF; npos: there is none. Cost: two vectorised searches in each block of 64 bytes, where find_first_of()
// makes a call for each byte. Text with one kind of ends alone is not searched to its end for the other.
size_t FindLineEnd(std::string_view text);

class SseReader {
 public:
  static constexpr size_t kMaxIdBytes = 256;

  explicit SseReader(size_t max_event_bytes) : max_event_bytes_(max_event_bytes) {}

  enum class Step : uint8_t { kNeedMore, kEvent, kTooLong };
  // Takes bytes off the front of `bytes`, up to the end of an event or all of them.
  Step Next(std::string_view* bytes);

  // Of the last event, until the next call.
  std::string_view type() const { return type_; }  // empty: not named
  std::string_view data() const { return data_; }

  // Empty without one. Ids that could not stand in a header field are not kept.
  const std::string& last_id() const { return last_id_; }
  std::optional<uint64_t> retry_ms() const { return retry_ms_; }

 private:
  void Field(std::string_view line);
  bool IsTooLong(size_t more) const { return type_.size() + data_.size() + more > max_event_bytes_; }

  const size_t max_event_bytes_;
  std::string line_;  // unfinished
  std::string type_;
  std::string data_;  // with an LF behind each line until the event ends
  std::string id_;
  std::string last_id_;
  std::optional<uint64_t> retry_ms_;
  bool first_line_ = true;
  bool after_cr_ = false;  // an LF that comes next belongs to the same line end
  bool ended_ = false;     // the fields are those of an event that was returned
  bool too_long_ = false;
};

}  // namespace vllm_router
