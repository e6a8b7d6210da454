// The hold-out without a server: arms, conversations, and what they show.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cmath>

#include "bindings/bindings.h"
#include "holdout/arm_chooser.h"
#include "holdout/conversation_table.h"
#include "holdout/effect_estimate.h"
#include "holdout/holdout_results.h"
#include "holdout/turn.h"
#include "proxy/holdout/holdout_service.h"
#include "routing/conversation.h"
#include "routing/request_view.h"

namespace vllm_router {

namespace py = pybind11;
using namespace pybind11::literals;

namespace {

using Strata = py::array_t<uint8_t, py::array::c_style | py::array::forcecast>;
using Flags = py::array_t<bool, py::array::c_style | py::array::forcecast>;
using Values = py::array_t<double, py::array::c_style | py::array::forcecast>;
using Ends = std::pair<double, double>;

std::optional<Ends> EndsOf(const std::optional<Interval>& interval) {
  return interval ? std::optional(Ends(interval->low, interval->high)) : std::nullopt;
}

void AddAll(EffectEstimate& estimate, const Strata& strata, const Flags& held_out, const Values& values) {
  for (py::ssize_t i = 0; i < values.size(); ++i) estimate.Add(strata.at(i), held_out.at(i), values.at(i));
}

// Whether an interval, looked at after each held-out conversation, ever misses the truth.
bool EverMisses(
    double share, const Strata& strata, const Flags& held_out, const Values& values, double truth,
    double alpha) {
  EffectEstimate estimate(share);
  const uint8_t* const x = strata.data();
  const bool* const held = held_out.data();
  const double* const y = values.data();
  for (py::ssize_t i = 0; i < values.size(); ++i) {
    estimate.Add(x[i], held[i], y[i]);
    if (!held[i]) continue;
    const std::optional<Interval> interval = estimate.At(alpha);
    if (interval && (truth < interval->low || truth > interval->high)) return true;
  }
  return false;
}

// The same of failed conversations, each held out or not.
bool FailuresEverMiss(double share, const Flags& held_out, double ratio, double alpha) {
  FailureRatio failures(share);
  for (py::ssize_t i = 0; i < held_out.size(); ++i) {
    failures.Add(held_out.at(i));
    const Interval interval = failures.At(alpha);
    if (ratio < interval.low || ratio > interval.high) return true;
  }
  return false;
}

Turn MakeTurn(
    uint64_t conversation, int64_t begin_ns, int64_t end_ns, uint64_t body_bytes,
    std::optional<uint32_t> prompt_tokens, std::optional<uint32_t> cached_tokens,
    std::optional<float> first_token_s, bool is_held_out, bool has_failed) {
  return {
      .conversation = conversation,
      .begin_ns = begin_ns,
      .end_ns = end_ns,
      .body_bytes = body_bytes,
      .prompt_tokens = prompt_tokens,
      .cached_tokens = cached_tokens,
      .first_token_s = first_token_s,
      .is_held_out = is_held_out,
      .has_failed = has_failed};
}

}  // namespace

void BindTestingHoldout(py::module_& testing) {
  testing.def(
      "conversation_of",
      [](const std::vector<std::pair<std::string, std::string>>& headers, const std::string& path,
         const std::optional<std::string>& body, const std::optional<std::string>& prompt,
         const std::optional<std::vector<uint32_t>>& token_ids,
         const std::optional<std::string>& session_id) {
        std::vector<HeaderField> fields;
        for (const auto& [name, value] : headers) fields.push_back({name, value});
        RequestView view{.headers = fields, .path = path};
        if (body) view.body = *body;
        if (prompt) view.prompt = *prompt;
        if (token_ids) view.token_ids = *token_ids;
        if (session_id) view.session_id = *session_id;
        return ConversationOf(view);
      },
      "headers"_a = std::vector<std::pair<std::string, std::string>>{}, py::kw_only(),
      "path"_a = "/v1/chat/completions", "body"_a = py::none(), "prompt"_a = py::none(),
      "token_ids"_a = py::none(), "session_id"_a = py::none());
  py::class_<ArmChooser>(testing, "ArmChooser")
      .def(
          py::init([](const std::string& secret, double percent) {
            return std::make_unique<ArmChooser>(HoldoutKey(secret), HoldoutParts(percent));
          }),
          "secret"_a, "percent"_a)
      .def(
          "of", [](ArmChooser& arms, uint64_t conversation) { return ArmName(arms.Of(conversation)); },
          "conversation"_a);
  testing.def("tightest_rho_squared", &TightestRhoSquared, "terms"_a, "alpha"_a);
  testing.def("confidence_half_width", &ConfidenceHalfWidth, "terms"_a, "sd"_a, "rho_squared"_a, "alpha"_a);
  py::class_<EffectEstimate>(testing, "EffectEstimate")
      .def(py::init<double>(), "share"_a)
      .def("add", &EffectEstimate::Add, "stratum"_a, "is_held_out"_a, "value"_a)
      .def("add_all", &AddAll, "strata"_a, "held_out"_a, "values"_a)
      .def_property_readonly("policy", &EffectEstimate::policy)
      .def_property_readonly("held_out", &EffectEstimate::held_out)
      .def_property_readonly("policy_mean", &EffectEstimate::policy_mean)
      .def_property_readonly("held_out_mean", &EffectEstimate::held_out_mean)
      .def_property_readonly("effect", &EffectEstimate::effect)
      .def_property_readonly("sd", &EffectEstimate::sd)
      .def_property_readonly("held_out_needed", &EffectEstimate::HeldOutNeeded)
      .def(
          "at", [](const EffectEstimate& estimate, double alpha) { return EndsOf(estimate.At(alpha)); },
          "alpha"_a = HoldoutResults::kAlpha);
  py::class_<FailureRatio>(testing, "FailureRatio")
      .def(py::init<double>(), "share"_a)
      .def("add", &FailureRatio::Add, "is_held_out"_a)
      .def_property_readonly("policy", &FailureRatio::policy)
      .def_property_readonly("held_out", &FailureRatio::held_out)
      .def_property_readonly("ratio", &FailureRatio::ratio)
      .def(
          "at", [](const FailureRatio& failures, double alpha) { return *EndsOf(failures.At(alpha)); },
          "alpha"_a = HoldoutResults::kAlpha);
  testing.def(
      "ever_misses", &EverMisses, "share"_a, "strata"_a, "held_out"_a, "values"_a, "truth"_a,
      "alpha"_a = HoldoutResults::kAlpha);
  testing.def(
      "failures_ever_miss", &FailuresEverMiss, "share"_a, "held_out"_a, "ratio"_a,
      "alpha"_a = HoldoutResults::kAlpha);
  py::class_<Turn>(testing, "Turn")
      .def(
          py::init(&MakeTurn), "conversation"_a, py::kw_only(), "begin_ns"_a = 0, "end_ns"_a = 0,
          "body_bytes"_a = 0, "prompt_tokens"_a = py::none(), "cached_tokens"_a = py::none(),
          "first_token_s"_a = py::none(), "is_held_out"_a = false, "has_failed"_a = false)
      .def_readonly("conversation", &Turn::conversation);
  py::class_<TurnBuffer>(testing, "TurnBuffer")
      .def(py::init<>())
      .def("add", &TurnBuffer::Add, "turn"_a)
      .def("take", &TurnBuffer::Take)
      .def_property_readonly("dropped", &TurnBuffer::dropped)
      .def_readonly_static("MOST", &TurnBuffer::kMost);
  py::class_<ClosedConversation>(testing, "ClosedConversation")
      .def(
          py::init([](bool is_held_out, bool has_failed, uint32_t turns, uint64_t first_body_bytes,
                      uint64_t prompt_tokens, uint64_t cached_tokens, uint32_t reporting,
                      std::optional<double> first_turn_log_s, std::optional<double> later_turns_log_s) {
            return ClosedConversation{
                .is_held_out = is_held_out,
                .has_failed = has_failed,
                .turns = turns,
                .first_body_bytes = first_body_bytes,
                .prompt_tokens = prompt_tokens,
                .cached_tokens = cached_tokens,
                .reporting = reporting,
                .first_turn_log_s = first_turn_log_s,
                .later_turns_log_s = later_turns_log_s};
          }),
          py::kw_only(), "is_held_out"_a = false, "has_failed"_a = false, "turns"_a = 1,
          "first_body_bytes"_a = 0, "prompt_tokens"_a = 0, "cached_tokens"_a = 0, "reporting"_a = 0,
          "first_turn_log_s"_a = py::none(), "later_turns_log_s"_a = py::none())
      .def_readonly("is_held_out", &ClosedConversation::is_held_out)
      .def_readonly("has_failed", &ClosedConversation::has_failed)
      .def_readonly("turns", &ClosedConversation::turns)
      .def_readonly("first_body_bytes", &ClosedConversation::first_body_bytes)
      .def_readonly("prompt_tokens", &ClosedConversation::prompt_tokens)
      .def_readonly("cached_tokens", &ClosedConversation::cached_tokens)
      .def_readonly("reporting", &ClosedConversation::reporting)
      .def_readonly("first_turn_log_s", &ClosedConversation::first_turn_log_s)
      .def_readonly("later_turns_log_s", &ClosedConversation::later_turns_log_s);
  py::class_<ConversationTable>(testing, "ConversationTable")
      .def(
          py::init([](int64_t silence_ns, size_t open, size_t remembered) {
            return std::make_unique<ConversationTable>(
                ConversationTable::Limits{.silence_ns = silence_ns, .open = open, .remembered = remembered});
          }),
          py::kw_only(), "silence_ns"_a = ConversationTable::kSilenceNanos,
          "open"_a = ConversationTable::kMostOpen, "remembered"_a = ConversationTable::kMostRemembered)
      .def(
          "add",
          [](ConversationTable& table, const Turn& turn) {
            std::vector<ClosedConversation> closed;
            table.Add(turn, &closed);
            return closed;
          },
          "turn"_a)
      .def(
          "close_idle",
          [](ConversationTable& table, int64_t now_ns) {
            std::vector<ClosedConversation> closed;
            table.CloseIdle(now_ns, &closed);
            return closed;
          },
          "now_ns"_a)
      .def_property_readonly("open", &ConversationTable::open)
      .def_readonly_static("MOST_TURNS", &ConversationTable::kMostTurns);
  py::class_<SizeQuantile>(testing, "SizeQuantile")
      .def(py::init<>())
      .def("add", &SizeQuantile::Add, "size"_a)
      .def("at", &SizeQuantile::At, "share"_a);
  py::class_<HoldoutResults>(testing, "HoldoutResults")
      .def(py::init<double>(), "share"_a)
      .def("add", &HoldoutResults::Add, "conversation"_a)
      .def_property_readonly("policy", &HoldoutResults::policy)
      .def_property_readonly("held_out", &HoldoutResults::held_out)
      .def_property_readonly("reporting", &HoldoutResults::reporting)
      .def_property_readonly("cached_share", &HoldoutResults::cached_share)
      .def_property_readonly("saved_tokens", &HoldoutResults::saved_tokens)
      .def_property_readonly("first_turn", &HoldoutResults::first_turn)
      .def_property_readonly("later_turns", &HoldoutResults::later_turns)
      .def_property_readonly("failures", &HoldoutResults::failures)
      .def_property_readonly("reason_to_stop", &HoldoutResults::ReasonToStop);
  testing.def("set_holdout_speed", [](int64_t speed) { return HoldoutService::speed.exchange(speed); });
}

}  // namespace vllm_router
