#include <pybind11/stl.h>

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "bindings/bindings.h"
#include "bindings/errors.h"
#include "simulation/batch_engine.h"
#include "simulation/block_chain.h"
#include "simulation/block_pool.h"
#include "simulation/conversation_store.h"
#include "simulation/kv_fabric.h"
#include "simulation/live_engine.h"
#include "simulation/openai_api.h"
#include "simulation/response_text.h"
#include "simulation/responses_session.h"
#include "simulation/stage_worker.h"
#include "simulation/tool_script.h"
#include "simulation/transfer_params.h"
#include "simulation/websocket_frames.h"

namespace vllm_router {

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

using Chain = std::vector<uint64_t>;

Api ApiByName(const std::string& name) {
  constexpr std::pair<std::string_view, Api> kApis[] = {
      {"chat", Api::kChat},
      {"completions", Api::kCompletions},
      {"responses", Api::kResponses},
      {"messages", Api::kMessages},
      {"generate", Api::kGenerate},
      {"embeddings", Api::kEmbeddings},
      {"tokenize", Api::kTokenize},
      {"detokenize", Api::kDetokenize},
      {"count_tokens", Api::kCountTokens},
      {"input_tokens", Api::kInputTokens},
      {"render_messages", Api::kRenderMessages},
      {"render_responses", Api::kRenderResponses},
  };
  for (const auto& [known, api] : kApis) {
    if (known == name) return api;
  }
  throw py::value_error("no such API: " + name);
}

SimRequest Parse(const std::string& api, const std::string& body, const SimModel& model) {
  StatusOr<SimRequest> request = ParseRequest(ApiByName(api), body, model);
  if (request.ok()) return *std::move(request);
  std::string json;
  const Status& status = request.status();
  WriteError(ApiByName(api), HttpStatusOf(status), std::string(status.message()), &json, IsWrongType(status));
  throw py::value_error(json);
}

BatchEngineOptions OptionsOf(
    const std::array<double, 5>& given, double speed, uint32_t step_tokens, uint32_t max_running,
    uint64_t cache_blocks, uint32_t block_tokens, uint32_t min_computed_tokens, bool skip_decode_steps,
    bool prompts_first) {
  return {
      .coefficients = {given[0], given[1], given[2], given[3], given[4]},
      .speed = speed,
      .step_tokens = step_tokens,
      .max_running = max_running,
      .cache_blocks = cache_blocks,
      .block_tokens = block_tokens,
      .min_computed_tokens = min_computed_tokens,
      .prompts_first = prompts_first,
      .skip_decode_steps = skip_decode_steps};
}

// An engine with the names of its requests' blocks.
class HeldEngine {
 public:
  explicit HeldEngine(const BatchEngineOptions& options) : engine(options) {}

  uint32_t Submit(
      uint32_t prompt_tokens, uint32_t output_tokens, Chain blocks, size_t prompt_blocks, uint64_t tag,
      Picos now, bool is_held, bool is_fetched) {
    const Chain& kept = chains_.emplace_back(std::move(blocks));
    return engine.Submit({prompt_tokens, output_tokens, kept, prompt_blocks, tag, is_held, is_fetched}, now);
  }
  // (kind, tag, hit tokens, time) of the events until `now`.
  std::vector<std::tuple<std::string, uint64_t, uint32_t, Picos>> AdvanceTo(Picos now) {
    std::vector<BatchEngine::Event> events;
    engine.AdvanceTo(now, &events);
    std::vector<std::tuple<std::string, uint64_t, uint32_t, Picos>> told;
    for (const BatchEngine::Event& event : events) {
      constexpr const char* kNames[] = {"first_token", "finished", "fetch"};
      told.emplace_back(kNames[static_cast<size_t>(event.kind)], event.tag, event.hit_tokens, event.time);
    }
    return told;
  }

  BatchEngine engine;

