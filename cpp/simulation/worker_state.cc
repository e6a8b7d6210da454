#include "simulation/worker_state.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/text.h"
#include "http/head_writer.h"
#include "simulation/block_chain.h"

namespace vllm_router {

namespace {

constexpr std::pair<std::string_view, SimRoute> kPaths[] = {
    {"/v1/chat/completions", SimRoute::kChat},
    {"/v1/completions", SimRoute::kCompletions},
    {"/v1/responses", SimRoute::kResponses},
    {"/v1/messages", SimRoute::kMessages},
    {"/inference/v1/generate", SimRoute::kGenerate},
    {"/v1/embeddings", SimRoute::kEmbeddings},
    {"/tokenize", SimRoute::kTokenize},
    {"/detokenize", SimRoute::kDetokenize},
    {"/v1/messages/count_tokens", SimRoute::kCountTokens},
    {"/v1/responses/input_tokens", SimRoute::kInputTokens},
    {"/v1/messages/render", SimRoute::kRenderMessages},
    {"/v1/responses/render", SimRoute::kRenderResponses},
    {"/v1/conversations", SimRoute::kConversations},
    {"/v1/models", SimRoute::kModels},
    {"/health", SimRoute::kHealth},
    {"/ping", SimRoute::kPing},
    {"/version", SimRoute::kVersion},
    {"/load", SimRoute::kLoad},
    {"/metrics", SimRoute::kMetrics},
    {"/reset_prefix_cache", SimRoute::kReset},
    {"/kv_event_sources", SimRoute::kKvEventSources},
    {"/kv_cache_events", SimRoute::kKvCacheEvents},
    {"/stats", SimRoute::kStats},
    {"/echo", SimRoute::kEcho},
};

// JSON of exactly this many bytes; below ten bytes blanks pad it, and one byte is the number zero.
std::string FixedBody(size_t bytes) {
  if (bytes == 0) return "";
  if (bytes == 1) return "0";
  constexpr std::string_view kBegin = "{\"pad\":\"", kEnd = "\"}";
  if (bytes < kBegin.size() + kEnd.size()) return "{}" + std::string(bytes - 2, ' ');
  std::string body(kBegin);
  body.append(bytes - kBegin.size() - kEnd.size(), 'x').append(kEnd);
  return body;
}

// No request can be longer than the engine's memory: it would wait for ever. vLLM does not start with a
// longer context. REQUIRES: checked.
SimulatedWorkerOptions Fitted(SimulatedWorkerOptions options) {
  if (!options.tool_script.empty()) {
    options.model.script = std::make_shared<const ToolScript>(*ToolScript::Parse(options.tool_script));
  }
  const uint64_t tokens = options.engine.cache_blocks * options.engine.block_tokens;
  if (tokens > 0) options.model.max_model_len = std::min<size_t>(options.model.max_model_len, tokens);
  return options;
}

KvEventFaults KvFaultsOf(const Faults& faults) {
  return {faults.kv_drop_batches, faults.kv_garbage_batches, faults.kv_stall};
}

}  // namespace

SimRoute FindSimRoute(std::string_view path) {
  for (const auto& [known, route] : kPaths) {
    if (path == known) return route;
  }
  if (path.starts_with("/v1/conversations/")) return SimRoute::kConversations;
  return path.starts_with("/echo/") ? SimRoute::kEcho : SimRoute::kUnknown;
}

WorkerState::WorkerState(const SimulatedWorkerOptions& options)
    : options_(Fitted(options)),
      created_(std::time(nullptr)),
      counts_(static_cast<size_t>(options.threads)),
      faults_(std::make_shared<const Faults>(options.faults)),
      engine_(options.engine, clock_) {
  if (!options_.stage.empty()) stage_ = std::make_unique<StageWorker>(options_, KvFabric::OfProcess());
  if (options.fixed_response_bytes > 0) {
    const std::string body = FixedBody(options.fixed_response_bytes);
    WriteOwnResponse({.body = body}, &fixed_response_);
  }
}

void WorkerState::SetFaults(const Faults& faults) {
  fault_requests_ = 0;
  faults_.Publish(std::make_shared<const Faults>(faults));
  if (kv_events_ != nullptr) kv_events_->SetFaults(KvFaultsOf(faults));
}

Status WorkerState::StartKvEvents() {
  if (options_.kv_events_polled) {
    kv_buffer_ = std::make_unique<KvEventBuffer>(
        engine_, options_.kv_events_buffer_steps, options_.model.max_model_len);
  }
  if (options_.kv_events_port < 0) return absl::OkStatus();
  StatusOr<std::unique_ptr<KvEventPublisher>> publisher = KvEventPublisher::Start(
      {.host = options_.host,
       .port = options_.kv_events_port,
       .replay_port = options_.kv_events_replay_port,
       .buffer_steps = options_.kv_events_buffer_steps,
       .faults = KvFaultsOf(options_.faults)},
      engine_, clock_);
  if (!publisher.ok()) return publisher.status();
  kv_events_ = *std::move(publisher);
  return absl::OkStatus();
}

LiveEngine::JobId WorkerState::StartWork(const SimRequest& request) {
  const size_t block_tokens = options_.engine.block_tokens;
  std::vector<LiveEngine::Part> parts;
  for (const SimulatedPrompt& prompt : request.prompts) {
    if (request.pulled) {  // one token of the prompt is computed, and its blocks are in the stage's accounts
      parts.push_back({.prompt_tokens = 1, .output_tokens = static_cast<uint32_t>(request.answer_tokens)});
      continue;
    }
    std::vector<uint64_t> blocks = BlockChain(prompt.tokens, block_tokens);
    const size_t prompt_blocks = blocks.size();
    std::vector<uint32_t> tokens;
    if (has_kv_events()) {
      tokens.assign(
          prompt.tokens.begin(),
          prompt.tokens.begin() + static_cast<ptrdiff_t>(prompt_blocks * block_tokens));
    }
    std::vector<uint32_t>* const behind = has_kv_events() ? &tokens : nullptr;
    if (request.turn != nullptr) {
      // Calls come back as the client writes them, so that nothing behind the text can be found again.
      const size_t bytes = request.answer_tokens * SimulatedPrompt::kTokenBytes;
      const std::string_view text = std::string_view(request.turn->text).substr(0, bytes);
      AppendTextChain(prompt, text, block_tokens, &blocks, behind);
    } else if (request.generates) {
      const GeneratedText generated(prompt, 0, request.answer_tokens, request.generation);
      AppendTextChain(prompt, generated.own_text(), block_tokens, &blocks, behind);
    }
    parts.push_back(
        {.prompt_tokens = static_cast<uint32_t>(prompt.tokens.size()),
         .output_tokens = static_cast<uint32_t>(request.answer_tokens),
         .blocks = std::move(blocks),
         .prompt_blocks = prompt_blocks,
         .tokens = std::move(tokens)});
  }
  const LiveEngine::JobId job = engine_.Submit(std::move(parts));
  WakeKvEvents();
  return job;
}

void WorkerState::LeaveWork(LiveEngine::JobId job) {
  if (!engine_.Leave(job)) return;
  on_sooner_();
  WakeKvEvents();
}

void WorkerState::WakeKvEvents() {
  if (kv_events_ != nullptr) kv_events_->Wake();
  if (kv_buffer_ != nullptr) kv_buffer_->Collect();
}

void WorkerState::EndEngine() {
  stage_->Die();
  on_sooner_();  // those that wait for the engine notice
}

void WorkerState::Crash() {
  if (!crashed_.exchange(true)) on_crash_();
}

uint64_t WorkerState::Sum(std::atomic<uint64_t> WorkerCounts::*count) const {
  uint64_t sum = 0;
  for (const WorkerCounts& counts : counts_) sum += (counts.*count).load(std::memory_order_relaxed);
  return sum;
}

std::string WorkerState::StatsJson() {
  const LiveEngine::State engine = engine_.ReadState();
  std::string json = "{";
  const auto number = [&json](std::string_view name, uint64_t value) {
    json += JsonQuoted(name) + ":" + std::to_string(value) + ",";
  };
  uint64_t requests = 0;
  std::string paths;
  for (const auto& [path, route] : kPaths) {
    uint64_t count = 0;
    for (const WorkerCounts& counts : counts_) count += counts.routes[static_cast<size_t>(route)].load();
    if (IsApi(route)) requests += count;
    if (count > 0) paths += (paths.empty() ? "" : ",") + JsonQuoted(path) + ":" + std::to_string(count);
  }
  number("requests", requests);
  number("running", engine.load.running);
  number("waiting", engine.load.waiting);
  number("finished", Sum(&WorkerCounts::finished));
  number("aborted", Sum(&WorkerCounts::aborted));
  number("failed", Sum(&WorkerCounts::failed));
  number("prompt_tokens", Sum(&WorkerCounts::prompt_tokens));
  number("cached_tokens", Sum(&WorkerCounts::cached_tokens));
  number("generation_tokens", Sum(&WorkerCounts::generation_tokens));
  number("cache_blocks", engine.resident_blocks);
  number("evicted_blocks", engine.evicted_blocks);
  const uint64_t closed =
      Sum(&WorkerCounts::closed_connections);  // read first, so that the difference is never negative
  const uint64_t connections = Sum(&WorkerCounts::connections);
  number("connections", connections);
  number("open_connections", connections - closed);
  return json + "\"paths\":{" + paths + "}}";
}

std::string WorkerState::StageMetrics(const std::string& labels, uint64_t waiting) {
  const std::string some_labels = labels.substr(0, labels.size() - 1);
  std::string text;
  const auto gauge = [&text](std::string_view name, std::string_view help) {
    text += Concat("# HELP ", name, " ", help, "\n# TYPE ", name, " gauge\n");
  };
  const auto sample = [&](std::string_view name, std::string_view label, std::string_view value,
                          int64_t number) {
    text += Concat(name, some_labels, ",", label, "=\"", value, "\"} ", number, "\n");
  };
  constexpr std::string_view kByReason = "vllm:num_requests_waiting_by_reason";
  gauge(kByReason, "Number of requests waiting to be processed, by reason.");
  sample(kByReason, "reason", "capacity", static_cast<int64_t>(waiting));
  sample(kByReason, "reason", "deferred", stage_->deferred());
  constexpr std::string_view kByStage = "vllm:num_requests_kv_fetch_by_stage";
  gauge(kByStage, "Number of requests that wait for KV blocks of another engine.");
  sample(kByStage, "stage", "waiting_to_start", stage_->deferred() - stage_->fetching());
  sample(kByStage, "stage", "in_progress", stage_->fetching());
  return text;
}

std::string WorkerState::MetricsText() {
  const LiveEngine::State engine = engine_.ReadState();
  std::string quoted_model =
      JsonQuoted(options_.model.name);  // Prometheus escapes what JSON does, as far as names go
  const std::string labels = "{engine=\"0\",model_name=" + quoted_model + "}";
  const uint64_t deferred = stage_ == nullptr ? 0 : static_cast<uint64_t>(stage_->deferred());
  const uint64_t held_blocks = engine.held_blocks + (stage_ == nullptr ? 0 : stage_->HeldBlocks());
  std::string text;
  const auto sample = [&](std::string_view name, std::string_view kind, std::string_view help,
                          std::string value) {
    text.append("# HELP ").append(name).append(" ").append(help).append("\n# TYPE ").append(name).append(" ");
    text.append(kind).append("\n").append(name).append(labels).append(" ").append(value).append("\n");
  };
  const auto count = [](uint64_t value) { return std::to_string(value); };
  const uint64_t prompt_tokens = Sum(&WorkerCounts::prompt_tokens);
  const uint64_t cached_tokens = Sum(&WorkerCounts::cached_tokens);
  sample(
      "vllm:num_requests_running", "gauge", "Number of requests in model execution batches.",
      count(engine.load.running));
  sample(
      "vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.",
      count(engine.load.waiting + deferred));
  if (stage_ != nullptr) text += StageMetrics(labels, engine.load.waiting);
  const double capacity = static_cast<double>(std::max<uint64_t>(1, options_.engine.cache_blocks));
  sample(
      "vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.",
      std::to_string(static_cast<double>(held_blocks) / capacity));
  sample(
      "vllm:prefix_cache_queries_total", "counter",
      "Prefix cache queries, in terms of number of queried tokens.", count(prompt_tokens));
  sample(
      "vllm:prefix_cache_hits_total", "counter", "Prefix cache hits, in terms of number of cached tokens.",
      count(cached_tokens));
  sample("vllm:prompt_tokens_total", "counter", "Number of prefill tokens processed.", count(prompt_tokens));
  sample(
      "vllm:prompt_tokens_cached_total", "counter", "Number of cached prompt tokens.", count(cached_tokens));
  sample(
      "vllm:generation_tokens_total", "counter", "Number of generation tokens processed.",
      count(Sum(&WorkerCounts::generation_tokens)));
  text +=
      "# HELP vllm:request_success_total Count of successfully processed requests.\n"
      "# TYPE vllm:request_success_total counter\n";
  const std::string some_labels = labels.substr(0, labels.size() - 1);
  text += "vllm:request_success_total" + some_labels + ",finished_reason=\"length\"} " +
          count(Sum(&WorkerCounts::finished)) + "\n";
  text += "vllm:request_success_total" + some_labels + ",finished_reason=\"abort\"} " +
          count(Sum(&WorkerCounts::aborted)) + "\n";
  text +=
      "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig\n"
      "# TYPE vllm:cache_config_info gauge\n";
  text += "vllm:cache_config_info{block_size=\"" + count(options_.engine.block_tokens) +
          "\",enable_prefix_caching=\"True\",engine=\"0\",num_gpu_blocks=\"" +
          count(options_.engine.cache_blocks) + "\"} 1.0\n";
  return text;
}

std::string WorkerState::ModelsJson() const {
  const std::string name = JsonQuoted(options_.model.name);
  return R"({"object":"list","data":[{"id":)" + name + R"(,"object":"model","created":)" +
         std::to_string(created_) + R"(,"owned_by":"vllm","root":)" + name +
         R"(,"parent":null,"max_model_len":)" + std::to_string(options_.model.max_model_len) +
         R"(,"permission":[]}]})";
}

std::string WorkerState::LoadJson() {
  const BatchEngine::Load load = engine_.ReadState().load;
  return R"({"server_load":)" + std::to_string(load.running + load.waiting) + "}";
}

std::string WorkerState::TakeKvEvents() { return kv_buffer_ == nullptr ? "[]" : kv_buffer_->Take(); }

std::string WorkerState::KvEventSourcesJson() const {
  return kv_events_ == nullptr ? "{}" : kv_events_->SourcesJson();
}

}  // namespace vllm_router
