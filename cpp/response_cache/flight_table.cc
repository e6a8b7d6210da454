#include "response_cache/flight_table.h"

#include <utility>

#include "base/check.h"

namespace vllm_router {

FlightTable::Lead::Lead(Lead&& other) noexcept
    : table_(std::exchange(other.table_, nullptr)), key_(other.key_) {}

FlightTable::Lead& FlightTable::Lead::operator=(Lead&& other) noexcept {
  if (this != &other) {
    Abandon();
    table_ = std::exchange(other.table_, nullptr);
    key_ = other.key_;
  }
  return *this;
}

bool FlightTable::Lead::has_followers() const {
  if (table_ == nullptr) return false;
  Shard& shard = table_->ShardOf(key_);
  const MutexLock lock(shard.mutex);
  return !shard.flights.at(key_).followers.empty();
}

void FlightTable::Lead::Abandon() {
  // Without a time: a failure marks no key.
  if (table_ != nullptr) table_->Finish(std::move(*this), End::kFailed, nullptr, 0);
}

FlightTable::~FlightTable() { ROUTER_CHECK(stats().flights == 0, "every leader has ended its flight"); }

void FlightTable::SetLimits(const Limits& limits) {
  max_followers_.store(limits.followers, std::memory_order_relaxed);
  max_promotions_.store(limits.promotions, std::memory_order_relaxed);
}

FlightTable::Joined FlightTable::Join(const CacheKey& key, Follower* follower, int64_t now_ns) {
  Shard& shard = ShardOf(key);
  const MutexLock lock(shard.mutex);
  if (shard.IsAlone(key, now_ns)) return {};
  const auto [place, is_new] = shard.flights.try_emplace(key);
  if (is_new) {
    ++shard.stats.flights;
    return {.role = Role::kLeads, .lead = Lead(this, key)};
  }
  Flight& flight = place->second;
  const size_t most = max_followers_.load(std::memory_order_relaxed);
  if (follower == nullptr || flight.followers.size() >= most) return {};
  follower->key_ = key;
  follower->linked_ = true;
  follower->place_ = flight.followers.insert(flight.followers.end(), follower);
  ++shard.stats.followers;
  return {.role = Role::kFollows, .lead = {}};
}

bool FlightTable::Leave(Follower* follower) {
  Shard& shard = ShardOf(follower->key_);
  const MutexLock lock(shard.mutex);
  if (!follower->linked_) return false;
  follower->linked_ = false;
  shard.flights.at(follower->key_).followers.erase(follower->place_);
  --shard.stats.followers;
  return true;
}

void FlightTable::Finish(Lead lead, End end, Response response, int64_t now_ns) {
  FlightTable* const table = std::exchange(lead.table_, nullptr);
  ROUTER_CHECK(table == this, "a flight ends once, in its table");
  std::vector<Notice> notices;
  Shard& shard = ShardOf(lead.key_);
  {
    const MutexLock lock(shard.mutex);
    const auto place = shard.flights.find(lead.key_);
    Flight& flight = place->second;
    if (end == End::kNotShareable) shard.SetAlone(lead.key_, now_ns);
    const size_t promotions = max_promotions_.load(std::memory_order_relaxed);
    if (end == End::kFailed && !flight.followers.empty() && flight.promotions < promotions) {
      ++flight.promotions;
      ++shard.stats.promoted;
      notices.push_back(
          {.follower = shard.Unlink(&flight),
           .news = News::kLead,
           .response = nullptr,
           .lead = Lead(this, lead.key_)});
    } else {
      const bool shared = end == End::kShared;
      while (!flight.followers.empty()) {
        ++(shared ? shard.stats.shared : shard.stats.alone);
        notices.push_back(
            {.follower = shard.Unlink(&flight),
             .news = shared ? News::kResponse : News::kAlone,
             .response = shared ? response : nullptr,
             .lead = {}});
      }
      shard.flights.erase(place);
      --shard.stats.flights;
    }
  }
  Send(std::move(notices));
}

void FlightTable::Send(std::vector<Notice> notices) {
  for (Notice& notice : notices) {
    notice.follower->Notify(notice.news, std::move(notice.response), std::move(notice.lead));
  }
}

FlightTable::Follower* FlightTable::Shard::Unlink(Flight* flight) {
  Follower* const follower = flight->followers.front();
  flight->followers.pop_front();
  follower->linked_ = false;
  --stats.followers;
  return follower;
}

bool FlightTable::Shard::IsAlone(const CacheKey& key, int64_t now_ns) {
  while (!by_age.empty() && alone.at(by_age.front()) <= now_ns) {
    alone.erase(by_age.front());
    by_age.pop_front();
  }
  return alone.contains(key);
}

void FlightTable::Shard::SetAlone(const CacheKey& key, int64_t now_ns) {
  IsAlone(key, now_ns);
  if (alone.size() >= kMaxAlone) {
    alone.erase(by_age.front());
    by_age.pop_front();
  }
  if (alone.try_emplace(key, now_ns + kAloneNs).second) by_age.push_back(key);
}

FlightTable::Stats FlightTable::stats() const {
  Stats sum;
  for (const Shard& shard : shards_) {
    const MutexLock lock(shard.mutex);
    sum.flights += shard.stats.flights;
    sum.followers += shard.stats.followers;
    sum.alone_keys += shard.alone.size();
    sum.shared += shard.stats.shared;
    sum.promoted += shard.stats.promoted;
    sum.alone += shard.stats.alone;
  }
  return sum;
}

}  // namespace vllm_router