 private:
  std::deque<Chain> chains_;
};

void BindBatchEngine(py::module_& testing) {
  using namespace py::literals;
  py::class_<BlockPool>(testing, "BlockPool")
      .def(py::init<uint64_t>(), "capacity"_a)
      .def("match", [](const BlockPool& pool, const Chain& names) { return pool.Match(names); })
      .def(
          "reserve",
          [](BlockPool& pool, const Chain& names, size_t nameless) {
            BlockPool::Reservation got;
            std::optional<std::pair<std::vector<uint32_t>, size_t>> reserved;
            if (pool.Reserve(names, nameless, &got)) reserved.emplace(got.places, got.hit);
            return reserved;
          },
          "names"_a, "nameless"_a = 0)
      .def("set_computed", &BlockPool::SetComputed)
      .def(
          "release", [](BlockPool& pool, const std::vector<uint32_t>& places,
                        size_t computed) { pool.Release(places, computed); })
      .def("wipe", &BlockPool::Wipe)
      .def_property_readonly("held", &BlockPool::held)
      .def_property_readonly("resident", &BlockPool::resident)
      .def_property_readonly("evicted", &BlockPool::evicted);

  testing.def("engine_preset", [](const std::string& name) {
    const EngineCoefficients found = ValueOrThrow(EngineCoefficientsByName(name));
    return std::array{
        found.step_ms, found.prefill_us_per_token, found.attention_ns_per_token2,
        found.decode_us_per_sequence, found.context_ns_per_token};
  });
  testing.def("check_engine_coefficients", [](const std::array<double, 5>& given) {
    ThrowIfError(CheckEngineCoefficients({given[0], given[1], given[2], given[3], given[4]}));
  });
  py::class_<HeldEngine>(testing, "BatchEngine")
      .def(
          py::init([](const std::array<double, 5>& given, double speed, uint32_t step_tokens,
                      uint32_t max_running, uint64_t cache_blocks, uint32_t block_tokens,
                      uint32_t min_computed_tokens, bool skip_decode_steps, bool prompts_first) {
            return std::make_unique<HeldEngine>(OptionsOf(
                given, speed, step_tokens, max_running, cache_blocks, block_tokens, min_computed_tokens,
                skip_decode_steps, prompts_first));
          }),
          "coefficients"_a, py::kw_only(), "speed"_a = 1.0, "step_tokens"_a = 8192, "max_running"_a = 256,
          "cache_blocks"_a = 4096, "block_tokens"_a = 16, "min_computed_tokens"_a = 16,
          "skip_decode_steps"_a = true, "prompts_first"_a = false)
      .def(
          "submit", &HeldEngine::Submit, "prompt_tokens"_a, "output_tokens"_a, "blocks"_a, "prompt_blocks"_a,
          "tag"_a, "now"_a, "is_held"_a = false, "is_fetched"_a = false)
      .def("cancel", [](HeldEngine& self, uint32_t id, Picos now) { self.engine.Cancel(id, now); })
      .def("fetched", [](HeldEngine& self, uint32_t id, Picos now) { self.engine.Fetched(id, now); })
      .def("release_held", [](HeldEngine& self, uint32_t id, Picos now) { self.engine.ReleaseHeld(id, now); })
      .def("advance_to", &HeldEngine::AdvanceTo)
      .def_property_readonly(
          "next_event",
          [](const HeldEngine& self) {
            const Picos next = self.engine.NextEvent();
            return next == kNever ? std::nullopt : std::optional(next);
          })
      .def("hit_tokens", [](const HeldEngine& self, uint32_t id) { return self.engine.HitTokens(id); })
      .def(
          "tokens_at",
          [](const HeldEngine& self, uint32_t id, Picos now) { return self.engine.TokensAt(id, now); })
      .def(
          "next_token_time",
          [](const HeldEngine& self, uint32_t id, Picos now) { return self.engine.NextTokenTime(id, now); })
      .def("set_speed", [](HeldEngine& self, double speed, Picos now) { self.engine.SetSpeed(speed, now); })
      .def("wipe", [](HeldEngine& self) { self.engine.WipeCache(); })
      .def(
          "match", [](const HeldEngine& self, const Chain& names) { return self.engine.pool().Match(names); })
      .def_property_readonly(
          "load",
          [](const HeldEngine& self) {
            return std::pair(self.engine.load().running, self.engine.load().waiting);
          })
      .def_property_readonly("held", [](const HeldEngine& self) { return self.engine.pool().held(); })
      .def_property_readonly("resident", [](const HeldEngine& self) { return self.engine.pool().resident(); })
      .def_property_readonly("steps", [](const HeldEngine& self) { return self.engine.steps(); })
      .def_property_readonly("busy", [](const HeldEngine& self) { return self.engine.busy(); })
      .def_property_readonly(
          "computed_tokens", [](const HeldEngine& self) { return self.engine.computed_tokens(); });
}

void BindLiveEngine(py::module_& testing) {
  using namespace py::literals;
  py::class_<LiveEngine::Progress>(testing, "LiveProgress")
      .def_readonly("ended", &LiveEngine::Progress::ended)
      .def_readonly("tokens", &LiveEngine::Progress::tokens)
      .def_readonly("hit_tokens", &LiveEngine::Progress::hit_tokens)
      .def_readonly("next_token", &LiveEngine::Progress::next_token)
      .def_readonly("next_event", &LiveEngine::Progress::next_event);
  // A part: (prompt tokens, output tokens, names of blocks, blocks of the prompt).
  using Part = std::tuple<uint32_t, uint32_t, Chain, size_t>;
  py::class_<LiveEngine>(testing, "LiveEngine")
      .def(
          py::init([](const ManualClock& clock, const std::array<double, 5>& given, double speed,
                      uint32_t step_tokens, uint32_t max_running, uint64_t cache_blocks,
                      uint32_t block_tokens, uint32_t min_computed_tokens) {
            return std::make_unique<LiveEngine>(
                OptionsOf(
                    given, speed, step_tokens, max_running, cache_blocks, block_tokens, min_computed_tokens,
                    true, false),
                clock);
          }),
          "clock"_a, "coefficients"_a, py::kw_only(), "speed"_a = 1.0, "step_tokens"_a = 8192,
          "max_running"_a = 256, "cache_blocks"_a = 4096, "block_tokens"_a = 16, "min_computed_tokens"_a = 1,
          py::keep_alive<1, 2>())
      .def(
          "submit",
          [](LiveEngine& engine, const std::vector<Part>& given) {
            std::vector<LiveEngine::Part> parts;
            for (const auto& [prompt_tokens, output_tokens, blocks, prompt_blocks] : given) {
              parts.push_back({prompt_tokens, output_tokens, blocks, prompt_blocks});
              // A block's tokens are its name, cut to 32 bits, again and again.
              for (const uint64_t name : blocks) {
                parts.back().tokens.insert(
                    parts.back().tokens.end(), engine.options().block_tokens, static_cast<uint32_t>(name));
              }
            }
            return engine.Submit(std::move(parts));
          })
      .def("progress_of", &LiveEngine::ProgressOf)
      .def("leave", &LiveEngine::Leave)
      .def("wipe_cache", &LiveEngine::WipeCache)
      .def("forget_cache", &LiveEngine::ForgetCache)
      .def("keep_cache_steps", &LiveEngine::KeepCacheSteps)
      .def(
          "take_cache_steps",
          [](LiveEngine& engine) {
            constexpr const char* kKinds[] = {"stored", "removed", "cleared"};
            std::vector<LiveEngine::CacheStep> steps;
            const int64_t next = engine.TakeCacheSteps(&steps);
            std::vector<
                std::vector<std::tuple<std::string, Chain, std::optional<uint64_t>, std::vector<uint32_t>>>>
                listed;
            for (const LiveEngine::CacheStep& step : steps) {
              listed.emplace_back();
              for (const LiveEngine::CacheEvent& event : step) {
                listed.back().emplace_back(
                    kKinds[static_cast<size_t>(event.kind)], event.blocks, event.parent, event.tokens);
              }
            }
            return std::pair(std::move(listed), next);
          })
      .def(
          "load",
          [](LiveEngine& engine) {
            const BatchEngine::Load load = engine.ReadState().load;
            return std::pair(load.running, load.waiting);
          })
      .def("held_blocks", [](LiveEngine& engine) { return engine.ReadState().held_blocks; })
      .def("resident_blocks", [](LiveEngine& engine) { return engine.ReadState().resident_blocks; });
}

// A fabric whose clock stands still until a test advances it.
class TimedFabric {
 public:
  void AdvanceClock(int64_t nanos) { clock_.Advance(nanos); }
  KvFabric& operator*() { return fabric_; }

