#include "admission/fleet_limits.h"

#include <algorithm>
#include <utility>

#include "admission/tenant_name.h"
#include "base/proto_wire.h"
#include "base/time_units.h"

namespace vllm_router {
namespace {

constexpr uint32_t kTenant = 1;
enum Field : uint32_t { kName = 1, kRequests = 2, kTokens = 3, kOpen = 4 };

struct Used {
  std::string_view tenant;
  TenantMeter::Untold used;
  uint64_t open = 0;
};

std::optional<Used> ReadTenant(std::string_view bytes) {
  Used read;
  ProtoReader in(bytes);
  while (const std::optional<ProtoReader::Field> field = in.Next()) {
    switch (field->number) {
      case kName:
        read.tenant = field->bytes;
        break;
      case kRequests:
        read.used.requests = std::min(field->value, kMaxTenantRequests);
        break;
      case kTokens:
        read.used.tokens = std::min(field->value, kMaxTenantTokens);
        break;
      case kOpen:
        read.open = std::min(field->value, kMaxTenantConcurrency);
        break;
      default:
        break;  // of a later version
    }
  }
  return in.ok() ? std::optional(read) : std::nullopt;
}

// Nullopt: it is no report.
std::optional<std::vector<Used>> ReadReport(std::string_view bytes) {
  std::vector<Used> tenants;
  ProtoReader in(bytes);
  while (const std::optional<ProtoReader::Field> field = in.Next()) {
    if (field->number != kTenant || tenants.size() >= FleetLimits::kMostTold) continue;
    const std::optional<Used> tenant = ReadTenant(field->bytes);
    if (!tenant) return std::nullopt;
    tenants.push_back(*tenant);
  }
  return in.ok() ? std::optional(std::move(tenants)) : std::nullopt;
}

int64_t OpenNanos(uint32_t interval_ms) {
  return std::clamp(
      3 * int64_t{interval_ms} * kNanosPerMs, FleetLimits::kOpenNanos, FleetLimits::kMostOpenNanos);
}

}  // namespace

std::string FleetLimits::Tell(bool full, int64_t now_ns) {
  size_t untold = 0;
  const std::vector<TenantTable::Told> told = table_.TakeUntold(kMostTold, full, now_ns, &untold);
  Count(kTold, told.size());
  Count(kUntold, untold);
  std::string bytes;
  {
    ProtoWriter out(&bytes);
    for (const TenantTable::Told& one : told) {
      const size_t tenant = out.Begin(kTenant);
      out.Text(kName, one.tenant);
      if (one.used.requests != 0) out.Varint(kRequests, one.used.requests);
      if (one.used.tokens != 0) out.Varint(kTokens, one.used.tokens);
      if (one.open != 0) out.Varint(kOpen, one.open);
      out.End(tenant);
    }
  }
  return bytes;
}

void FleetLimits::Hear(const AdmissionSettings& settings, const Report& report, int64_t now_ns) {
  const std::optional<std::vector<Used>> tenants = ReadReport(report.bytes);
  if (!tenants) return Count(kMalformed);
  const int64_t at_ns = std::min(report.told_ns, now_ns);
  for (const Used& one : *tenants) {
    const TenantLimits& limits = settings.OfTenant(one.tenant).limits;
    if (!limits.any() || !IsTenant(one.tenant)) {
      Count(kIgnored);
      continue;
    }
    std::optional<TenantTable::Hold> meter = table_.FindTold(one.tenant, now_ns, settings.Names(one.tenant));
    if (!meter) {
      Count(kNoRoom);
      continue;
    }
    Count(kHeard);
    (*meter)->ChargePeers(limits, one.used, at_ns, now_ns);
    SetOpen(
        one.tenant, *std::move(meter),
        {.router = report.router, .requests = one.open, .until_ns = at_ns + OpenNanos(report.interval_ms)});
  }
}

// ---- open requests

void FleetLimits::Sum(const Peers& peers) {
  uint64_t sum = 0;
  for (const Open& open : peers.routers) sum += open.requests;
  // Its holder knows that the meter is this tenant's.
  peers.meter->SetPeersOpen(std::min(sum, kMaxTenantConcurrency));
}

bool FleetLimits::HasRoom(uint64_t router) const {
  const auto rows = rows_of_.find(router);
  return rows_ < kMostOpen && (rows == rows_of_.end() || rows->second < kMostOpenOfRouter);
}

void FleetLimits::SetOpen(std::string_view tenant, TenantTable::Hold meter, const Open& open) {
  auto found = open_.find(absl::string_view(tenant.data(), tenant.size()));
  if (found == open_.end()) {
    if (open.requests == 0) return;
    found = open_.emplace(std::string(tenant), Peers{.meter = std::move(meter), .routers = {}}).first;
  }
  Peers& peers = found->second;
  const auto row = std::ranges::find(peers.routers, open.router, &Open::router);
  if (open.requests == 0) {
    if (row != peers.routers.end()) Erase(&peers, static_cast<size_t>(row - peers.routers.begin()));
  } else if (row != peers.routers.end()) {
    *row = open;
  } else if (HasRoom(open.router)) {
    ++rows_of_[open.router];
    ++rows_;
    peers.routers.push_back(open);
  }
  Sum(peers);
  if (peers.routers.empty()) open_.erase(found);
}

void FleetLimits::Erase(Peers* peers, size_t row) {
  const auto rows = rows_of_.find(peers->routers[row].router);
  if (--rows->second == 0) rows_of_.erase(rows);
  --rows_;
  peers->routers[row] = peers->routers.back();
  peers->routers.pop_back();
}

void FleetLimits::Sweep(int64_t now_ns) {
  for (auto next = open_.begin(); next != open_.end();) {
    const auto tenant = next++;
    Peers& peers = tenant->second;
    for (size_t row = peers.routers.size(); row > 0; --row) {
      if (peers.routers[row - 1].until_ns < now_ns) Erase(&peers, row - 1);
    }
    Sum(peers);
    if (peers.routers.empty()) open_.erase(tenant);
  }
}

void FleetLimits::Turn(bool connected, uint32_t routers, int64_t now_ns) {
  table_.SetParts(connected ? 1 : std::max(1u, routers));
  if (!connected) {
    table_.DropUntold();
    // Requests that are open at others count in those routers' parts.
    for (const auto& [tenant, peers] : open_) peers.meter->SetPeersOpen(0);
    open_.clear();
    rows_of_.clear();
    rows_ = 0;
  }
  if (now_ns - swept_ns_ < kSweepNanos) return;
  swept_ns_ = now_ns;
  Sweep(now_ns);
}

}  // namespace vllm_router
