// The JSON body of a hostile client, edited: of what is JSON, the copy means what the edit says, says Boost; of what is
// not, no copy becomes JSON unless the damage was inside what the edit took out; and no copy has a member twice that
// the edit names.
#include "routing/body_patch.h"

#include <boost/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "disaggregation/pd_plan.h"
#include "fuzz.h"

namespace {

namespace json = boost::json;
using namespace vllm_router;

constexpr std::string_view kEdited = "max_tokens";

// Of several members the last one counts.
bool ParseObject(std::string_view text, json::object* object) {
  json::parse_options options;
  options.max_depth = 2000;
  boost::system::error_code error;
  json::value value = json::parse(json::string_view(text.data(), text.size()), error, {}, options);
  if (error || !value.is_object()) return false;
  *object = value.as_object();
  return true;
}

size_t CountOf(const BodyMap& map, std::string_view name) {
  size_t count = 0;
  for (const BodyMap::Member& member : map.members()) count += member.Is(name) ? 1 : 0;
  return count;
}

void CheckMap(const BodyMap& map) {
  FUZZ_CHECK(map.problem_at() <= map.body().size());
  const char* before = map.body().data();
  for (const BodyMap::Member& member : map.members()) {
    FUZZ_CHECK(vllm_router::Inside(member.name, map.body()) && vllm_router::Inside(member.value, map.body()));
    FUZZ_CHECK(
        before < member.name.data() && member.name.data() < member.value.data() && !member.value.empty());
    before = member.value.data() + member.value.size();
  }
}

void CheckPatch(const BodyMap& map) {
  BodyPatch patch;
  patch.Insert(kEdited, "1");
  patch.Remove("bootstrap_*");
  const SplicedBody spliced = patch.Apply(map);
  const std::string copy = spliced.Joined();
  FUZZ_CHECK(copy.size() == spliced.size);
  const BodyMap again = BodyMap::Read(copy);
  // An insertion may make one member too many.
  FUZZ_CHECK(again.ok() || again.problem() == BodyMap::Problem::kTooManyMembers);
  if (again.ok()) FUZZ_CHECK(CountOf(again, kEdited) == 1);

  json::object before;
  json::object after;
  if (ParseObject(map.body(), &before)) {
    FUZZ_CHECK(ParseObject(copy, &after));
    before[kEdited] = 1;
    for (auto at = before.begin(); at != before.end();) {
      const std::string_view name(at->key().data(), at->key().size());
      if (name.starts_with("bootstrap_")) {
        before.erase(at);
        at = before.begin();
      } else {
        ++at;
      }
    }
    FUZZ_CHECK(before == after);
  }
}

// Everything is known, in the mode in which both are told at once.
PairAttempt FullAttempt(const PdPlan& plan, std::vector<uint64_t>* rooms) {
  static const PushIdentity identity{.engine_id = "e", .host = "h", .port = 5600};
  PairAttempt attempt;
  attempt.prefill = {
      .host = "10.0.0.1",
      .port = 8000,
      .rank = 0,
      .engine_id = "e",
      .push = &identity,
      .zmq_address = "p:1",
      .tp_size = 1,
      .dp_size = 1};
  attempt.decode = {.host = "10.0.0.2", .port = 8000, .zmq_address = "d:1", .tp_size = 1, .dp_size = 1};
  attempt.id = "___prefill_addr_p:1___decode_addr_d:1_";
  attempt.bits = PairBits{.high = 1, .low = 2};
  attempt.moriio_mode = MoriioMode::kWrite;
  attempt.listed_prompts = plan.listed_prompts;
  rooms->assign(plan.listed_prompts.value_or(1), 7);
  attempt.rooms = *rooms;
  attempt.rank_fields = true;
  return attempt;
}

// What only the router may set is in a copy once if the connector sets it, and nowhere else.
void CheckOurs(const BodyMap& copy, bool has_parameters, bool has_rooms) {
  if (copy.problem() == BodyMap::Problem::kTooManyMembers) return;
  FUZZ_CHECK(copy.ok());
  FUZZ_CHECK(CountOf(copy, "kv_transfer_params") == static_cast<size_t>(has_parameters));
  for (const std::string_view name : {"bootstrap_host", "bootstrap_port", "bootstrap_room"})
    FUZZ_CHECK(CountOf(copy, name) == static_cast<size_t>(has_rooms));
  FUZZ_CHECK(CountOf(copy, "ec_transfer_params") == 0);
  FUZZ_CHECK(CountOf(copy, "rid") == 0);
  FUZZ_CHECK(CountOf(copy, "request_id") <= 1);  // the pair's
}

void CheckCopies(PdRoute route, const BodyMap& map, const KvConnector& connector) {
  const PdPlan plan = MakePdPlan(route, map, connector);
  if (!map.ok() || plan.kind == PdKind::kRejected) return;
  const std::string plain = plan.plain.Apply(map).Joined();
  CheckOurs(BodyMap::Read(plain), false, false);
  if (plan.kind != PdKind::kTwoStages) return;
  std::vector<uint64_t> rooms;
  const PairAttempt attempt = FullAttempt(plan, &rooms);
  FUZZ_CHECK(connector.Missing(attempt).empty());
  const bool has_rooms = connector.traits().meets_in_rooms;
  const bool is_store = connector.traits().name == "shared_store";
  const std::string prefill = PrefillPatch(route, map, connector, attempt).Apply(map).Joined();
  const BodyMap told = BodyMap::Read(prefill);
  CheckOurs(told, !has_rooms && !is_store, has_rooms);
  if (told.ok() && connector.traits().shortens_prefill) FUZZ_CHECK(CountOf(told, "stream") == 1);
  const std::string decode = DecodePatch(route, plan, connector, attempt, std::nullopt).Apply(map).Joined();
  const bool at_once = connector.OrderOf(attempt) == PdOrder::kConcurrent;
  CheckOurs(BodyMap::Read(decode), at_once, has_rooms);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body = AsText(data, size);
  const BodyMap map = BodyMap::Read(body);
  CheckMap(map);
  json::object object;
  if (map.ok()) CheckPatch(map);
  if (map.problem() == BodyMap::Problem::kNotAnObject) FUZZ_CHECK(!ParseObject(body, &object));

  for (const KvConnector* const connector : KvConnectors()) {
    for (const PdRoute route :
         {PdRoute::kCompletions, PdRoute::kChat, PdRoute::kResponses, PdRoute::kInferenceGenerate,
          PdRoute::kGenerate, PdRoute::kOther})
      CheckCopies(route, map, *connector);
  }
  return 0;
}
