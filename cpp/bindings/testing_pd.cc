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
#include "disaggregation/kv_connector.h"
#include "disaggregation/merged_response.h"
#include "disaggregation/mooncake_engines.h"
#include "disaggregation/pair_id.h"
#include "disaggregation/pd_plan.h"
#include "disaggregation/prefill_response.h"
#include "disaggregation/sglang_connector.h"
#include "disaggregation/transfer_members.h"
#include "disaggregation/transfer_parameters.h"
#include "routing/billing_header.h"
#include "routing/body_map.h"
#include "routing/body_patch.h"
#include "routing/cache_control.h"
#include "routing/json_scanner.h"

namespace vllm_router {
namespace {

namespace py = pybind11;
using py::literals::operator""_a;

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

// What becomes of a marker, and the body with it; of a body from which `removed` members are taken, too.
// As AddedCacheControl(), without a result.
py::bytes StrippedBillingHeader(const py::bytes& body, const std::vector<std::string>& removed) {
  const BodyMap map = BodyMap::Read(ViewOfBytes(body));
  BodyPatch patch;
  for (const std::string& name : removed) patch.Remove(name);
  const SplicedBody spliced = patch.Apply(map, BillingHeaderEdits(map));
  if (spliced.Joined().size() != spliced.size) throw py::value_error("the size is wrong");
  return PdBytes(spliced.Joined());
}

py::tuple AddedCacheControl(const py::bytes& body, const std::vector<std::string>& removed) {
  const BodyMap map = BodyMap::Read(ViewOfBytes(body));
  const CacheControlEdit edit = CacheControlEdit::Of(map);
  BodyPatch patch;
  for (const std::string& name : removed) patch.Remove(name);
  const SplicedBody spliced = patch.Apply(map, edit.insertions());
  if (spliced.Joined().size() != spliced.size) throw py::value_error("the size is wrong");
  return py::make_tuple(CacheControlResultName(edit.result()), PdBytes(spliced.Joined()));
}

const KvConnector& ConnectorNamed(const std::string& name) {
  const KvConnector* const found = FindKvConnector(name);
  if (found == nullptr) throw py::key_error(name);
  return *found;
}

constexpr std::array<std::string_view, 11> kRoutes = {
    "completions", "chat",  "batch_chat", "responses", "messages", "inference_generate",
    "generate",    "extra", "one_engine", "other",     "unknown"};

PdRoute RouteNamed(std::string_view name) {
  const auto at = static_cast<size_t>(std::ranges::find(kRoutes, name) - kRoutes.begin());
  if (at == kRoutes.size()) throw py::key_error(std::string(name));
  return static_cast<PdRoute>(at);
}

PushIdentity IdentityOf(const py::dict& told) {
  PushIdentity identity;
  identity.engine_id = told["engine_id"].cast<std::string>();
  identity.host = told["host"].cast<std::string>();
  identity.port = told["port"].cast<uint16_t>();
  identity.tp_size = told["tp_size"].cast<uint32_t>();
  identity.pp_size = told["pp_size"].cast<std::optional<uint32_t>>();
  return identity;
}

// An attempt of a dict with the names of PairAttempt, and the texts that it views.
class AttemptOf {
 public:
  explicit AttemptOf(const py::dict& told) {
    attempt_.id = TextOf(told, "id", "id");
    attempt_.prefill = {.host = "10.0.0.1", .port = 8000, .bootstrap_port = 8998};
    attempt_.decode = {.host = "10.0.0.2", .port = 8000};
    if (told.contains("prefill")) attempt_.prefill = EndOf(told["prefill"]);
    if (told.contains("decode")) attempt_.decode = EndOf(told["decode"]);
    if (told.contains("bits")) {
      const auto [high, low] = told["bits"].cast<std::pair<uint64_t, uint64_t>>();
      attempt_.bits = PairBits{.high = high, .low = low};
    }
    if (told.contains("mode"))
      attempt_.moriio_mode = TextOf(told, "mode", "") == "READ" ? MoriioMode::kRead : MoriioMode::kWrite;
    if (told.contains("rooms")) rooms_ = told["rooms"].cast<std::vector<uint64_t>>();
    attempt_.rooms = rooms_;
    if (told.contains("listed_prompts")) attempt_.listed_prompts = told["listed_prompts"].cast<size_t>();
    attempt_.rank_fields = told.contains("rank_fields") && told["rank_fields"].cast<bool>();
  }
  AttemptOf(const AttemptOf&) = delete;
  AttemptOf& operator=(const AttemptOf&) = delete;

  operator const PairAttempt&() const { return attempt_; }
  const PairAttempt* operator->() const { return &attempt_; }

 private:
  std::string_view TextOf(const py::dict& told, const char* name, const char* otherwise) {
    return texts_.emplace_back(told.contains(name) ? told[name].cast<std::string>() : otherwise);
  }

  template <typename Number>
  static std::optional<Number> NumberOf(const py::dict& told, const char* name) {
    return told.contains(name) ? told[name].cast<std::optional<Number>>() : std::nullopt;
  }

