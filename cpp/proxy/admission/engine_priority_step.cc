// Where the file of classes says so, the engine is told the class of a chat or a completion, so that it serves them in that
// order when it queues. Behind the key, which is that of the client's body. All attempts send the same.
#include <memory>
#include <optional>
#include <string>

#include "proxy/admission/admission_feature.h"
#include "proxy/admission/class_pools.h"
#include "proxy/admission/engine_priority.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/thread/io_thread.h"
#include "routing/body_map.h"

namespace vllm_router {
namespace {

struct PriorityText {
  std::string text;
};

// Null: no engine is told.
const EnginePriority* EngineOf(const Request& request) {
  auto* const thread = request.thread.features.Find<ThreadClasses>();
  if (thread == nullptr) return nullptr;
  const std::shared_ptr<const AdmissionSettings>& settings = thread->rules.Get()->settings;
  const bool has_member =
      request.info.route == Route::kChatCompletions || request.info.route == Route::kCompletions;
  return settings != nullptr && settings->engine.is_told && has_member ? &settings->engine : nullptr;
}

bool TellEngine(Request& request) {
  const EnginePriority* const engine = EngineOf(request);
  // The body of a long upload is not held, so there is nothing to be edited.
  if (engine == nullptr || request.stream_body || !request.fully_read()) return false;
  auto of_class = PriorityClass::kDefault;
  if (const IdentityInfo* const identity = request.info.identity.get())
    of_class = PriorityClassByName(identity->priority_class).value_or(PriorityClass::kDefault);
  std::optional<BodyMap> own;
  const BodyMap* const known = request.edits.members();
  if (known == nullptr) own = BodyMap::Read(request.body->held());
  auto& held = request.state.Emplace<PriorityText>();
  std::vector<BodyInsertion> edits =
      PriorityEdits(known != nullptr ? *known : *own, *engine, of_class, &held.text);
  if (edits.empty()) return false;
  request.edits.Insert(std::move(edits));
  request.edits.MakeCopy(request.body->held());
  return false;
}

}  // namespace

extern constexpr Step kEnginePriorityStep = {.name = "engine_priority", .begin = &TellEngine};

}  // namespace vllm_router
