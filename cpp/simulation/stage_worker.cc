#include "simulation/stage_worker.h"

#include <algorithm>
#include <random>

#include "base/check.h"
#include "base/text.h"
#include "simulation/block_chain.h"
#include "simulation/simulated_worker.h"

namespace vllm_router {

namespace {

constexpr size_t kMaxCaptured = 4096;      // requests; the oldest go first
constexpr size_t kDefaultBlocks = 65'536;  // of an engine without a limit

uint64_t RandomSeed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

std::string UuidOf(std::string_view hex) {
  return Concat(
      hex.substr(0, 8), "-", hex.substr(8, 4), "-4", hex.substr(13, 3), "-a", hex.substr(17, 3), "-",
      hex.substr(20, 12));
}

std::string BlockList(const std::vector<uint32_t>& blocks) {
  std::string list = "[[";
  for (const uint32_t block : blocks) list += (list.size() > 2 ? "," : "") + std::to_string(block);
  return list + "]]";
}

}  // namespace

std::vector<uint64_t> KvContents(const SimulatedPrompt& prompt, size_t block_tokens) {
  std::vector<uint64_t> contents = BlockChain(prompt.tokens, block_tokens);
  if (prompt.tokens.size() % block_tokens != 0) contents.push_back(AnswerSeed(prompt, 0));
  return contents;
}

StageWorker::StageWorker(const SimulatedWorkerOptions& options, KvFabric& fabric)
    : prefills_(options.stage == "prefill"),
      recomputes_(options.kv_load_failure_policy == "recompute"),
      block_tokens_(options.engine.block_tokens),
      host_(options.host),
      fabric_(fabric),
      seed_(RandomSeed()) {
  engine_id_ = UuidOf(RandomHex(32));
  port_ = fabric_.Attach(
      engine_id_, {.host = host_,
                   .blocks = options.engine.cache_blocks > 0 ? options.engine.cache_blocks : kDefaultBlocks,
                   .lease_nanos = static_cast<int64_t>(options.kv_lease_s * 1e9)});
}

StageWorker::~StageWorker() { fabric_.Forget(engine_id_); }

void StageWorker::Die() {
  dead_ = true;
  Stop();
}

std::optional<std::string> StageWorker::FinishPrefill(
    const TransferParams& params, const SimRequest& request, std::string_view id, size_t hit_tokens) {
  // Each prompt and each choice is a request of its own to the engine. The response has room for one object: that of
  // the first prompt, and of its last choice.
  std::string object = "null";
  std::vector<std::string> held;
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    const std::vector<uint64_t> contents = KvContents(request.prompts[i], block_tokens_);
    for (size_t choice = 0; choice < request.choices_per_prompt; ++choice) {
      if (!params.remote_decode) {
        fabric_.Use(engine_id_, contents);
        continue;
      }
      const std::string name = RemoteRequestId(request, id, i, choice);
      const auto blocks = fabric_.Hold(engine_id_, name, contents);
      if (!blocks) {
        for (const std::string& taken : held) fabric_.Release(engine_id_, taken);
        return std::nullopt;
      }
      held.push_back(name);
      if (i > 0) continue;
      object = Concat(
          R"({"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":)", BlockList(*blocks),
          R"(,"remote_engine_id":")", engine_id_, R"(","remote_request_id":)", JsonQuoted(name),
          R"(,"remote_host":)", JsonQuoted(host_), R"(,"remote_port":)", port_,
          R"(,"tp_size":1,"dcp_size":1,"pp_size":1,"remote_num_tokens":)", request.prompts[i].tokens.size(),
          R"(,"remote_blocks_expiry_time":null,"transfer_mode":"pull","remote_prefill_cached_tokens":)",
          hit_tokens, "}");
    }
  }
  return object;
}

bool StageWorker::NamesEnoughBlocks(const TransferParams& params, const SimRequest& request) const {
  return std::all_of(request.prompts.begin(), request.prompts.end(), [&](const SimulatedPrompt& prompt) {
    return params.blocks.size() * block_tokens_ >= prompt.tokens.size();
  });
}

