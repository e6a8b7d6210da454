// The JSON body of a hostile client, edited: of what is JSON, the copy means what the edit says, says Boost; of what is
// not, no copy becomes JSON unless the damage was inside what the edit took out; and no copy has a member twice that
// the edit names.
#include "routing/body_patch.h"

#include <boost/json.hpp>
#include <boost/json/src.hpp>
#include <string>
#include <string_view>

#include "fuzz.h"
#include "routing/pd_plan.h"

namespace {

namespace json = boost::json;
using vllm_router::BodyMap;
using vllm_router::BodyPatch;
using vllm_router::SplicedBody;

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

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  const std::string_view body = AsText(data, size);
  const BodyMap map = BodyMap::Read(body);
  CheckMap(map);
  json::object object;
  if (map.ok()) CheckPatch(map);
  if (map.problem() == BodyMap::Problem::kNotAnObject) FUZZ_CHECK(!ParseObject(body, &object));

  const PairAttempt attempt;
  for (const PdRoute route :
       {PdRoute::kCompletions, PdRoute::kChat, PdRoute::kResponses, PdRoute::kInferenceGenerate,
        PdRoute::kOther}) {
    const KvConnector& connector = **KvConnectors().data();
    const PdPlan plan = MakePdPlan(route, map, connector);
    if (!map.ok() || plan.kind == PdKind::kRejected) continue;
    const std::string plain = plan.plain.Apply(map).Joined();
    const BodyMap kept = BodyMap::Read(plain);
    FUZZ_CHECK(kept.ok());
    for (const std::string_view name : {"kv_transfer_params", "ec_transfer_params", "bootstrap_room"})
      FUZZ_CHECK(CountOf(kept, name) == 0);
    if (plan.kind != PdKind::kTwoStages) continue;
    const std::string prefill = PrefillPatch(route, map, connector, attempt).Apply(map).Joined();
    const BodyMap told = BodyMap::Read(prefill);
    FUZZ_CHECK(told.ok() || told.problem() == BodyMap::Problem::kTooManyMembers);
    if (told.ok()) FUZZ_CHECK(CountOf(told, "kv_transfer_params") == 1 && CountOf(told, "stream") == 1);
  }
  return 0;
}
