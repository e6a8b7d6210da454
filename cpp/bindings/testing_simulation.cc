#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "simulation/answer_text.h"
#include "simulation/engine.h"
#include "simulation/openai_api.h"
#include "simulation/prefix_cache.h"

namespace vllm_router {

namespace py = pybind11;

namespace {

using Chain = std::vector<uint64_t>;

Api ApiByName(const std::string& name) {
  constexpr std::pair<std::string_view, Api> kApis[] = {
      {"chat", Api::kChat},
      {"completions", Api::kCompletions},
      {"responses", Api::kResponses},
      {"messages", Api::kMessages},
      {"embeddings", Api::kEmbeddings},
      {"tokenize", Api::kTokenize},
      {"detokenize", Api::kDetokenize},
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
  WriteError(ApiByName(api), HttpStatusOf(request.status()), std::string(request.status().message()), &json);
  throw py::value_error(json);
}

}  // namespace

void BindTestingSimulation(py::module_& testing) {
  testing.def("block_chain", [](const std::vector<uint32_t>& tokens, size_t block_tokens) {
    return BlockChain(tokens, block_tokens);
  });
  testing.def(
      "append_block_chain", [](const std::vector<uint32_t>& tokens, size_t block_tokens, Chain chain) {
        AppendBlockChain(tokens, block_tokens, &chain);
        return chain;
      });
  py::class_<PrefixCache>(testing, "PrefixCache")
      .def(py::init<size_t>(), py::arg("capacity_blocks"))
      .def("match", [](const PrefixCache& cache, const Chain& chain) { return cache.Match(chain); })
      .def("use", [](PrefixCache& cache, const Chain& chain) { cache.Use(chain); })
      .def("clear", &PrefixCache::Clear)
      .def("__len__", &PrefixCache::size)
      .def_property_readonly("evicted", &PrefixCache::evicted);

  py::class_<EngineOptions>(testing, "EngineOptions")
      .def(py::init<>())
      .def_readwrite("ttft_ms", &EngineOptions::ttft_ms)
      .def_readwrite("prefill_us_per_token", &EngineOptions::prefill_us_per_token)
      .def_readwrite("tpot_ms", &EngineOptions::tpot_ms)
      .def_readwrite("tpot_us_per_running", &EngineOptions::tpot_us_per_running)
      .def_readwrite("cache_blocks", &EngineOptions::cache_blocks)
      .def_readwrite("block_tokens", &EngineOptions::block_tokens);
  py::class_<Timeline>(testing, "Timeline")
      .def_readonly("prefill_start", &Timeline::prefill_start)
      .def_readonly("prefill_end", &Timeline::prefill_end)
      .def_readonly("first_token", &Timeline::first_token)
      .def_readonly("token_interval", &Timeline::token_interval)
      .def("token_time", &Timeline::TokenTime)
      .def("tokens_at", &Timeline::TokensAt)
      .def_property_readonly("end", &Timeline::end);
  py::class_<Engine>(testing, "Engine")
      .def(py::init<const EngineOptions&>())
      .def(
          "start",
          [](Engine& engine, size_t prompt_tokens, size_t output_tokens, const Chain& chain, int64_t now) {
            const Engine::Started started = engine.Start({prompt_tokens, output_tokens, chain}, now);
            return std::make_tuple(started.id, started.cached_tokens, started.timeline);
          },
          py::arg("prompt_tokens"), py::arg("output_tokens"), py::arg("chain"), py::arg("now"))
      .def("timeline", [](const Engine& engine, uint64_t id) { return engine.TimelineOf(id); })
      .def(
          "leave", [](Engine& engine, uint64_t id, const Chain& chain,
                      int64_t now) { return engine.Leave(id, chain, now); })
      .def("clear_cache", &Engine::ClearCache)
      .def("load", [](const Engine& engine, int64_t now) {
        const Engine::Load load = engine.LoadAt(now);
        return std::make_pair(load.running, load.waiting);
      });

  testing.def("tokens_of_text", [](const py::bytes& text) { return TokensOfText(std::string(text)); });
  testing.def(
      "text_of_tokens", [](const std::vector<uint32_t>& tokens) { return py::bytes(TextOfTokens(tokens)); });
  testing.def(
      "answer_text",
      [](const py::bytes& prompt, size_t tokens, size_t choice) {
        std::string text;
        AppendAnswer(AnswerSeed(Prompt::FromText(std::string(prompt)), choice), tokens, &text);
        return text;
      },
      py::arg("prompt"), py::arg("tokens"), py::arg("choice") = 0);
  testing.def("chain_with_answer", [](const py::bytes& text, size_t tokens, size_t block_tokens) {
    const Prompt prompt = Prompt::FromText(std::string(text));
    Chain chain = BlockChain(prompt.tokens, block_tokens);
    AppendAnswerChain(prompt, AnswerSeed(prompt, 0), tokens, block_tokens, &chain);
    return chain;
  });

  py::class_<SimModel>(testing, "SimModel")
      .def(py::init<>())
      .def_readwrite("name", &SimModel::name)
      .def_readwrite("max_model_len", &SimModel::max_model_len);
  py::class_<SimRequest>(testing, "SimRequest")
      .def_readonly("model", &SimRequest::model)
      .def_property_readonly(
          "prompts",
          [](const SimRequest& request) {
            std::vector<std::vector<uint32_t>> prompts;
            for (const Prompt& prompt : request.prompts) prompts.push_back(prompt.tokens);
            return prompts;
          })
      .def_readonly("answer_tokens", &SimRequest::answer_tokens)
      .def_readonly("length_was_asked", &SimRequest::length_was_asked)
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
        const AnswerStream stream(request, {request_id, 1700000000, "sim-1"});
        stream.Begin(usage, &out);
        for (size_t token = 0; token < request.answer_tokens; ++token) stream.Token(token, &out);
        stream.End(usage, &out);
        return out;
      });
}

}  // namespace vllm_router
