// A hostile peer: a frame is refused with a reason, or what it says can be written and read again. With a key only
// what the key wrote is read.
#include <string>

#include "fuzz.h"
#include "peer_sync/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  const std::string_view bytes = AsText(data, size);
  PeerFrame frame;
  for (const std::string_view key : {"", "secret"}) {
    const Status status = ReadFrame(bytes, key, &frame);
    if (!status.ok()) {
      FUZZ_CHECK(!status.message().empty());
      continue;
    }
    size_t strides = 0;
    for (const PeerFrame::Decision& decision : frame.decisions) {
      FUZZ_CHECK(decision.strides <= kMaxFrameStrides);
      strides += decision.strides;
    }
    FUZZ_CHECK(strides == frame.strides.size());
    std::string written;
    WriteFrame(frame, key, &written);
    FUZZ_CHECK(
        written.size() <= bytes.size());  // sections of later versions and long numbers are not repeated
    PeerFrame again;
    FUZZ_CHECK(ReadFrame(written, key, &again).ok());
    FUZZ_CHECK(again == frame);
  }
  return 0;
}
