// Streams that are continued at another worker, without a server: events, actions and reasons by name.
#include <pybind11/stl.h>

#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "bindings/bindings.h"
#include "continuation/choice_event.h"
#include "continuation/continue_machine.h"
#include "continuation/delivered_text.h"
#include "continuation/eligibility.h"
#include "continuation/event_gate.h"
#include "continuation/repeated_event.h"
#include "continuation/rerun_verifier.h"
#include "continuation/text_digest.h"
#include "continuation/transcript.h"
#include "net/task.h"
#include "proxy/continuation/continuation_sink.h"
#include "proxy/continuation/stream_cut.h"
#include "proxy/exchange/body_sink.h"
#include "routing/body_map.h"

namespace vllm_router {
namespace {

namespace py = pybind11;
using namespace py::literals;

constexpr std::string_view kContinuePhases[] = {"text", "reasoning", "tool_call"};
constexpr std::string_view kContinueStates[] = {"live",  "seeking", "opening", "verifying",
                                                "whole", "cut",     "gone"};
constexpr std::string_view kContinueLegs[] = {"none", "read", "silent", "paused"};
constexpr std::string_view kTextKindNames[] = {
    "content", "reasoning", "refusal", "tool_name", "tool_arguments"};
constexpr std::string_view kStreamCutNames[] = {"lost", "server_error", "aborted", "dead",
                                                "idle", "drained",      "stalled"};
constexpr std::string_view kEndings[] = {"none", "aborted", "server_error"};
constexpr std::string_view kRerunStates[] = {"verifying", "caught_up", "differs"};

template <typename Enum, size_t kCount>
Enum ContinueByName(const std::string_view (&names)[kCount], const std::string& name) {
  for (size_t i = 0; i < kCount; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  throw py::value_error("no name is " + name);
}

ContinueMethod ContinueMethodByName(const std::string& name) {
  for (size_t i = 0; i < kContinueMethods; ++i) {
    if (ContinueMethodName(static_cast<ContinueMethod>(i)) == name) return static_cast<ContinueMethod>(i);
  }
  throw py::value_error("no method is called " + name);
}

ContinueEventType ContinueEventByName(const std::string& name) {
  for (int i = 0; i < kContinueEventCount; ++i) {
    if (ContinueEventName(static_cast<ContinueEventType>(i)) == name)
      return static_cast<ContinueEventType>(i);
  }
  throw py::value_error("no event is called " + name);
}

ContinueMethods ContinueMethodsByName(const std::vector<std::string>& names) {
  ContinueMethods methods;
  for (const std::string& name : names) methods.Add(ContinueMethodByName(name));
  return methods;
}

std::vector<std::string_view> NamesOf(const ContinueMethods& methods) {
  std::vector<std::string_view> names;
  for (size_t i = 0; i < kContinueMethods; ++i) {
    const auto method = static_cast<ContinueMethod>(i);
    if (methods.Has(method)) names.push_back(ContinueMethodName(method));
  }
  return names;
}

py::bytes ContinueBytes(std::string_view text) { return py::bytes(text.data(), text.size()); }

// {method: {phase: reason}}
std::map<std::string_view, std::map<std::string_view, std::string_view>> EligibilityOf(
    const std::string& path, const std::string& body) {
  const Eligibility eligibility = CheckEligibility(path, BodyMap::Read(body));
  std::map<std::string_view, std::map<std::string_view, std::string_view>> reasons;
  for (size_t i = 0; i < kContinueMethods; ++i) {
    const auto method = static_cast<ContinueMethod>(i);
    for (size_t phase = 0; phase < std::size(kContinuePhases); ++phase) {
      reasons[ContinueMethodName(method)][kContinuePhases[phase]] =
          ContinueReasonName(eligibility.WhyNot(method, static_cast<ContinuePhase>(phase)));
    }
  }
  return reasons;
}

// ([(index, role, finish_reason, has_details)], [(choice, kind, call, value, text, repeats)], [(choice, call, value)],
//  id, created, model), or None
py::object ReadEvent(const std::string& text) {
  const std::optional<ChoiceEvent> event = ReadChoiceEvent(text);
  if (!event) return py::none();
  py::list choices;
  for (const EventChoice& each : event->choices) {
    choices.append(py::make_tuple(each.index, each.role, each.finish_reason, each.has_details));
  }
  py::list texts;
  for (const DeltaText& each : event->texts) {
    texts.append(py::make_tuple(
        each.choice, kTextKindNames[static_cast<size_t>(each.kind)], each.call, each.value, each.text,
        each.repeats));
  }
  py::list call_ids;
  for (const EventCallId& each : event->call_ids) {
    call_ids.append(py::make_tuple(each.choice, each.call, each.value));
  }
  return py::make_tuple(choices, texts, call_ids, event->id, event->created, event->model);
}

// A client that takes everything at once.
// A client that, if it is slow, takes a piece only when it is waited for.
class UnhurriedClient final : public BodySink {
 public:
  explicit UnhurriedClient(CapturedBody& body) : body_(body) {}

  Took Write(std::string_view data, bool last) override {
    if (waits_) throw std::logic_error("a piece was written before the last one was taken");
    if (!slow) return body_.Write(data, last);
    waits_ = true;
    data_ = data;
    last_ = last;
    return Took::kNotYet;
  }
  Task<Took> Flush() override {
    waits_ = false;
    co_return body_.Write(data_, last_);
  }

  bool slow = false;

 private:
  CapturedBody& body_;
  std::string data_;
  bool last_ = false;
  bool waits_ = false;
};

class ContinuationSinkHarness {
 public:
  ContinuationSinkHarness()
      : sink_(taker_, {.first_event = &OnFirstEvent, .caught_up = &OnCaughtUp, .context = this}) {}
  ContinuationSinkHarness(const ContinuationSinkHarness&) = delete;
  ContinuationSinkHarness& operator=(const ContinuationSinkHarness&) = delete;

  // Whether the stream may go on being read.
  bool Write(const std::string& data, bool last) { return sink_.Write(data, last) == BodySink::Took::kAll; }
  void Rerun() { sink_.Rerun(); }
  void Release(bool last) { sink_.Release(last); }
  // Whether the client is sent one.
  bool WriteComment() { return sink_.WriteComment().has_value(); }
  bool Flush() {
    bool took = false;
    Spawn([](ContinuationSink& sink, bool& all) -> Task<void> {
      const BodySink::Took end = co_await sink.Flush();
      all = end == BodySink::Took::kAll;
    }(sink_, took));
    return took;
  }
  void SetSlow(bool slow) { taker_.slow = slow; }

  const ContinuationSink& sink() const { return sink_; }
  const CapturedBody& client() const { return client_; }
  const std::vector<std::string>& hooks() const { return hooks_; }

 private:
  static void OnFirstEvent(void* self) {
    static_cast<ContinuationSinkHarness*>(self)->hooks_.emplace_back("first_event");
  }
  static void OnCaughtUp(void* self) {
    static_cast<ContinuationSinkHarness*>(self)->hooks_.emplace_back("caught_up");
  }

  CapturedBody client_{size_t{4} << 20};
  UnhurriedClient taker_{client_};
  std::vector<std::string> hooks_;
  ContinuationSink sink_;
};

}  // namespace

void BindTestingContinuation(py::module_& testing) {
  testing.def("continue_reasons", [] {
    std::vector<std::string_view> names;
    for (size_t i = 0; i < kContinueReasons; ++i) {
      names.push_back(ContinueReasonName(static_cast<ContinueReason>(i)));
    }
    return names;
  });
  testing.def("continue_methods", [] {
    std::vector<std::string_view> names;
    for (size_t i = 0; i < kContinueMethods; ++i) {
      names.push_back(ContinueMethodName(static_cast<ContinueMethod>(i)));
    }
    return names;
  });
  testing.def(
      "continue_event_of",
      [](const std::string& cut) {
        return ContinueEventName(EventOf(ContinueByName<StreamCut>(kStreamCutNames, cut)));
      },
      "cut"_a);
  testing.def("check_eligibility", &EligibilityOf, "path"_a, "body"_a);
  testing.def(
      "may_continue",
      [](const std::string& path, const std::string& body) {
        return CheckEligibility(path, BodyMap::Read(body)).MayContinue();
      },
      "path"_a, "body"_a);
  // (bytes, hash)
  testing.def(
      "text_digest",
      [](const std::vector<std::string>& pieces) {
        TextDigest digest;
        for (const std::string& piece : pieces) digest.Add(piece);
        return py::make_tuple(digest.bytes(), digest.hash());
      },
      "pieces"_a);
  testing.attr("TEXT_DIGEST_RADIX") = TextDigest::kRadix;
  py::class_<Transcript>(testing, "Transcript")
      .def(py::init<>())
      .def(
          "add",
          [](Transcript& transcript, const std::string& kind, uint64_t call, const std::string& text) {
            transcript.Add(ContinueByName<TextKind>(kTextKindNames, kind), call, text);
          },
          "kind"_a, "call"_a, "text"_a)
      .def(
          "mark_bytes",
          [](const Transcript& transcript, const std::string& kind, uint64_t call) {
            return transcript.MarkBytes(ContinueByName<TextKind>(kTextKindNames, kind), call);
          },
          "kind"_a, "call"_a)
      .def_property_readonly("bytes", &Transcript::bytes)
      .def_property_readonly("hash", [](const Transcript& transcript) { return transcript.digest().hash(); })
      .def_property_readonly("calls", &Transcript::calls);
  testing.def("read_choice_event", &ReadEvent, "text"_a);
  testing.def(
      "event_size",
      [](const std::string& stream) -> std::optional<size_t> {
        const size_t size = EventEnd().Find(stream);
        if (size == std::string::npos) return std::nullopt;
        return size;
      },
      "stream"_a);
  py::class_<EventGate>(testing, "EventGate")
      .def(py::init<>())
      .def(
          "take", [](EventGate& gate, const std::string& bytes) { return ContinueBytes(gate.Take(bytes)); },
          "bytes"_a)
      .def_property_readonly(
          "ending", [](const EventGate& gate) { return kEndings[static_cast<size_t>(gate.ending())]; })
      .def_property_readonly("held", [](const EventGate& gate) { return ContinueBytes(gate.held()); })
      .def_property_readonly("passes_all", &EventGate::passes_all);
  testing.attr("MAX_HELD_EVENT_BYTES") = EventGate::kMaxHeldBytes;
  py::class_<RepeatedEvent>(testing, "RepeatedEvent")
      .def(py::init<>())
      .def(
          "learn",
          [](RepeatedEvent& repeated, const std::string& event, const std::string& data) {
            const std::optional<ChoiceEvent> read = ReadChoiceEvent(data);
            if (!read) throw std::invalid_argument("data is no event of choices");
            repeated.Learn(event, data, *read);
          },
          "event"_a, "data"_a)
      .def("forget", &RepeatedEvent::Forget)
      // (bytes, text as spelled, is escaped), or None
      .def(
          "find",
          [](const RepeatedEvent& repeated, const std::string& stream) -> py::object {
            const RepeatedEvent::Match match = repeated.Find(stream);
            if (match.bytes == 0) return py::none();
            return py::make_tuple(match.bytes, ContinueBytes(match.spelled), match.is_escaped);
          },
          "stream"_a)
      // (index, kind, call)
      .def_property_readonly("of", [](const RepeatedEvent& repeated) {
        return py::make_tuple(
            repeated.index(), kTextKindNames[static_cast<size_t>(repeated.kind())], repeated.call());
      });
  testing.attr("MAX_REPEATED_EVENT_BYTES") = RepeatedEvent::kMaxBytes;
  py::class_<DeliveredText>(testing, "DeliveredText")
      .def(py::init<>())
      .def(
          "add", [](DeliveredText& delivered, const std::string& bytes) { delivered.Add(bytes); }, "bytes"_a)
      .def_property_readonly("ok", &DeliveredText::ok)
      .def_property_readonly("done", &DeliveredText::done)
      .def_property_readonly("events_without_choice", &DeliveredText::events_without_choice)
      .def_property_readonly(
          "phase",
          [](const DeliveredText& delivered) {
            return kContinuePhases[static_cast<size_t>(delivered.phase())];
          })
      .def("all_ended", &DeliveredText::AllEnded, "choices"_a)
      // [(index, bytes, hash, ended)]
      .def_property_readonly(
          "choices",
          [](const DeliveredText& delivered) {
            py::list choices;
            for (const DeliveredText::Choice& each : delivered.choices()) {
              choices.append(
                  py::make_tuple(each.index, each.said.bytes(), each.said.digest().hash(), each.ended));
            }
            return choices;
          })
      .def_property_readonly("head", [](const DeliveredText& delivered) {
        return py::make_tuple(delivered.id(), delivered.created(), delivered.model());
      });
  testing.attr("MAX_CONTINUED_CHOICES") = DeliveredText::kMaxChoices;
  testing.attr("MAX_CONTINUED_HEAD_BYTES") = DeliveredText::kMaxHeadBytes;
  py::class_<RerunVerifier>(testing, "RerunVerifier")
      .def(py::init<const DeliveredText&>(), "delivered"_a)
      // (state, what goes to the client)
      .def(
          "add",
          [](RerunVerifier& verifier, const std::string& bytes) {
            std::string to_client;
            const RerunState state = verifier.Add(bytes, &to_client);
            return py::make_tuple(kRerunStates[static_cast<size_t>(state)], ContinueBytes(to_client));
          },
          "bytes"_a)
      .def_property_readonly(
          "state",
          [](const RerunVerifier& verifier) { return kRerunStates[static_cast<size_t>(verifier.state())]; })
      .def_property_readonly(
          "problem", [](const RerunVerifier& verifier) { return RerunProblemName(verifier.problem()); })
      .def_property_readonly("dropped_bytes", &RerunVerifier::dropped_bytes);
  py::class_<ContinueMachine>(testing, "ContinueMachine")
      .def(
          py::init([](const std::vector<std::string>& methods, uint8_t max_continuations, uint8_t max_losses,
                      uint8_t losses) {
            return ContinueMachine(
                {.methods = ContinueMethodsByName(methods),
                 .max_continuations = max_continuations,
                 .max_losses = max_losses,
                 .losses = losses});
          }),
          "methods"_a, "max_continuations"_a, "max_losses"_a, "losses"_a)
      .def(
          "step",
          [](ContinueMachine& machine, const std::string& event, bool complete,
             const std::vector<std::string>& methods) {
            std::vector<std::string_view> names;
            for (const ContinueAction action : machine.Step(
                     {.type = ContinueEventByName(event),
        .complete = complete,
        .methods = ContinueMethodsByName(methods)})) {
              names.push_back(ContinueActionName(action));
            }
            return names;
          },
          "event"_a, "complete"_a, "methods"_a)
      .def_property_readonly(
          "state", [](const ContinueMachine& m) { return kContinueStates[static_cast<size_t>(m.state())]; })
      .def_property_readonly(
          "old_leg", [](const ContinueMachine& m) { return kContinueLegs[static_cast<size_t>(m.old_leg())]; })
      .def_property_readonly("why", [](const ContinueMachine& m) { return ContinueCutName(m.why()); })
      .def_property_readonly(
          "method", [](const ContinueMachine& m) { return ContinueMethodName(m.method()); })
      .def_property_readonly("methods", [](const ContinueMachine& m) { return NamesOf(m.methods()); })
      .def_property_readonly("is_handover", &ContinueMachine::is_handover)
      .def_property_readonly("holds_slot", &ContinueMachine::holds_slot)
      .def_property_readonly("continuations", &ContinueMachine::continuations)
      .def_property_readonly("losses", &ContinueMachine::losses)
      .def_property_readonly("over", &ContinueMachine::over);
  py::class_<ContinuationSinkHarness>(testing, "ContinuationSinkHarness")
      .def(py::init<>())
      .def("write", &ContinuationSinkHarness::Write, "data"_a, "last"_a)
      .def("rerun", &ContinuationSinkHarness::Rerun)
      .def("release", &ContinuationSinkHarness::Release, "last"_a)
      .def("write_comment", &ContinuationSinkHarness::WriteComment)
      .def("flush", &ContinuationSinkHarness::Flush)
      .def("set_slow", &ContinuationSinkHarness::SetSlow, "slow"_a)
      .def_property_readonly(
          "client", [](const ContinuationSinkHarness& h) { return ContinueBytes(h.client().bytes()); })
      .def_property_readonly("whole", [](const ContinuationSinkHarness& h) { return h.client().whole(); })
      .def_property_readonly("hooks", &ContinuationSinkHarness::hooks)
      .def_property_readonly("bytes", [](const ContinuationSinkHarness& h) { return h.sink().bytes(); })
      .def_property_readonly(
          "may_continue", [](const ContinuationSinkHarness& h) { return h.sink().may_continue(); })
      .def_property_readonly(
          "ending",
          [](const ContinuationSinkHarness& h) { return kEndings[static_cast<size_t>(h.sink().ending())]; })
      .def_property_readonly(
          "problem", [](const ContinuationSinkHarness& h) { return RerunProblemName(h.sink().problem()); })
      .def_property_readonly(
          "dropped_bytes", [](const ContinuationSinkHarness& h) { return h.sink().dropped_bytes(); });
}

}  // namespace vllm_router
