#include "disaggregation/sglang_connector.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"
#include "base/text.h"

namespace vllm_router {
namespace {

constexpr uint64_t kMaxRoom = std::numeric_limits<int64_t>::max();

// Of the client's request, by all names that versions know.
constexpr std::array<std::string_view, 3> kClientRanks = {
    "routed_dp_rank", "disagg_prefill_dp_rank", "data_parallel_rank"};

bool IsRoomOf(const PairEnd& prefill, uint64_t room) {
  if (room > kMaxRoom) return false;
  return !prefill.rank || room % *prefill.dp_size == *prefill.rank;
}

// `values` as they are for one prompt, and as an array for a list of them.
template <typename ValueAt>
std::string ValueFor(const PairAttempt& attempt, ValueAt value_at) {
  if (!attempt.listed_prompts) return value_at(0);
  std::string array = "[";
  for (size_t i = 0; i < *attempt.listed_prompts; ++i) {
    if (i != 0) array += ',';
    array += value_at(i);
  }
  return array + "]";
}

class Sglang final : public KvConnector {
 public:
  const Traits& traits() const override {
    static constexpr Traits kTraits{
        .name = "sglang",
        .hands_parameters = false,
        .shortens_prefill = false,
        .decode_can_prefill = false,
        .meets_in_rooms = true,
        .rebindable = false,
        .id_form = PairIdForm::kPlain};
    return kTraits;
  }

  PdOrder OrderOf(const PairAttempt& /*attempt*/) const override { return PdOrder::kSglang; }

  std::string_view Missing(const PairAttempt& attempt) const override {
    const PairEnd& prefill = attempt.prefill;
    if (prefill.host.empty()) return "the host of the prefill worker's bootstrap server";
    if (prefill.rank && prefill.dp_size.value_or(0) <= *prefill.rank)
      return "the number of the prefill worker's data-parallel ranks";
    if (attempt.rooms.size() != attempt.listed_prompts.value_or(1)) return "a bootstrap room for each prompt";
    const bool fits =
        std::ranges::all_of(attempt.rooms, [&prefill](uint64_t room) { return IsRoomOf(prefill, room); });
    return fits ? "" : "bootstrap rooms of the prefill worker's rank";
  }

  void EditPrefill(const PairAttempt& attempt, BodyPatch* patch) const override {
    Meet(attempt, patch);
    if (attempt.rank_fields) TellRank("routed_dp_rank", attempt.prefill, patch);
  }

  void EditDecode(
      const PairAttempt& attempt, std::optional<std::string_view> /*parameters*/,
      BodyPatch* patch) const override {
    Meet(attempt, patch);
    if (!attempt.rank_fields) return;
    TellRank("routed_dp_rank", attempt.decode, patch);
    TellRank("disagg_prefill_dp_rank", attempt.prefill, patch);
  }

  bool IsWhole(const BodyMap& /*parameters*/) const override { return false; }

 private:
  static void Meet(const PairAttempt& attempt, BodyPatch* patch) {
    for (const std::string_view name : kClientRanks) patch->Remove(name);
    const PairEnd& prefill = attempt.prefill;
    const bool bare_ipv6 = prefill.host.find(':') != std::string_view::npos && !prefill.host.starts_with('[');
    const std::string host =
        JsonQuoted(bare_ipv6 ? Concat("[", prefill.host, "]") : std::string(prefill.host));
    const std::string port = prefill.bootstrap_port ? Concat(*prefill.bootstrap_port) : "null";
    patch->Insert("bootstrap_host", ValueFor(attempt, [&host](size_t) { return host; }));
    patch->Insert("bootstrap_port", ValueFor(attempt, [&port](size_t) { return port; }));
    patch->Insert(
        "bootstrap_room", ValueFor(attempt, [&attempt](size_t i) { return Concat(attempt.rooms[i]); }));
  }

  static void TellRank(std::string_view name, const PairEnd& end, BodyPatch* patch) {
    if (end.rank) patch->Insert(name, Concat(*end.rank));
  }
};

}  // namespace

uint64_t DrawRoom(uint64_t bits, uint32_t rank, uint32_t dp_size) {
  ROUTER_CHECK(rank < dp_size, "a rank is below the number of ranks");
  const uint64_t drawn = bits & kMaxRoom;
  const uint64_t room = drawn - drawn % dp_size + rank;
  return room > kMaxRoom ? room - dp_size : room;
}

const KvConnector& SglangConnector() {
  static const Sglang connector;
  return connector;
}

}  // namespace vllm_router
