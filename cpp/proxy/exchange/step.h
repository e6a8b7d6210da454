// Step: one stage of a request's way through the router. The table of all steps, in their order, is proxy/steps/steps.cc;
// docs/explanation/life_of_a_request.md has a section for each.
//
//   Exchange::Run:   head -> route -> authorize -> … -> admit -> … -> upstream -> relay -> on_end of each
//                                       |                                |
//                                       `-- kEnd: the client has its response, or is cut off
//
// A step is a row of functions without state; what it keeps of a request is in the Request. A step that has nothing to
// do costs the call of `begin`; hooks that a step does not have cost nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/header_field.h"
#include "http/head.h"
#include "net/task.h"

namespace vllm_router {

class BodySink;
class OwnEndpoints;
struct Request;

// kNext: the next step follows, unless the exchange has been cancelled: then the client gets the reason.
// kEnd: no other step follows.
enum class Verdict : uint8_t { kNext, kEnd };

struct Step {
  std::string_view name;       // in the access log, if it ends the request
  std::string_view span = {};  // of what `run` does, in traces; empty: it has none

  // Does what can be done at once. False: `run` has nothing to do. Null: always run.
  bool (*begin)(Request&) = nullptr;
  // What may wait. It ends soon after request.scope.Cancel(). Null: `begin` does it all, and returns false.
  Task<Verdict> (*run)(Request&) = nullptr;

  // Hooks, each of which may be null.
  // How many bytes of the body are to be read before it is routed, from the head alone; 0: none.
  uint64_t (*needs)(const Request&) = nullptr;
  // Fields of any response to the client, a worker's or the router's own.
  void (*add_fields)(const Request&, std::vector<HeaderField>*) = nullptr;
  // A worker has responded, and the request is still whole.
  void (*on_response)(Request&, const ResponseHead&) = nullptr;
  // The same, and it is the last one. True: it rejects what this step has added to the request, and that was taken back; the
  // request is sent once more.
  bool (*takes_back)(Request&) = nullptr;
  // A worker's response is about to be relayed. What it returns gets each piece of the body in front of the client,
  // and is never slow; null: nothing does.
  BodySink* (*tap)(Request&, const ResponseHead&) = nullptr;
  // A worker's response has been relayed; `whole`: its framing says so, and the client has all of it. nullopt: nothing
  // is left to be done.
  std::optional<Task<void>> (*on_relayed)(Request&, bool whole) = nullptr;
  // A request of the router's own is about to go to all workers; its body has been read.
  void (*on_fan_out)(Request&) = nullptr;
  // The request is over, whatever became of it.
  void (*on_end)(Request&) = nullptr;
};

// The steps of a server and what they share, made once.
class Pipeline {
 public:
  Pipeline(std::span<const Step* const> steps, OwnEndpoints& own_endpoints);

  OwnEndpoints& own_endpoints;

  std::span<const Step* const> steps() const { return steps_; }
  // The largest of all steps' needs.
  uint64_t BodyNeeded(const Request& request) const;
  void AddFields(const Request& request, std::vector<HeaderField>* fields) const {
    for (const auto hook : add_fields_) hook(request, fields);
  }
  void OnResponse(Request& request, const ResponseHead& response) const {
    for (const auto hook : on_response_) hook(request, response);
  }
  bool TakesBack(Request& request) const {
    return std::ranges::any_of(takes_back_, [&request](const auto hook) { return hook(request); });
  }
  void AddTaps(Request& request, const ResponseHead& response, std::vector<BodySink*>* taps) const {
    for (const auto hook : taps_) {
      if (BodySink* const tap = hook(request, response)) taps->push_back(tap);
    }
  }
  void OnFanOut(Request& request) const {
    for (const auto hook : on_fan_out_) hook(request);
  }
  std::span<const decltype(Step::on_relayed)> on_relayed() const { return on_relayed_; }
  // From the last step to the first.
  void OnEnd(Request& request) const {
    for (const auto hook : on_end_) hook(request);
  }

 private:
  const std::span<const Step* const> steps_;
  std::vector<decltype(Step::needs)> needs_;
  std::vector<decltype(Step::add_fields)> add_fields_;
  std::vector<decltype(Step::on_response)> on_response_;
  std::vector<decltype(Step::takes_back)> takes_back_;
  std::vector<decltype(Step::tap)> taps_;
  std::vector<decltype(Step::on_relayed)> on_relayed_;
  std::vector<decltype(Step::on_fan_out)> on_fan_out_;
  std::vector<decltype(Step::on_end)> on_end_;
};

}  // namespace vllm_router