 private:
  ManualClock clock_;
  KvFabric fabric_{clock_};
};

void BindKvFabric(py::module_& testing) {
  using namespace py::literals;
  py::class_<TimedFabric>(testing, "KvFabric")
      .def(py::init<>())
      .def("advance_clock", &TimedFabric::AdvanceClock)
      .def(
          "attach",
          [](TimedFabric& self, const std::string& id, const std::string& host, uint16_t port, size_t blocks,
             int64_t lease) {
            return (*self).Attach(id, {host, port, blocks, lease});
          },
          "id"_a, "host"_a = "h", "port"_a = 0, "blocks"_a = 8, "lease"_a = 30)
      .def("detach", [](TimedFabric& self, const std::string& id) { (*self).Detach(id); })
      .def("forget", [](TimedFabric& self, const std::string& id) { (*self).Forget(id); })
      .def(
          "engine_at", [](TimedFabric& self, const std::string& host,
                          uint16_t port) { return (*self).EngineAt(host, port); })
      .def("attached", [](TimedFabric& self, const std::string& id) { return (*self).attached(id); })
      .def(
          "hold", [](TimedFabric& self, const std::string& engine, const std::string& request,
                     const Chain& contents) { return (*self).Hold(engine, request, contents); })
      .def(
          "use", [](TimedFabric& self, const std::string& engine,
                    const Chain& contents) { (*self).Use(engine, contents); })
      .def(
          "pull",  // the contents, or why there are none
          [](TimedFabric& self, const std::string& engine, const std::string& request,
             const std::vector<uint32_t>& blocks) -> std::variant<Chain, std::string> {
            using Result = KvFabric::Pulled::Result;
            KvFabric::Pulled pulled = (*self).Pull(engine, request, blocks);
            if (pulled.result == Result::kDead) return "dead";
            if (pulled.result == Result::kBadBlocks) return "bad blocks";
            return std::move(pulled.contents);
          })
      .def(
          "release", [](TimedFabric& self, const std::string& engine,
                        const std::string& request) { (*self).Release(engine, request); })
      .def(
          "advance",
          [](TimedFabric& self, const std::string& engine, int64_t nanos) { (*self).Advance(engine, nanos); })
      .def("counters", [](TimedFabric& self, const std::string& engine) {
        const KvFabric::Counters counters = (*self).CountersOf(engine);
        return py::dict(
            "held"_a = counters.held, "held_blocks"_a = counters.held_blocks, "pulled"_a = counters.pulled,
            "released"_a = counters.released, "stranded"_a = counters.stranded,
            "double_pull"_a = counters.double_pull, "late_pull"_a = counters.late_pull,
            "unknown_pull"_a = counters.unknown_pull);
      });
  // (do_remote_decode, do_remote_prefill, whole, blocks), or ValueError.
  testing.def("read_transfer_params", [](const py::bytes& body) {
    const TransferParams params = ValueOrThrow(ReadTransferParams(std::string(body)));
    return std::tuple(params.remote_decode, params.remote_prefill, params.whole, params.blocks);
  });
  testing.def("kv_contents", [](const py::bytes& text, size_t block_tokens) {
    return KvContents(SimulatedPrompt::FromText(std::string(text)), block_tokens);
  });
}

}  // namespace

