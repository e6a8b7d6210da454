#include "admission/tenant_tokens.h"

#include <algorithm>
#include <utility>

#include <absl/strings/string_view.h>

#include "admission/tenant_name.h"
#include "hashing/hash.h"

namespace vllm_router {

TenantUse& TenantUse::operator+=(const TenantUse& other) {
  prompt += other.prompt;
  cached += other.cached;
  completion += other.completion;
  for (size_t i = 0; i < rejected.size(); ++i) rejected[i] += other.rejected[i];
  return *this;
}

TenantUse& TenantUse::operator-=(const TenantUse& other) {
  prompt -= other.prompt;
  cached -= other.cached;
  completion -= other.completion;
  for (size_t i = 0; i < rejected.size(); ++i) rejected[i] -= other.rejected[i];
  return *this;
}

bool TenantUse::covers(const TenantUse& other) const { return LargerOf(*this, other) == *this; }

TenantUse RejectionOf(TenantRejection reason) {
  TenantUse use;
  use.rejected[static_cast<size_t>(reason)] = 1;
  return use;
}

TenantUse LargerOf(const TenantUse& a, const TenantUse& b) {
  TenantUse larger{
      .prompt = std::max(a.prompt, b.prompt),
      .cached = std::max(a.cached, b.cached),
      .completion = std::max(a.completion, b.completion)};
  for (size_t i = 0; i < larger.rejected.size(); ++i)
    larger.rejected[i] = std::max(a.rejected[i], b.rejected[i]);
  return larger;
}

// ---- counting

TenantTokens::TenantTokens(size_t max_tenants)
    : shards_(max_tenants >= kManyTenants ? kShards : 1), most_of_each_(max_tenants / shards_) {}

void TenantTokens::Shard::Unlink(uint32_t place) {
  const Entry& entry = entries[place];
  (entry.newer == kNone ? newest : entries[entry.newer].older) = entry.older;
  (entry.older == kNone ? oldest : entries[entry.older].newer) = entry.newer;
}

void TenantTokens::Shard::LinkNewest(uint32_t place) {
  entries[place].newer = kNone;
  entries[place].older = newest;
  (newest == kNone ? oldest : entries[newest].newer) = place;
  newest = place;
}

// That of the tenant, which is the newest from now on.
uint32_t TenantTokens::Shard::PlaceOf(std::string_view tenant, size_t most) {
  if (const auto found = places.find(absl::string_view(tenant.data(), tenant.size()));
      found != places.end()) {
    Unlink(found->second);
    LinkNewest(found->second);
    return found->second;
  }
  uint32_t place = oldest;
  if (entries.size() < most) {
    place = static_cast<uint32_t>(entries.size());
    entries.emplace_back();
  } else {
    Unlink(place);
    places.erase(entries[place].name);
  }
  entries[place] = {.name = std::string(tenant)};
  places.emplace(std::string(tenant), place);
  LinkNewest(place);
  return place;
}

void TenantTokens::Add(std::string_view tenant, bool configured, const TenantUse& tokens) {
  Shard& shard = shard_[shards_ == 1 ? 0 : Xxh3(tenant) % kShards];
  const MutexLock lock(shard.mutex);
  Entry& entry = shard.entries[shard.PlaceOf(tenant, most_of_each_)];
  entry.configured = configured;
  entry.tokens += tokens;
  shard.total += tokens;
}

TenantSums TenantTokens::Read() const {
  TenantSums sums;
  for (const Shard& shard : shard_) {
    for (size_t next = 0, end = 1; next < end;) {
      const MutexLock lock(shard.mutex);
      end = shard.entries.size();
      const size_t until = std::min(end, next + kReadAtOnce);
      for (; next < until; ++next) {
        const Entry& entry = shard.entries[next];
        sums.tenants.push_back({.name = entry.name, .configured = entry.configured, .tokens = entry.tokens});
      }
    }
  }
  // Behind the parts, so it is no less than their sum.
  for (const Shard& shard : shard_) {
    const MutexLock lock(shard.mutex);
    sums.total += shard.total;
  }
  return sums;
}

// ---- showing

void TenantLabels::End(Known* known) {
  ended_ += known->shown;
  known->shown = {};
  known->labelled = false;
}

void TenantLabels::ChooseOthers(Table* table) {
  std::vector<std::pair<std::string_view, Known*>> in;
  std::vector<std::pair<std::string_view, Known*>> out;
  for (auto& [name, known] : *table) {
    if (known.configured) {
      known.labelled = true;
    } else {
      (known.labelled ? in : out).emplace_back(name, &known);
    }
  }
  const auto busier = [](const auto& a, const auto& b) {
    const uint64_t a_work = a.second->now.work();
    const uint64_t b_work = b.second->now.work();
    return a_work != b_work ? a_work > b_work : a.first < b.first;
  };
  std::ranges::sort(in, busier);
  const auto drop_last = [this, &in] {
    End(in.back().second);
    in.pop_back();
  };
  while (in.size() > others_) drop_last();  // some are no longer configured
  const size_t considered = std::min(out.size(), others_);
  std::partial_sort(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(considered), out.end(), busier);
  for (size_t i = 0; i < considered; ++i) {
    Known* const challenger = out[i].second;
    if (in.size() + i < others_) {
      challenger->labelled = true;
      continue;
    }
    if (in.empty() || challenger->now.work() / 2 <= in.back().second->now.work()) break;
    drop_last();
    challenger->labelled = true;
  }
}

std::vector<TenantRow> TenantLabels::Follow(const TenantSums& sums) {
  Table table;
  table.reserve(sums.tenants.size());
  for (const TenantSums::Tenant& tenant : sums.tenants) {
    Known known{.added = tenant.tokens};
    if (const auto found = known_.find(tenant.name); found != known_.end()) {
      known.shown = found->second.shown;
      known.labelled = found->second.labelled;
      // Less than before: it was forgotten meanwhile, and has begun anew.
      if (tenant.tokens.covers(found->second.now)) known.added -= found->second.now;
      known_.erase(found);
    }
    known.now = tenant.tokens;
    known.configured = tenant.configured;
    table.insert_or_assign(tenant.name, known);
  }
  for (auto& [name, forgotten] : known_) End(&forgotten);
  ChooseOthers(&table);
  std::vector<TenantRow> rows;
  TenantUse other = sums.total;
  other -= ended_;
  for (auto& [name, known] : table) {
    if (!known.labelled) continue;
    known.shown += known.added;
    other -= known.shown;
    rows.push_back({.tenant = name, .tokens = known.shown});
  }
  known_ = std::move(table);
  std::ranges::sort(rows, {}, &TenantRow::tenant);
  // A request that ended between the reading of its tenant and that of the total is in `other` until the next scrape.
  other_ = LargerOf(other_, other);
  rows.push_back({.tenant = std::string(kOtherTenants), .tokens = other_});
  return rows;
}

}  // namespace vllm_router
