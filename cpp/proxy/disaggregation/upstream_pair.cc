#include "proxy/disaggregation/upstream_pair.h"

#include <algorithm>
#include <utility>

#include "disaggregation/merged_response.h"
#include "disaggregation/pair_id.h"
#include "disaggregation/push_identity.h"
#include "disaggregation/sglang_connector.h"
#include "proxy/api/settings.h"
#include "proxy/disaggregation/push_identities.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

PairEnd EndOf(const Worker& worker) {
  PairEnd end{
      .host = worker.url.host,
      .port = worker.url.port,
      .rank = worker.url.rank,
      .bootstrap_port = worker.bootstrap_port};
  if (worker.peer) {
    end.zmq_address = worker.peer->zmq_address;
    end.tp_size = worker.peer->tp_size;
    end.dp_size = worker.peer->dp_size;
  }
  return end;
}

// The mode that both registered; null if they did not, or each registered another one.
std::optional<MoriioMode> ModeOf(const Worker& prefill, const Worker& decode) {
  if (!prefill.peer || !decode.peer || prefill.peer->mode != decode.peer->mode) return std::nullopt;
  return prefill.peer->mode;
}

bool IsStream(const BodyMap& body) {
  const BodyMap::Member* const stream = body.Find("stream");
  return stream != nullptr && stream->type == BodyMap::Type::kTrue;
}

}  // namespace

UpstreamPair::UpstreamPair(
    PdExchange& owner, IoThread& thread, const Settings& settings, RequestInfo& info,
    const PairRequest& request, PairChoice& choice, const UpstreamPair* before)
    : owner_(owner), thread_(thread), settings_(settings), info_(info), request_(request), choice_(choice) {
  const bool has_own_prefill = choice.prefill().selected.has_value();
  if (before == nullptr || has_own_prefill) return;
  prefill_ = before->prefill_;
  source_ = before->source_;
}

std::optional<PdAttempt> UpstreamPair::Plan(PdAttemptKind kind) {
  const KvConnector::Traits& traits = request_.connector->traits();
  PdAttempt attempt{
      .kind = kind, .rebindable = traits.rebindable, .decode_can_prefill = traits.decode_can_prefill};
  if (kind != PdAttemptKind::kPair && kind != PdAttemptKind::kDecodeOnly) return attempt;
  Name();
  order_ = request_.connector->OrderOf(Attempt());
  attempt.order = order_;
  if (kind == PdAttemptKind::kDecodeOnly) return attempt;
  // With half of what they need, workers wait for each other.
  if (!request_.connector->Missing(Attempt()).empty()) {
    choice_.prefill().selected.reset();
    if (traits.decode_can_prefill) return PlanAlone();
    choice_.decode().selected.reset();
    return std::nullopt;
  }
  // No other request could probe the worker for as long as prefill computes.
  std::optional<BreakerPass>& pass = choice_.decode().selected->pass;
  if (order_ == PdOrder::kSerial && pass->probe()) pass.reset();
  return attempt;
}

// Decode serves the request, since the pair cannot be told what it needs.
PdAttempt UpstreamPair::PlanAlone() {
  id_.clear();
  info_.pd->pair_id.clear();
  info_.pd->prefill = nullptr;
  info_.pd->local = "not_registered";
  return {.kind = PdAttemptKind::kLocal};
}

// ---- what the workers are told

void UpstreamPair::Name() {
  const Worker& prefill = *choice_.prefill().worker;
  const KvConnector::Traits& traits = request_.connector->traits();
  bits_ = {.high = thread_.ids.Next(), .low = thread_.ids.Next()};
  id_ = NewPairId(
      *request_.connector, EndOf(prefill), EndOf(*choice_.decode().worker),
      request_.message.client.request_id, bits_, settings_.pd.request_id == PdRequestId::kPlain);
  info_.pd->pair_id = id_;
  engine_id_ = traits.names_engine ? prefill.engine_id.Load() : nullptr;
  rooms_.clear();
  if (!traits.meets_in_rooms) return;
  const uint32_t rank = prefill.url.rank.value_or(0);
  const size_t count = request_.plan->listed_prompts.value_or(1);
  for (size_t i = 0; i < count; ++i) rooms_.push_back(DrawRoom(thread_.ids.Next(), rank, RanksOfPrefill()));
}

// A worker that has not registered has at least the ranks up to its own.
uint32_t UpstreamPair::RanksOfPrefill() const {
  return std::max(
      thread_.router->ranks_of(Stage::kPrefill), choice_.prefill().worker->url.rank.value_or(0) + 1);
}

PairAttempt UpstreamPair::Attempt() const {
  const Worker& prefill = *choice_.prefill().worker;
  const Worker& decode = *choice_.decode().worker;
  PairAttempt pair{
      .id = id_,
      .prefill = EndOf(prefill),
      .decode = EndOf(decode),
      .bits = bits_,
      .moriio_mode = ModeOf(prefill, decode),
      .rooms = rooms_,
      .listed_prompts = request_.plan->listed_prompts,
      .rank_fields = settings_.pd.sglang_rank_fields};
  if (engine_id_ != nullptr) {
    pair.prefill.engine_id = *engine_id_;
    if (!pair.prefill.bootstrap_port) pair.prefill.bootstrap_port = settings_.pd.bootstrap_port;
  }
  if (!rooms_.empty() && pair.prefill.rank) pair.prefill.dp_size = RanksOfPrefill();
  pair.prefill.push = thread_.features.Find<PushIdentities>()->Find(prefill.id);
  return pair;
}

