// Two runs of hostile workers, the first one up to the first NUL: what goes to the client is whole events, does not depend
// on where pieces end, and makes of the first run's text the second one's. A gate loses no byte.
#include "continuation/rerun_verifier.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "continuation/delivered_text.h"
#include "continuation/event_gate.h"
#include "fuzz.h"

namespace {

using namespace vllm_router;

template <typename Take>
void ForEachPiece(std::string_view bytes, size_t piece, Take take) {
  for (size_t begin = 0; begin < bytes.size(); begin += piece) take(bytes.substr(begin, piece));
}

// The whole events of a stream up to its ending.
std::string Gated(std::string_view stream, size_t piece) {
  EventGate gate;
  std::string passed;
  ForEachPiece(stream, piece, [&](std::string_view bytes) { passed += gate.Take(bytes); });
  FUZZ_CHECK(passed + std::string(gate.held()) == stream);
  return passed;
}

DeliveredText Delivered(std::string_view stream, size_t piece) {
  DeliveredText delivered;
  ForEachPiece(stream, piece, [&](std::string_view bytes) { delivered.Add(bytes); });
  return delivered;
}

struct Verified {
  RerunState state;
  RerunProblem problem;
  std::string to_client;

  bool operator==(const Verified&) const = default;
};

Verified Verify(const DeliveredText& delivered, std::string_view second, size_t piece) {
  RerunVerifier verifier(delivered);
  std::string to_client;
  ForEachPiece(second, piece, [&](std::string_view bytes) { verifier.Add(bytes, &to_client); });
  return {.state = verifier.state(), .problem = verifier.problem(), .to_client = to_client};
}

const DeliveredText::Choice* Find(const DeliveredText& delivered, uint64_t index) {
  const auto found = std::ranges::find(delivered.choices(), index, &DeliveredText::Choice::index);
  return found == delivered.choices().end() ? nullptr : &*found;
}

// What the client has of each choice is a part of the second run, or all of it.
void CheckTexts(const DeliveredText& before, const DeliveredText& after, const DeliveredText& second) {
  for (const DeliveredText::Choice& choice : before.choices()) {
    const DeliveredText::Choice* const has = Find(after, choice.index);
    const DeliveredText::Choice* const said = Find(second, choice.index);
    FUZZ_CHECK(has != nullptr);
    if (said == nullptr) {
      FUZZ_CHECK(choice.said.bytes() == 0);
    } else {
      FUZZ_CHECK(has->said.digest() == said->said.digest());
    }
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = AsText(data, size);
  const size_t end = std::min(text.find('\0'), text.size());
  const std::string_view second = text.substr(std::min(end + 1, text.size()));
  const std::string first = Gated(text.substr(0, end), size + 1);
  for (const size_t piece : {1, 13}) Gated(second, piece);

  const DeliveredText delivered = Delivered(first, size + 1);
  FUZZ_CHECK(Delivered(first, 1).ok() == delivered.ok());
  if (!delivered.ok()) return 0;
  const Verified whole = Verify(delivered, second, size + 1);
  for (const size_t piece : {1, 13}) FUZZ_CHECK(Verify(delivered, second, piece) == whole);
  FUZZ_CHECK((whole.state == RerunState::kDiffers) == (whole.problem != RerunProblem::kNone));
  for (std::string_view rest = whole.to_client; !rest.empty();) {
    const size_t event = EventEnd().Find(rest);
    FUZZ_CHECK(event != std::string_view::npos);
    rest.remove_prefix(event);
  }
  if (whole.state != RerunState::kCaughtUp) return 0;
  const DeliveredText after = Delivered(first + whole.to_client, size + 1);
  const DeliveredText all = Delivered(second, size + 1);
  if (after.ok() && all.ok()) CheckTexts(delivered, after, all);
  return 0;
}
