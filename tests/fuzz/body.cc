// A body, chunked or counted, whole and byte by byte: the same data, the same end, the same complaint. A chunked body
// that we accept is the same to Beast, which takes no blanks between a chunk's size and the end of its line, as we do from
// workers: those are left out for it.
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

// The lines of a body in good order, blanks directly before the CRLF of a chunk's size line left out.
std::string WithoutBlanks(std::string_view body) {
  std::string without;
  for (;;) {
    const size_t size_line = body.find("\r\n");
    const size_t digits = body.find_first_not_of("0123456789abcdefABCDEF");
    FUZZ_CHECK(size_line != std::string_view::npos);
    const bool only_blanks =
        body.substr(digits, size_line - digits).find_first_not_of(" \t") == std::string_view::npos;
    without += body.substr(0, only_blanks ? digits : size_line);
    const size_t size = std::stoull(std::string(body.substr(0, digits)), nullptr, 16);
    if (size == 0) return without.append(body.substr(size_line));
    without += body.substr(size_line, size + 4);
    body.remove_prefix(size_line + size + 4);
  }
}

void CompareWithBeast(std::string_view bytes, MessageKind kind) {
  const Reading ours =
      Read(BodyReader(BodyFraming::kChunked, 0, kind), bytes, std::max<size_t>(bytes.size(), 1));
  if (ours.last != BodyReader::Event::kEnd) return;
  const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string body(bytes.substr(0, ours.used));
  const std::string plain = kind == MessageKind::kRequest ? body : WithoutBlanks(body);
  BeastReader<false> beast;
  const size_t used = beast.Read(head + plain);
  FUZZ_CHECK(!beast.failed && beast.is_done());
  FUZZ_CHECK(used == head.size() + plain.size());
  FUZZ_CHECK(beast.body == ours.data);
}

}  // namespace
}  // namespace vllm_router

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  const std::string_view bytes = AsText(data, size);
  for (const MessageKind kind : {MessageKind::kRequest, MessageKind::kResponse}) {
    Try(BodyReader(BodyFraming::kChunked, 0, kind), bytes);
    CompareWithBeast(bytes, kind);
  }
  Try(BodyReader(BodyFraming::kLength, size == 0 ? 0 : data[0], MessageKind::kRequest), bytes);
  Try(BodyReader(BodyFraming::kUntilClose, 0, MessageKind::kResponse), bytes);
  return 0;
}
