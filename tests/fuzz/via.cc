// Via fields of a hostile client: whatever they say, no more hops are counted than were named, and ours is found in front.
#include "http/via.h"

#include <string>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  const std::string own = HopName(7);
  const std::string text(AsText(data, size));
  const size_t half = size / 2;
  const std::string_view values[] = {
      std::string_view(text).substr(0, half), std::string_view(text).substr(half)};
  const Hops hops = ReadVia(values, own);
  FUZZ_CHECK(hops.routers >= 0 && static_cast<size_t>(hops.routers) <= size);
  if (hops.own) FUZZ_CHECK(hops.routers >= 1);

  const std::string with_own = "1.1 " + own;
  const std::string_view more[] = {with_own, values[0], values[1]};
  const Hops found = ReadVia(more, own);
  FUZZ_CHECK(found.own && found.routers == hops.routers + 1);
  return 0;
}