  PairEnd EndOf(const py::dict& told) {
    PairEnd end;
    end.host = TextOf(told, "host", "");
    end.port = NumberOf<uint16_t>(told, "port").value_or(0);
    end.rank = NumberOf<uint32_t>(told, "rank");
    end.bootstrap_port = NumberOf<uint16_t>(told, "bootstrap_port");
    end.engine_id = TextOf(told, "engine_id", "");
    if (told.contains("push")) end.push = &identities_.emplace_back(IdentityOf(told["push"]));
    end.zmq_address = TextOf(told, "zmq_address", "");
    end.tp_size = NumberOf<uint32_t>(told, "tp_size");
    end.dp_size = NumberOf<uint32_t>(told, "dp_size");
    return end;
  }

  std::deque<std::string> texts_;
  std::deque<PushIdentity> identities_;
  std::vector<uint64_t> rooms_;
  PairAttempt attempt_;
};

py::dict Stripped(const StrippedMembers& stripped) {
  py::dict counts;
  counts["kv_transfer_params"] = stripped.kv_transfer_params;
  counts["ec_transfer_params"] = stripped.ec_transfer_params;
  counts["bootstrap"] = stripped.bootstrap;
  counts["kv_hints"] = stripped.kv_hints;
  counts["request_id"] = stripped.request_id;
  counts["rank"] = stripped.rank;
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
  described["listed_prompts"] = plan.listed_prompts;
  described["plain"] = PdBytes(plan.plain.Apply(map).Joined());
  return described;
}

py::bytes PrefillCopy(
    const std::string& route, const py::bytes& body, const std::string& connector, const py::dict& told) {
  const BodyMap map = BodyMap::Read(ViewOfBytes(body));
  const AttemptOf attempt(told);
  const BodyPatch patch = PrefillPatch(RouteNamed(route), map, ConnectorNamed(connector), attempt);
  return PdBytes(patch.Apply(map).Joined());
}

// Decode's copy after the prefill worker's `response`, and whether the parameters are the response's own bytes.
py::tuple DecodeCopy(
    const std::string& route, const py::bytes& body, const std::string& connector_name,
    const py::bytes& response, const py::dict& attempt_told) {
  const KvConnector& connector = ConnectorNamed(connector_name);
  const BodyMap map = BodyMap::Read(ViewOfBytes(body));
  const PdPlan plan = MakePdPlan(RouteNamed(route), map, connector);
  const PrefillResponse told = ReadPrefillResponse(ViewOfBytes(response), connector);
  const AttemptOf attempt(attempt_told);
  const BodyPatch patch = DecodePatch(RouteNamed(route), plan, connector, attempt, told.parameters);
  const SplicedBody spliced = patch.Apply(map);
  const bool raw = told.parameters && std::ranges::any_of(spliced.pieces, [&told](std::string_view piece) {
                     return piece.data() == told.parameters->data();
                   });
  return py::make_tuple(PdBytes(spliced.Joined()), raw);
}

std::string_view OrderName(PdOrder order) {
  constexpr std::array<std::string_view, 3> kNames = {"serial", "concurrent", "sglang"};
  return kNames.at(static_cast<size_t>(order));
}

py::dict TraitsOf(const KvConnector& connector) {
  constexpr std::array<std::string_view, 3> kIdForms = {"either", "addresses", "plain"};
  const KvConnector::Traits& traits = connector.traits();
  py::dict told;
  told["name"] = traits.name;
  told["order"] = OrderName(connector.OrderOf(AttemptOf(py::dict())));
  told["ends_by_length"] = traits.ends_by_length;
  told["id_form"] = kIdForms.at(static_cast<size_t>(traits.id_form));
  told["hands_parameters"] = traits.hands_parameters;
  told["shortens_prefill"] = traits.shortens_prefill;
  told["decode_can_prefill"] = traits.decode_can_prefill;
  told["rebindable"] = traits.rebindable;
  told["needs_parameters"] = traits.needs_parameters;
  told["meets_in_rooms"] = traits.meets_in_rooms;
  told["prefill_needs_pair"] = traits.prefill_needs_pair;
  told["registers"] = traits.registers;
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
  testing.def("add_cache_control", &AddedCacheControl, "body"_a, "removed"_a = std::vector<std::string>());
  testing.def(
      "strip_billing_header", &StrippedBillingHeader, "body"_a, "removed"_a = std::vector<std::string>());
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

  testing.def(
      "strip_transfer_members",
      [](const py::bytes& body, bool staged) {
        const BodyMap map = BodyMap::Read(ViewOfBytes(body));
        BodyPatch patch;
        const StripScope scope = staged ? StripScope::kStaged : StripScope::kTransfers;
        const StrippedMembers stripped = StripTransferMembers(map, scope, &patch);
        return py::make_tuple(PdBytes(patch.Apply(map).Joined()), Stripped(stripped));
      },
      "body"_a, "staged"_a = true);
  testing.def(
      "pd_route_of",
      [](const std::string& method, const std::string& path, const std::vector<std::string>& extra,
         const std::vector<std::string>& passed, bool websocket) {
        const PdPaths paths{.two_stages = extra, .passed = passed};
        return kRoutes.at(static_cast<size_t>(PdRouteOf(method, path, websocket, paths)));
      },
      "method"_a, "path"_a, "extra"_a = std::vector<std::string>(), "passed"_a = std::vector<std::string>(),
      "websocket"_a = false);
  testing.def("pd_plan", &Plan);
  testing.def("prefill_copy", &PrefillCopy, "route"_a, "body"_a, "connector"_a, "attempt"_a = py::dict());
  testing.def(
      "decode_copy", &DecodeCopy, "route"_a, "body"_a, "connector"_a, "response"_a, "attempt"_a = py::dict());

  testing.def("kv_connectors", [] {
    py::list all;
    for (const KvConnector* const one : KvConnectors()) all.append(TraitsOf(*one));
    return all;
  });
  testing.def("knows_kv_connector", [](const std::string& name) { return FindKvConnector(name) != nullptr; });
  // The name; nullopt: none is known yet, or there is none.
  testing.def("connector_of", [](const std::string& name, const std::string& engine) {
    const KvConnector* const connector = ConnectorOf(name, EngineKindByName(engine));
    return connector != nullptr ? std::optional(connector->traits().name) : std::nullopt;
  });
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

  testing.def("wants_merge", [](const std::string& route, const py::bytes& request) {
    return WantsMerge(RouteNamed(route), BodyMap::Read(ViewOfBytes(request)));
  });
  testing.def(
      "merge_responses",
      [](const std::string& route, const py::bytes& prefill, const py::bytes& decode) -> py::object {
        const std::optional<std::string> merged =
            MergeResponses(RouteNamed(route), ViewOfBytes(prefill), ViewOfBytes(decode));
        return merged ? py::object(PdBytes(*merged)) : py::none();
      });
  testing.def("merge_usage", [](const py::bytes& prefill, const py::bytes& decode) -> py::object {
    const std::optional<std::string> merged = MergeUsage(ViewOfBytes(prefill), ViewOfBytes(decode));
    return merged ? py::object(PdBytes(*merged)) : py::none();
  });

  testing.def("order_of", [](const std::string& connector, const py::dict& told) {
    return OrderName(ConnectorNamed(connector).OrderOf(AttemptOf(told)));
  });
  testing.def("missing_for_pair", [](const std::string& connector, const py::dict& told) {
    return ConnectorNamed(connector).Missing(AttemptOf(told));
  });
  testing.def("read_push_identity", [](const py::bytes& parameters) -> py::object {
    const std::optional<PushIdentity> identity = ReadPushIdentity(BodyMap::Read(ViewOfBytes(parameters)));
    if (!identity) return py::none();
    py::dict told;
    told["engine_id"] = identity->engine_id;
    told["host"] = identity->host;
    told["port"] = identity->port;
    told["tp_size"] = identity->tp_size;
    told["pp_size"] = identity->pp_size;
    return told;
  });
  testing.def("says_push", [](const py::bytes& parameters) {
    return SaysPush(BodyMap::Read(ViewOfBytes(parameters)));
  });
  testing.def("read_mooncake_engines", [](const py::bytes& reply) {
    return ReadMooncakeEngines(ViewOfBytes(reply));
  });
  testing.def("draw_room", &DrawRoom);
  testing.def("transfer_text_in", [](const py::bytes& object, const std::string& name, size_t limit) {
    return TextIn(BodyMap::Read(ViewOfBytes(object)), name, limit);
  });
  testing.def("transfer_count_in", [](const py::bytes& object, const std::string& name, uint32_t most) {
    return CountIn(BodyMap::Read(ViewOfBytes(object)), name, most);
  });
  testing.def("transfer_has", [](const std::string& what, const py::bytes& object, const std::string& name) {
    const BodyMap map = BodyMap::Read(ViewOfBytes(object));
    if (what == "once") return OnlyMember(map, name) != nullptr;
    if (what == "port") return HasPort(map, name);
    return what == "blocks" ? HasBlocks(map, name) : HasText(map, name);
  });

  testing.def("host_and_port", &HostAndPort);
  testing.def("pair_id", &PairId);
  testing.def("plain_pair_id", &PlainPairId);
  testing.def("xfer_id", [](uint64_t high, uint64_t low) { return XferId({.high = high, .low = low}); });
  testing.def("tx_id", [](uint64_t high, uint64_t low) { return TxId({.high = high, .low = low}); });
  testing.def("pair_id_prefix", &PairIdPrefix);
  testing.def(
      "new_pair_id",
      [](const std::string& connector, const py::dict& told, const std::string& client_id, bool plain) {
        const AttemptOf attempt(told);
        return NewPairId(
            ConnectorNamed(connector), attempt->prefill, attempt->decode, client_id, *attempt->bits, plain);
      });
}

}  // namespace vllm_router
