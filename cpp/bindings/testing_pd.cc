// Prefill/decode for tests: maps and patches of bodies, plans, connectors and the prefill worker's response.
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "routing/body_map.h"
#include "routing/body_patch.h"
#include "routing/json_scanner.h"
#include "routing/kv_connector.h"
#include "routing/pair_id.h"
#include "routing/pd_plan.h"
#include "routing/prefill_response.h"
#include "routing/transfer_members.h"

namespace vllm_router {
namespace {

namespace py = pybind11;

py::bytes PdBytes(std::string_view text) { return {text.data(), text.size()}; }

std::string_view ViewOfBytes(const py::handle& bytes) {
  return py::reinterpret_borrow<py::bytes>(bytes).operator std::string_view();
}

const char* ProblemName(BodyMap::Problem problem) {
  constexpr std::array kNames = {"none", "not_an_object", "too_many_members"};
  return kNames.at(static_cast<size_t>(problem));
}

const char* TypeName(BodyMap::Type type) {
  constexpr std::array kNames = {"null", "false", "true", "number", "string", "array", "object", "other"};
  return kNames.at(static_cast<size_t>(type));
}

py::list MembersOf(const BodyMap& map) {
  py::list members;
  for (const BodyMap::Member& member : map.members()) {
    std::string scratch;
    const std::optional<std::string_view> name = member.Name(&scratch);
    const auto at = static_cast<size_t>(member.value.data() - map.body().data());
    members.append(py::make_tuple(
        name ? py::object(PdBytes(*name)) : py::none(), PdBytes(member.value), TypeName(member.type),
        PdBytes(member.name), at));
  }
  return members;
}

// `edits`: ("remove", name), ("insert", name, value), ("insert_bytes", name, value), ("insert_patched", name, edits).
void Edit(const BodyMap& map, const py::list& edits, std::deque<std::string>* names, BodyPatch* patch) {
  for (const py::handle& one : edits) {
    const auto edit = one.cast<py::tuple>();
    const auto kind = edit[0].cast<std::string>();
    const std::string_view name = names->emplace_back(edit[1].cast<std::string>());
    if (kind == "remove") patch->Remove(name);
    if (kind == "insert") patch->Insert(name, ViewOfBytes(edit[2]));
    if (kind == "insert_bytes") patch->InsertBytes(name, ViewOfBytes(edit[2]));
    if (kind == "insert_patched") {
      const BodyMap inner = BodyMap::Read(map.Find(name)->value);
      BodyPatch inner_patch;
      Edit(inner, edit[2].cast<py::list>(), names, &inner_patch);
      patch->InsertPatched(name, inner, inner_patch);
    }
  }
}

// (pieces, size, removed, where each piece stands in the body: -1 if not there)
py::tuple Splice(const py::bytes& body, const py::list& edits) {
  const BodyMap map = BodyMap::Read(ViewOfBytes(body));
  if (!map.ok()) throw py::value_error(ProblemName(map.problem()));
  std::deque<std::string> names;
  BodyPatch patch;
  Edit(map, edits, &names, &patch);
  const BodyPatch moved = std::move(patch);
  const SplicedBody spliced = moved.Apply(map);
  py::list pieces;
  py::list places;
  for (const std::string_view piece : spliced.pieces) {
    const bool inside =
        piece.data() >= map.body().data() && piece.data() < map.body().data() + map.body().size();
    pieces.append(PdBytes(piece));
    places.append(inside ? piece.data() - map.body().data() : -1);
  }
  return py::make_tuple(pieces, spliced.size, spliced.removed, places);
}

// Like SGLang's: both workers meet at a bootstrap server, and decode cannot compute a prompt.
class MeetingConnector final : public KvConnector {
 public:
  const Traits& traits() const override {
    static constexpr Traits kTraits{
        .name = "meeting",
        .hands_parameters = false,
        .shortens_prefill = false,
        .decode_can_prefill = false,
        .rebindable = false};
    return kTraits;
  }
  PdOrder OrderOf(const PairAttempt& /*attempt*/) const override { return PdOrder::kSglang; }
  void EditPrefill(const PairAttempt& attempt, BodyPatch* patch) const override { Meet(attempt, patch); }
  void EditDecode(
      const PairAttempt& attempt, std::optional<std::string_view> /*parameters*/,
      BodyPatch* patch) const override {
    Meet(attempt, patch);
  }
  bool IsWhole(const BodyMap& /*parameters*/) const override { return false; }