// An engine that was met before is known by its id, wherever the parameters say that it listens.
bool StageWorker::Connects(const TransferParams& params) {
  {
    MutexLock lock(mutex_);
    if (known_engines_.contains(params.engine_id)) return true;
  }
  if (failing_handshakes_.fetch_sub(1) > 0) return false;
  if (fabric_.EngineAt(params.host, params.port) != params.engine_id) return false;
  MutexLock lock(mutex_);
  known_engines_.insert(params.engine_id);
  return true;
}

bool StageWorker::Pull(const TransferParams& params, SimRequest* request) {
  KvFabric::Pulled pulled;
  if (Connects(params)) pulled = fabric_.Pull(params.engine_id, params.request_id, params.blocks);
  if (pulled.result != KvFabric::Pulled::Result::kDone) {
    ++failed_pulls_;
    return false;
  }
  request->pulled = true;
  request->pulled_cached_tokens = params.cached_tokens;
  for (SimulatedPrompt& prompt : request->prompts) {
    const std::vector<uint64_t> needed = KvContents(prompt, block_tokens_);
    prompt.garbage = needed.size() > pulled.contents.size() ||
                     !std::equal(needed.begin(), needed.end(), pulled.contents.begin());
  }
  return true;
}

void StageWorker::Release(const TransferParams& params) {
  if (params.whole) fabric_.Release(params.engine_id, params.request_id);
}

void StageWorker::Capture(CapturedRequest request) {
  MutexLock lock(mutex_);
  captured_.push_back(std::move(request));
  if (captured_.size() > kMaxCaptured) captured_.pop_front();
}

std::vector<CapturedRequest> StageWorker::captured() {
  MutexLock lock(mutex_);
  return {captured_.begin(), captured_.end()};
}

uint64_t StageWorker::HeldBlocks() {
  return fabric_.CountersOf(engine_id_).held_blocks + static_cast<uint64_t>(decode_blocks_.load());
}

size_t StageWorker::BlocksOf(const SimRequest& request) const {
  size_t blocks = 0;
  for (const SimulatedPrompt& prompt : request.prompts) {
    blocks += (prompt.tokens.size() + block_tokens_ - 1) / block_tokens_;
  }
  return blocks;
}

StageWorker::Counters StageWorker::ReadCounters() {
  return {
      .blocks = fabric_.CountersOf(engine_id_),
      .aborted = aborted_.load(),
      .local_prefills = local_prefills_.load(),
      .failed_pulls = failed_pulls_.load(),
      .leaked_at_decode = static_cast<uint64_t>(leaked_.load()),
      .killed = dead() ? 1u : 0u,
      .duplicate_members = duplicate_members_.load()};
}

std::string StageWorker::CountersJson() {
  const Counters now = ReadCounters();
  const std::pair<std::string_view, uint64_t> members[] = {
      {"held", now.blocks.held},
      {"held_blocks", now.blocks.held_blocks},
      {"pulled", now.blocks.pulled},
      {"released", now.blocks.released},
      {"stranded", now.blocks.stranded},
      {"double_pull", now.blocks.double_pull},
      {"late_pull", now.blocks.late_pull},
      {"unknown_pull", now.blocks.unknown_pull},
      {"aborted", now.aborted},
      {"local_prefills", now.local_prefills},
      {"failed_pulls", now.failed_pulls},
      {"leaked_at_decode", now.leaked_at_decode},
      {"killed", now.killed},
      {"duplicate_members", now.duplicate_members},
  };
  std::string json;
  for (const auto& [name, value] : members) {
    json += Concat(json.empty() ? "{" : ",", "\"", name, "\":", value);
  }
  return json + "}";
}

std::string StageWorker::RandomHex(size_t digits) {
  std::string hex;
  while (hex.size() < digits) hex += Hex16(AnswerDraw(seed_, drawn_++));
  return hex.substr(0, digits);
}

std::string StageWorker::RemoteRequestId(
    const SimRequest& request, std::string_view id, size_t prompt, size_t choice) {
  std::string name;
  if (request.choices_per_prompt > 1) name = Concat(choice, "_");
  if (request.api == Api::kCompletions) {
    name += Concat("cmpl-", id, "-", prompt);
  } else if (request.api == Api::kResponses) {
    name += Concat("resp_", id, "_0");
  } else {
    name += Concat("chatcmpl-", id);
  }
  return name + "-" + RandomHex(8);
}

}  // namespace vllm_router