void BindTestingSimulation(py::module_& testing) {
  BindKvFabric(testing);
  BindBatchEngine(testing);
  BindLiveEngine(testing);
  testing.def("block_chain", [](const std::vector<uint32_t>& tokens, size_t block_tokens) {
    return BlockChain(tokens, block_tokens);
  });
  testing.def(
      "append_block_chain", [](const std::vector<uint32_t>& tokens, size_t block_tokens, Chain chain) {
        AppendBlockChain(tokens, block_tokens, &chain);
        return chain;
      });

  testing.def("tokens_of_text", [](const py::bytes& text) { return TokensOfText(std::string(text)); });
  testing.def(
      "text_of_tokens", [](const std::vector<uint32_t>& tokens) { return py::bytes(TextOfTokens(tokens)); });
  testing.def(
      "response_text",
      [](const py::bytes& prompt, size_t tokens, size_t choice) {
        const GeneratedText text(SimulatedPrompt::FromText(std::string(prompt)), choice, tokens, {});
        return std::string(text.text());
      },
      py::arg("prompt"), py::arg("tokens"), py::arg("choice") = 0);
  testing.def("chain_with_answer", [](const py::bytes& text, size_t tokens, size_t block_tokens) {
    const SimulatedPrompt prompt = SimulatedPrompt::FromText(std::string(text));
    Chain chain = BlockChain(prompt.tokens, block_tokens);
    AppendTextChain(prompt, GeneratedText(prompt, 0, tokens, {}).text(), block_tokens, &chain);
    return chain;
  });

  py::class_<SimModel>(testing, "SimModel")
      .def(py::init<>())
      .def_readwrite("name", &SimModel::name)
      .def_readwrite("max_model_len", &SimModel::max_model_len)
      .def_property(
          "script", nullptr,
          [](SimModel& model, const std::string& json) {
            model.script = std::make_shared<const ToolScript>(ValueOrThrow(ToolScript::Parse(json)));
          })
      .def_readwrite("wide_text", &SimModel::wide_text)
      .def_readwrite("ignore_prompt_ids", &SimModel::ignore_prompt_ids);
  py::class_<SimRequest>(testing, "SimRequest")
      .def_readonly("model", &SimRequest::model)
      .def_property_readonly(
          "prompts",
          [](const SimRequest& request) {
            std::vector<std::vector<uint32_t>> prompts;
            for (const SimulatedPrompt& prompt : request.prompts) prompts.push_back(prompt.tokens);
            return prompts;
          })
      .def_readonly("answer_tokens", &SimRequest::answer_tokens)
      .def_readonly("length_was_asked", &SimRequest::length_was_asked)
      // The text of its turn of the script; None: it has none.
      .def_property_readonly(
          "scripted",
          [](const SimRequest& request) -> std::optional<std::string> {
            if (request.turn == nullptr) return std::nullopt;
            return request.turn->text;
          })
      .def_readonly("stream", &SimRequest::stream)
      .def_readonly("include_usage", &SimRequest::include_usage)
      .def_property_readonly("choices", &SimRequest::choices);
  // ValueError with the JSON error body.
  testing.def("parse_sim_request", &Parse, py::arg("api"), py::arg("body"), py::arg("model") = SimModel());
  testing.def(
      "sim_answer", [](const SimRequest& request, const std::string& request_id, size_t cached_tokens) {
        std::string out;
        const Usage usage{request.prompt_tokens(), cached_tokens, request.answer_tokens * request.choices()};
        WriteAnswer(request, {request_id, 1700000000, "sim-1"}, usage, &out);
        return out;
      });
  testing.def(
      "sim_stream", [](const SimRequest& request, const std::string& request_id, size_t cached_tokens) {
        std::string out;
        const Usage usage{request.prompt_tokens(), cached_tokens, request.answer_tokens * request.choices()};
        const std::unique_ptr<ResponseStream> stream =
            ResponseStream::Open(request, {request_id, 1700000000, "sim-1"});
        stream->Begin(usage, &out);
        for (size_t token = 0; token < request.answer_tokens; ++token) stream->Token(token, &out);
        stream->End(usage, &out);
        return out;
      });

  py::class_<ToolScript>(testing, "ToolScript")
      .def(py::init([](const std::string& json) { return ValueOrThrow(ToolScript::Parse(json)); }))
      // (text, [(name, arguments)], number of tokens)
      .def("turn", [](const ToolScript& script, size_t number) {
        const ScriptedTurn& turn = script.Turn(number);
        std::vector<std::pair<std::string, std::string>> calls;
        for (const ScriptedCall& call : turn.calls) calls.emplace_back(call.name, call.arguments);
        return py::make_tuple(turn.text, calls, turn.tokens());
      });
  py::class_<ResponsesSession>(testing, "ResponsesSession")
      .def(py::init<>())
      .def(
          "expand",
          [](ResponsesSession& session, const std::string& message) {
            StatusOr<std::string> body = session.Expand(message);
            if (body.ok()) return *std::move(body);
            std::string error;
            WriteSessionError(body.status(), &error);
            throw py::value_error(error);
          })
      .def("complete", [](ResponsesSession& session, const std::string& id, const std::string& items) {
        session.Complete(id, items);
      });
  py::class_<ConversationStore>(testing, "ConversationStore")
      .def(py::init<>())
      // (status, body or message)
      .def(
          "serve",
          [](ConversationStore& store, const std::string& method, const std::string& path,
             const std::string& body, const std::string& id) -> py::tuple {
            const StatusOr<std::string> served =
                store.Serve({.method = method, .path = path, .body = body, .id = id, .now = 7});
            if (served.ok()) return py::make_tuple(200, *served);
            const int status = absl::IsUnimplemented(served.status()) ? 405 : HttpStatusOf(served.status());
            return py::make_tuple(status, std::string(served.status().message()));
          },
          "method"_a, "path"_a, "body"_a = "", "id"_a = "1")
      // The body of the whole request, or None; `output` ends the turn.
      .def(
          "turn",
          [](ConversationStore& store, const std::string& body, std::optional<std::string> output) {
            std::optional<ConversationStore::Turn> turn = ValueOrThrow(store.Begin(body));
            std::optional<std::string> whole;
            if (!turn) return whole;
            whole = turn->body;
            if (output) {
              turn->output = *std::move(output);
              store.End(*turn);
            }
            return whole;
          },
          "body"_a, "output"_a = py::none());
  // Messages as (opcode, payload), in pieces of `step` bytes; then the code of the close frame that an error needs, or 0.
  testing.def("read_websocket", [](const std::string& bytes, size_t step, size_t limit) -> py::tuple {
    WebSocketReader reader(limit);
    std::string held;
    py::list messages;
    for (size_t at = 0; at < bytes.size(); at += step) {
      held += bytes.substr(at, step);
      for (;;) {
        size_t used = 0;
        const WebSocketReader::State state = reader.Feed(held, &used);
        held.erase(0, used);
        if (state == WebSocketReader::State::kBad) return py::make_tuple(messages, reader.close_code());
        if (state == WebSocketReader::State::kMore) break;
        messages.append(
            py::make_tuple(static_cast<int>(reader.opcode()), py::bytes(std::string(reader.payload()))));
      }
    }
    return py::make_tuple(messages, 0);
  });
  testing.def("websocket_frame", [](int opcode, const std::string& payload) {
    std::string out;
    WriteWebSocketFrame(static_cast<WebSocketOpcode>(opcode), payload, &out);
    return py::bytes(out);
  });
  testing.def("websocket_accept", &WebSocketAccept);
}

}  // namespace vllm_router