// ---- the legs

StageLeg::Setup UpstreamPair::SetupFor(std::string id) const {
  return {
      .message = request_.message,
      .id = std::move(id),
      .body = request_.body,
      .connector = request_.connector,
      .insertions = request_.insertions,
      .max_bytes = settings_.pd.prefill_response_bytes,
      .must_hand_over = order_ == PdOrder::kSerial && request_.connector->traits().needs_parameters};
}

void UpstreamPair::OpenPrefill(ServerErrors& errors) {
  PairChoice::Side& side = choice_.prefill();
  StageLeg::Setup setup = SetupFor(id_);
  setup.patch = PrefillPatch(request_.route, *request_.body, *request_.connector, Attempt());
  setup.message.pair = {
      .is_prefill = true, .identity = true, .first_byte_timeout_ms = settings_.pd.prefill_timeout_ms};
  setup.may_merge = MergesLogprobs();
  setup.keeps_usage = MergesUsage();
  prefill_info_.chosen_ns = info_.chosen_ns;
  prefill_ = &own_prefill_.emplace(owner_, thread_, prefill_info_, Stage::kPrefill);
  prefill_->Start(settings_, errors, std::move(setup), *std::move(side.selected), side.lost);
  side.selected.reset();
}

void UpstreamPair::OpenDecode(ServerErrors& errors, bool with_parameters) {
  PairChoice::Side& side = choice_.decode();
  StageLeg::Setup setup = SetupFor(is_pair() ? id_ : std::string(request_.message.client.request_id));
  setup.has_parameters = with_parameters;
  const bool merges_usage = with_parameters && MergesUsage() && !IsStream(*request_.body);
  setup.may_merge = is_pair() && (MergesLogprobs() || merges_usage);
  if (with_parameters) {
    std::optional<std::string_view> parameters;
    if (source_ != nullptr) parameters = source_->result().prefill.parameters;
    setup.patch = DecodePatch(request_.route, *request_.plan, *request_.connector, Attempt(), parameters);
  } else if (is_pair()) {
    setup.patch = DecodePatchWithout(request_.route, *request_.plan, *request_.connector, Attempt());
  } else {
    setup.patch = request_.plan->plain;
  }
  // A response that is no stream begins when it is complete, and where both get their requests at once, the time
  // includes prefill's. There the health check of prefill tells that blocks will not come.
  const bool transfers = with_parameters && order_ == PdOrder::kSerial && IsStream(*request_.body);
  setup.message.pair = {.first_byte_timeout_ms = transfers ? settings_.pd.transfer_timeout_ms : 0};
  info_.pd->transferred = with_parameters;
  decode_ = &own_decode_.emplace(owner_, thread_, info_, Stage::kDecode);
  decode_->Start(settings_, errors, std::move(setup), *std::move(side.selected), side.lost);
  side.selected.reset();
}

bool UpstreamPair::WaitsForBlocksOf(const Worker& worker) const {
  return source_ != nullptr && source_->worker().get() == &worker && decode_ != nullptr && decode_->runs() &&
         decode_->has_parameters();
}

void UpstreamPair::LearnIdentity() const {
  if (prefill_ == nullptr) return;
  const PrefillResponse& response = prefill_->result().prefill;
  if (!response.pushes || !response.parameters) return;
  std::optional<PushIdentity> identity = ReadPushIdentity(BodyMap::Read(*response.parameters));
  if (identity) {
    thread_.features.Find<PushIdentities>()->Learn(choice_.prefill().worker->id, *std::move(identity));
  }
}

// ---- what decode's response gets of prefill's

bool UpstreamPair::MergesLogprobs() const {
  return settings_.pd.logprobs == PdLogprobs::kMerge && WantsMerge(request_.route, *request_.body);
}

bool UpstreamPair::MergesUsage() const {
  return settings_.pd.usage == PdUsage::kMerge &&
         (request_.route == PdRoute::kCompletions || request_.route == PdRoute::kChat);
}

const std::string* UpstreamPair::usage_for_decode() const {
  const bool merges = prefill_ != nullptr && decode_ != nullptr && decode_->has_parameters();
  return merges && MergesUsage() ? &prefill_->result().usage : nullptr;
}

std::string UpstreamPair::MergedBody() const {
  std::string body = decode_->body();
  const auto use = [&body](std::optional<std::string> merged) {
    if (merged) body = *std::move(merged);
  };
  if (prefill_ != nullptr && MergesLogprobs()) use(MergeResponses(request_.route, prefill_->body(), body));
  const std::string* const usage = usage_for_decode();
  if (usage != nullptr && !usage->empty()) use(MergeUsage(*usage, body));
  return body;
}

}  // namespace vllm_router
