// Where programs are told apart, a request that names its conversation is a turn of one: it waits while its program is
// paused. Without programs it costs a comparison.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/limits.h"
#include "base/text.h"
#include "hashing/hash.h"
#include "proxy/admission/admission_feature.h"
#include "proxy/admission/class_pools.h"
#include "proxy/admission/program_turn.h"
#include "proxy/admission/programs.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/requested_model.h"
#include "proxy/exchange/step.h"
#include "proxy/thread/io_thread.h"
#include "routing/body_map.h"
#include "routing/conversation.h"
#include "routing/session_names.h"

namespace vllm_router {
namespace {

// Null: it is no turn.
std::shared_ptr<const ProgramSettings> SettingsOf(const Request& request) {
  auto* const thread = request.thread.features.Find<ThreadPrograms>();
  if (thread == nullptr) return nullptr;
  const std::shared_ptr<const ProgramSettings>& settings = thread->settings.Get();
  if (!settings->is_on()) return nullptr;
  const bool is_turn = request.head->method == "POST" && request.route().generates;
  return is_turn ? settings : nullptr;
}

// Where a header names it the body need not, and to observe changes nothing on the wire.
uint64_t ProgramBytesNeeded(const Request& request) {
  const std::shared_ptr<const ProgramSettings> settings = SettingsOf(request);
  if (settings == nullptr || settings->mode != ProgramMode::kOn) return 0;
  return HeadersNameConversation(request.head->fields) ? 0 : kRoutedBodyBytes;
}

// The name that the reference router takes: vllm_xargs.agentic_context.program_id, where the context is an object or, since
// vLLM takes only texts and numbers there, a text of one. Empty: the body has none.
std::string ProgramInBody(std::string_view body) {
  constexpr std::string_view kContext = "agentic_context";
  if (body.find(kContext) == std::string_view::npos) return {};
  const BodyMap whole = BodyMap::Read(body);
  const BodyMap::Member* const arguments = whole.Find("vllm_xargs");
  if (arguments == nullptr || arguments->type != BodyMap::Type::kObject) return {};
  const BodyMap inside = BodyMap::Read(arguments->value);
  const BodyMap::Member* const context = inside.Find(kContext);
  if (context == nullptr) return {};
  const std::string text = context->Text().value_or(std::string(context->value));
  const BodyMap names = BodyMap::Read(text);
  const BodyMap::Member* const program = names.Find("program_id");
  if (program == nullptr) return {};
  std::string name = program->Text().value_or("");
  return name.size() <= kMaxSessionNameBytes ? name : std::string();
}

// What names its program; without a header that of the body, if it is held, is kept as its session's.
const SessionInfo* NamesOf(Request& request) {
  if (request.info.session == nullptr && request.fully_read() && !request.stream_body) {
    std::string name = ProgramInBody(request.body->held());
    if (name.empty()) return nullptr;
    request.info.session = std::make_unique<SessionInfo>();
    request.info.session->session = std::move(name);
  }
  return request.info.session.get();
}

// A byte that no name has parts them.
ProgramTable::Who WhoOf(const Request& request, const SessionInfo& names) {
  constexpr std::string_view kPart("\0", 1);
  ProgramTable::Who who{.of_class = ClassOf(request)};
  std::string_view tenant;
  if (const IdentityInfo* const identity = request.info.identity.get()) {
    tenant = identity->tenant;
    who.tenant = Xxh3(tenant);
    if (const std::shared_ptr<const AdmissionSettings> classes = ClassSettingsOf(request))
      who.weight = classes->WeightOf(tenant);
  }
  std::string_view model;
  if (request.workers.model != nullptr) {
    model = request.workers.model->name();
    who.pool = Xxh3(model);
  }
  who.name = Xxh3Of128(Concat(tenant, kPart, names.session, kPart, names.agent, kPart, model));
  return who;
}

// Where the policy reads no prompt, its bytes may be those of an image: they count for no more than a short prompt until its
// worker has told.
uint64_t PromptOf(const Request& request) {
  constexpr uint64_t kMostEstimated = 8'192;
  const bool is_counted = request.key.prompt_tokens > 1;
  const uint64_t tokens = PromptTokensOf(request, is_counted);
  return is_counted ? tokens : std::min(tokens, kMostEstimated);
}

bool MustWait(Request& request) {
  if (SettingsOf(request) == nullptr) return false;
  const SessionInfo* const names = NamesOf(request);
  if (names == nullptr) return false;
  auto& thread = *request.thread.features.Find<ThreadPrograms>();
  const ProgramTurn::Claim claim{
      .who = WhoOf(request, *names), .prompt = PromptOf(request), .output = request.key.expected_output};
  return !request.state.Emplace<ProgramTurn>(request, thread, claim).TryPass();
}

Task<Verdict> WaitForProgram(Request& request) { return request.state.Find<ProgramTurn>()->Run(); }

void FollowResponse(Request& request, const ResponseHead& /*response*/) {
  if (auto* const turn = request.state.Find<ProgramTurn>()) turn->Responded();
}

// nullopt: no worker computed anything of it.
std::optional<ProgramTable::Use> UseOf(const RequestInfo& info, const ProgramTurn& turn) {
  if (info.worker == nullptr) return std::nullopt;
  if (info.prompt_tokens) {
    return ProgramTable::Use{
        .prompt = *info.prompt_tokens,
        .cached = info.cached_tokens.value_or(0),
        .output = info.completion_tokens.value_or(info.events)};
  }
  const bool is_served = info.status >= 200 && info.status < 300;
  if (!is_served) return std::nullopt;
  return ProgramTable::Use{.prompt = turn.prompt(), .output = info.completion_tokens.value_or(info.events)};
}

void EndTurn(Request& request) {
  auto* const turn = request.state.Find<ProgramTurn>();
  if (turn == nullptr) return;
  const RequestInfo& info = request.info;
  if (info.worker != nullptr) {
    turn->Responded();
    const int64_t now_ns = request.thread.clock.NowNanos();
    request.thread.features.Find<ThreadPrograms>()->turns.Add(now_ns - info.head_ns);
  }
  turn->End(UseOf(info, *turn), info.session->is_final);
}

// ---- behind the place of its class

bool TakeGate(Request& request) {
  if (auto* const turn = request.state.Find<ProgramTurn>()) turn->TakeGate();
  return false;
}

}  // namespace

extern constexpr Step kProgramStep = {
    .name = "program",
    .begin = &MustWait,
    .run = &WaitForProgram,
    .needs = &ProgramBytesNeeded,
    .on_response = &FollowResponse,
    .on_end = &EndTurn};
extern constexpr Step kProgramGateStep = {.name = "program_gate", .begin = &TakeGate};

}  // namespace vllm_router
