// Where the file of classes says so, the engine is told the class of a chat or a completion, so that it serves them in that
// order when it queues. In other requests, and in those to paths that are not known here, a member of the client's own is
// treated likewise, and none is added. Behind the key, which is that of the client's body. All attempts send the same.
#include <memory>
#include <optional>
#include <string>

#include "proxy/admission/admission_feature.h"
#include "proxy/admission/class_pools.h"
#include "proxy/admission/engine_priority.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "routing/body_map.h"

namespace vllm_router {
namespace {

struct PriorityText {
  std::string text;
};

bool HasMember(const Request& request) {
  return request.info.route == Route::kChatCompletions || request.info.route == Route::kCompletions;
}

bool TellEngine(Request& request) {
  // The body of a long upload is not held, so there is nothing to be edited.
  if (!MayCompute(request) || request.stream_body || !request.fully_read()) return false;
  const std::shared_ptr<const AdmissionSettings> settings = ClassSettingsOf(request);
  if (settings == nullptr || !settings->engine.is_told) return false;
  std::optional<BodyMap> own;
  const BodyMap* const known = request.edits.members();
  if (known == nullptr) own = BodyMap::Read(request.body->held());
  const BodyMap& body = known != nullptr ? *known : *own;
  if (!HasMember(request) && body.Find("priority") == nullptr) return false;
  auto& held = request.state.Emplace<PriorityText>();
  std::vector<BodyInsertion> edits = PriorityEdits(body, settings->engine, ClassOf(request), &held.text);
  if (edits.empty()) return false;
  request.edits.Insert(std::move(edits));
  request.edits.MakeCopy(request.body->held());
  return false;
}

}  // namespace

extern constexpr Step kEnginePriorityStep = {.name = "engine_priority", .begin = &TellEngine};

}  // namespace vllm_router
