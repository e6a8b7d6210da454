// Streams that go on by their token ids, without a server.
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "continuation/continued_body.h"
#include "continuation/delivered_text.h"
#include "continuation/id_log.h"
#include "continuation/rerun_verifier.h"
#include "continuation/settle.h"
#include "continuation/token_event.h"
#include "continuation/token_stream.h"
#include "net/task.h"
#include "proxy/continuation/continuation_sink.h"
#include "proxy/exchange/body_sink.h"
#include "routing/body_map.h"

namespace vllm_router {
namespace {

namespace py = pybind11;
using namespace py::literals;

py::bytes TokenBytes(std::string_view text) { return py::bytes(text.data(), text.size()); }

IdLog LogOf(const std::vector<uint32_t>& ids) {
  IdLog log;
  log.Add(ids);
  return log;
}

// A stream with ids on its way to a client that takes everything at once.
class TokenSinkHarness {
 public:
  TokenSinkHarness(bool is_chat, bool hides, uint64_t most_ids)
      : tokens_({.hides = hides, .is_chat = is_chat, .most_ids = most_ids, .room = {}}),
        sink_(client_, {}, &tokens_) {}
  TokenSinkHarness(const TokenSinkHarness&) = delete;
  TokenSinkHarness& operator=(const TokenSinkHarness&) = delete;

  bool Write(const std::string& data, bool last) { return sink_.Write(data, last) == BodySink::Took::kAll; }
  void Rerun() { sink_.Rerun(); }
  void Rest(size_t ids, const std::string& repeated) { sink_.Rest(ids, repeated); }
  void Release(bool last) { sink_.Release(last); }

  // (ids to keep, what comes again), by what `text_of` says of a list of ids; None: there is no place.
  py::object Settle(bool may_swallow, const py::function& text_of) const {
    SettleSearch search(tokens_, may_swallow);
    while (search.IsOpen()) {
      const py::object text = text_of(search.Ids());
      if (text.is_none()) {
        search.AssumeNoParser();
        break;
      }
      search.Take(text.cast<std::string>());
    }
    if (!search.found()) return py::none();
    return py::make_tuple(search.ids(), TokenBytes(search.swallowed()));
  }

  const TokenStream& tokens() const { return tokens_; }
  const ContinuationSink& sink() const { return sink_; }
  const CapturedBody& client() const { return client_; }

 private:
  TokenStream tokens_;
  CapturedBody client_{size_t{16} << 20};
  ContinuationSink sink_;
};

std::vector<uint32_t> IdsOf(const IdLog& log) {
  std::vector<uint32_t> ids;
  log.ForEach([&ids](uint32_t id) { ids.push_back(id); });
  return ids;
}

}  // namespace

void BindTestingTokenStreams(py::module_& testing) {
  testing.def(
      "read_ids", [](const std::string& array) { return ReadIds(array); }, "array"_a);
  // (all, those before `end`, as JSON) of a log of which `kept` are left.
  testing.def(
      "id_log",
      [](const std::vector<uint32_t>& ids, size_t kept, size_t end, size_t most) {
        IdLog log = LogOf(ids);
        log.Truncate(kept);
        std::string list;
        log.AppendTo(&list);
        return py::make_tuple(IdsOf(log), log.Before(end, most), list);
      },
      "ids"_a, "kept"_a, "end"_a, "most"_a);
  testing.def(
      "usage_of_whole",
      [](const std::string& usage, uint64_t prompt, uint64_t output, uint64_t reasoning) {
        return UsageOfWhole(
            usage, {.prompt = prompt, .output = output, .reasoning = reasoning, .letters = 0});
      },
      "usage"_a, "prompt"_a, "output"_a, "reasoning"_a);
  // The body; None: nothing is left to be generated. ValueError: a limit is no number.
  testing.def(
      "continued_body",
      [](const std::string& path, const std::string& body, const std::vector<uint32_t>& prompt,
         const std::vector<uint32_t>& output) -> std::optional<std::string> {
        const ContinuedBody made(ContinueApiOf(path).value(), body, LogOf(prompt), LogOf(output));
        if (made.state() == ContinuedBody::State::kUnreadable) throw py::value_error("a limit is no number");
        if (made.state() == ContinuedBody::State::kNothingLeft) return std::nullopt;
        return made.body().Joined();
      },
      "path"_a, "body"_a, "prompt"_a, "output"_a);
  py::class_<TokenSinkHarness>(testing, "TokenSinkHarness")
      .def(py::init<bool, bool, uint64_t>(), "is_chat"_a, "hides"_a, "most_ids"_a)
      .def("write", &TokenSinkHarness::Write, "data"_a, "last"_a)
      .def("rerun", &TokenSinkHarness::Rerun)
      .def("rest", &TokenSinkHarness::Rest, "ids"_a, "repeated"_a)
      .def("release", &TokenSinkHarness::Release, "last"_a)
      .def("settle", &TokenSinkHarness::Settle, "may_swallow"_a, "text_of"_a)
      .def_property_readonly(
          "client", [](const TokenSinkHarness& h) { return TokenBytes(h.client().bytes()); })
      .def_property_readonly("known", [](const TokenSinkHarness& h) { return h.tokens().known(); })
      .def_property_readonly("unfit", [](const TokenSinkHarness& h) { return h.sink().unfit(); })
      .def_property_readonly(
          "may_continue", [](const TokenSinkHarness& h) { return h.sink().may_continue(); })
      .def_property_readonly("prompt", [](const TokenSinkHarness& h) { return IdsOf(h.tokens().prompt()); })
      .def_property_readonly("output", [](const TokenSinkHarness& h) { return IdsOf(h.tokens().output()); });
}

}  // namespace vllm_router
