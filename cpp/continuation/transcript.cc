#include "continuation/transcript.h"

#include <algorithm>
#include <string>

#include "base/text.h"

namespace vllm_router {
namespace {

constexpr std::string_view kLetters = "crfna";
static_assert(kLetters.size() == kTextKinds);

std::string MarkOf(TextKind kind, uint64_t call) {
  const bool is_of_call = kind == TextKind::kToolName || kind == TextKind::kToolArguments;
  std::string mark = Concat("\xff", kLetters.substr(static_cast<size_t>(kind), 1));
  if (is_of_call) mark += Concat(call);
  mark += '\xfe';
  return mark;
}

}  // namespace

void Transcript::Add(TextKind kind, uint64_t call, std::string_view text) {
  if (text.empty()) return;
  if (!GoesOn(kind, call)) digest_.Add(MarkOf(kind, call));
  digest_.Add(text);
  kind_ = kind;
  call_ = call;
  if (kind == TextKind::kToolName || kind == TextKind::kToolArguments) calls_ = std::max(calls_, call + 1);
}

size_t Transcript::MarkBytes(TextKind kind, uint64_t call) const {
  return GoesOn(kind, call) ? 0 : MarkOf(kind, call).size();
}

}  // namespace vllm_router