 private:
  static void Meet(const PairAttempt& attempt, BodyPatch* patch) {
    patch->Insert("bootstrap_host", std::string("\"") + std::string(attempt.prefill.host) + "\"");
    const std::optional<uint16_t> port = attempt.prefill.bootstrap_port;
    patch->Insert("bootstrap_port", port ? std::to_string(*port) : "null");
  }
};

const KvConnector& ConnectorNamed(const std::string& name) {
  static const MeetingConnector meeting;
  if (name == meeting.traits().name) return meeting;
  const KvConnector* const found = FindKvConnector(name);
  if (found == nullptr) throw py::key_error(name);
  return *found;
}

constexpr std::array<std::string_view, 9> kRoutes = {"completions", "chat",     "batch_chat",
                                                     "responses",   "messages", "inference_generate",
                                                     "generate",    "extra",    "other"};

PdRoute RouteNamed(std::string_view name) {
  const auto at = static_cast<size_t>(std::ranges::find(kRoutes, name) - kRoutes.begin());
  if (at == kRoutes.size()) throw py::key_error(std::string(name));
  return static_cast<PdRoute>(at);
}

PairAttempt SomeAttempt() {
  PairAttempt attempt;
  attempt.id = "id";
  attempt.prefill = {.host = "10.0.0.1", .port = 8000, .bootstrap_port = 8998};
  attempt.decode = {.host = "10.0.0.2", .port = 8000};
  return attempt;
}

py::dict Stripped(const StrippedMembers& stripped) {
  py::dict counts;
  counts["kv_transfer_params"] = stripped.kv_transfer_params;
  counts["ec_transfer_params"] = stripped.ec_transfer_params;
  counts["bootstrap"] = stripped.bootstrap;
  counts["unreadable"] = stripped.unreadable;
  return counts;
}

py::dict Plan(const std::string& route, const py::bytes& body, const std::string& connector) {
  constexpr std::array kKinds = {"two_stages", "local", "single", "rejected"};
  const BodyMap map = BodyMap::Read(ViewOfBytes(body));
  const PdPlan plan = MakePdPlan(RouteNamed(route), map, ConnectorNamed(connector));
  py::dict described;
  described["kind"] = kKinds.at(static_cast<size_t>(plan.kind));
  described["reason"] = LocalReasonName(plan.reason);
  described["error"] = plan.error;
  described["stripped"] = Stripped(plan.stripped);
  described["plain"] = PdBytes(plan.plain.Apply(map).Joined());
  return described;
}

py::bytes PrefillCopy(const std::string& route, const py::bytes& body, const std::string& connector) {
  const BodyMap map = BodyMap::Read(ViewOfBytes(body));
  const BodyPatch patch = PrefillPatch(RouteNamed(route), map, ConnectorNamed(connector), SomeAttempt());
  return PdBytes(patch.Apply(map).Joined());
}

// Decode's copy after the prefill worker's `response`, and whether the parameters are the response's own bytes.
py::tuple DecodeCopy(
    const std::string& route, const py::bytes& body, const std::string& connector_name,
    const py::bytes& response) {
  const KvConnector& connector = ConnectorNamed(connector_name);
  const BodyMap map = BodyMap::Read(ViewOfBytes(body));
  const PdPlan plan = MakePdPlan(RouteNamed(route), map, connector);
  const PrefillResponse told = ReadPrefillResponse(ViewOfBytes(response), connector);
  const BodyPatch patch = DecodePatch(plan, connector, SomeAttempt(), told.parameters);
  const SplicedBody spliced = patch.Apply(map);
  const bool raw = told.parameters && std::ranges::any_of(spliced.pieces, [&told](std::string_view piece) {
                     return piece.data() == told.parameters->data();
                   });
  return py::make_tuple(PdBytes(spliced.Joined()), raw);
}

py::dict TraitsOf(const KvConnector& connector) {
  const KvConnector::Traits& traits = connector.traits();
  py::dict told;
  told["name"] = traits.name;
  constexpr std::string_view kOrderNames[] = {"serial", "concurrent", "sglang"};
  told["order"] = kOrderNames[static_cast<size_t>(connector.OrderOf(SomeAttempt()))];
  told["hands_parameters"] = traits.hands_parameters;
  told["shortens_prefill"] = traits.shortens_prefill;
  told["decode_can_prefill"] = traits.decode_can_prefill;
  told["rebindable"] = traits.rebindable;
  return told;
}

}  // namespace

void BindTestingPd(py::module_& testing) {
  // (problem, where, [(name or None, value, type, name as spelled, where the value stands)])
  testing.def("read_body_map", [](const py::bytes& body) {
    const BodyMap map = BodyMap::Read(ViewOfBytes(body));
    return py::make_tuple(ProblemName(map.problem()), map.problem_at(), MembersOf(map));
  });
  testing.def("find_member", [](const py::bytes& body, const std::string& name) -> py::object {
    const BodyMap map = BodyMap::Read(ViewOfBytes(body));
    const BodyMap::Member* const found = map.Find(name);
    if (found == nullptr) return py::none();
    return PdBytes(found->value);
  });
  testing.def("member_holds", [](const py::bytes& body, const std::string& name, const std::string& text) {
    return BodyMap::Read(ViewOfBytes(body)).Find(name)->Holds(text);
  });
  testing.def("splice", &Splice);
  testing.def("json_elements", [](const py::bytes& array, size_t limit) -> py::object {
    const auto elements = JsonElements(ViewOfBytes(array), limit);
    if (!elements) return py::none();
    py::list list;
    for (const std::string_view element : *elements) list.append(PdBytes(element));
    return list;
  });
  testing.def("is_json_number", [](const py::bytes& token) { return IsJsonNumber(ViewOfBytes(token)); });
  testing.def("unescaped_json", [](const py::bytes& text) -> py::object {
    const std::optional<std::string> unescaped = UnescapedJson(ViewOfBytes(text));
    return unescaped ? py::object(PdBytes(*unescaped)) : py::none();
  });
  // Where the first value of a text ends; None: it does not.
  testing.def("skip_json_value", [](const py::bytes& text) {
    JsonScanner scanner(ViewOfBytes(text));
    return scanner.SkipValue() ? std::optional(scanner.at()) : std::nullopt;
  });

  testing.def("strip_transfer_members", [](const py::bytes& body) {
    const BodyMap map = BodyMap::Read(ViewOfBytes(body));
    BodyPatch patch;
    const StrippedMembers stripped = StripTransferMembers(map, &patch);
    return py::make_tuple(PdBytes(patch.Apply(map).Joined()), Stripped(stripped));
  });
  testing.def(
      "pd_route_of",
      [](const std::string& method, const std::string& path, const std::vector<std::string>& extra) {
        return kRoutes.at(static_cast<size_t>(PdRouteOf(method, path, extra)));
      });
  testing.def("pd_plan", &Plan);
  testing.def("prefill_copy", &PrefillCopy);
  testing.def("decode_copy", &DecodeCopy);

  testing.def("kv_connectors", [] {
    py::list all;
    for (const KvConnector* const one : KvConnectors()) all.append(TraitsOf(*one));
    return all;
  });
  testing.def("knows_kv_connector", [](const std::string& name) { return FindKvConnector(name) != nullptr; });
  testing.def("kv_connector_traits", [](const std::string& name) { return TraitsOf(ConnectorNamed(name)); });
  testing.def("parameters_are_whole", [](const std::string& connector, const py::bytes& parameters) {
    return ConnectorNamed(connector).IsWhole(BodyMap::Read(ViewOfBytes(parameters)));
  });
  // (what was found, the raw parameters or None, pushes)
  testing.def("read_prefill_response", [](const py::bytes& response, const std::string& connector) {
    const PrefillResponse told = ReadPrefillResponse(ViewOfBytes(response), ConnectorNamed(connector));
    return py::make_tuple(
        HandOverName(told.hand_over), told.parameters ? py::object(PdBytes(*told.parameters)) : py::none(),
        told.pushes);
  });

  testing.def("host_and_port", &HostAndPort);
  testing.def("pair_id", &PairId);
  testing.def("plain_pair_id", &PlainPairId);
}

}  // namespace vllm_router
