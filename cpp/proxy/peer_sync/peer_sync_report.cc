#include "proxy/peer_sync/peer_sync_report.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <map>
#include <string_view>
#include <utility>

#include "proxy/telemetry/metrics_page.h"

namespace vllm_router {
namespace {

constexpr size_t kMaxPeerNames = 64;

}  // namespace

void PeerSyncReport::WriteMetrics(MetricsPage* page) const {
  page->Gauge("peer_sync_up", "1 while this router and the others hear each other through Redis, else 0.");
  page->Add(up ? 1 : 0);
  page->Gauge(
      "peer_sync_alone",
      "1 while this router has not heard others for 5 s and polls the workers' loads instead, else 0.");
  page->Add(alone ? 1 : 0);
  page->Counter("peer_sync_outage_seconds_total", "Time without a connection to the other routers.");
  page->Add(static_cast<double>(outage_ms) / 1000);

  const auto each =
      [page](std::string_view label, std::initializer_list<std::pair<std::string_view, uint64_t>> rows) {
        for (const auto& [value, count] : rows) page->Add(count, {{label, value}});
      };
  std::array<uint64_t, 3> states{};
  for (const Member& member : members) ++states[static_cast<size_t>(member.state)];
  page->Gauge(
      "peer_sync_peers",
      "Other routers of the fleet: live, late (for 2 s), or gone (for 10 s, or since they stopped).");
  each("state", {{"live", states[0]}, {"late", states[1]}, {"gone", states[2]}});

  // Names may repeat; series must not.
  std::map<std::string, std::pair<double, uint64_t>> by_name;
  for (const Member& member : members) {
    if (member.state == PeerTable::State::kGone || by_name.size() >= kMaxPeerNames) continue;
    auto& [heard, gaps] = by_name[member.name];
    heard = std::max(heard, static_cast<double>(member.heard_ms) / 1000);
    gaps += member.gaps;
  }
  page->Gauge("peer_sync_heard_seconds", "Time since the last frame of the router with this name was read.");
  for (const auto& [name, seen] : by_name) page->Add(seen.first, {{"peer", name}});
  page->Gauge("peer_sync_missed_frames", "Frames of the router with this name that were never read.");
  for (const auto& [name, seen] : by_name) page->Add(seen.second, {{"peer", name}});

  page->Counter("peer_sync_frames_sent_total", "Frames that this router wrote for the others.");
  page->Add(counts.frames_sent);
  page->Counter(
      "peer_sync_frames_read_total",
      "Frames of other routers: ok, repeated, malformed, bad_seal (not sealed with this router's secret) or "
      "too_many (of more than 256 routers, or, without a secret, with a number far ahead).");
  each(
      "result", {{"ok", counts.frames_read},
                 {"repeated", counts.frames_repeated},
                 {"malformed", counts.frames_malformed},
                 {"bad_seal", counts.frames_refused},
                 {"too_many", counts.frames_not_heard}});
  page->Counter("peer_sync_bytes_total", "Bytes sent to Redis (out) and read there (in) for other routers.");
  each("direction", {{"out", bytes_sent}, {"in", bytes_read}});
  page->Counter(
      "peer_sync_decisions_total",
      "Decisions: sent; of others applied; dropped since too many waited (buffer_full) or "
      "--peer-sync-max-mbps was reached (budget); of others ignored, since policy, block size or stride "
      "differ (fingerprint) or the worker is not in this fleet (unknown_worker).");
  each(
      "result", {{"sent", counts.decisions_sent},
                 {"applied", counts.decisions_applied},
                 {"buffer_full", decisions_dropped},
                 {"budget", counts.decisions_over_budget},
                 {"fingerprint", counts.decisions_foreign},
                 {"unknown_worker", counts.decisions_unknown_worker}});
  page->Counter(
      "peer_sync_rounds_total",
      "Pipelines of commands sent to Redis for peer sync, without leases: ok or failed.");
  each("result", {{"ok", rounds - rounds_failed}, {"failed", rounds_failed}});
  page->Histogram(
      "peer_sync_round_seconds", "Time from a pipeline of commands to Redis until its last reply.");
  page->AddHistogram(RedisPool::kLatencyBounds, redis.latency, redis.latency_nanos);
  page->Gauge("peer_sync_snapshot_bytes", "Size of the last snapshot that was written or read.");
  page->Add(snapshot_bytes);
  page->Counter("peer_sync_snapshots_total", "Snapshots for routers that start: written or read.");
  each("direction", {{"written", snapshots_written}, {"read", snapshots_read}});
  page->Gauge(
      "coarse_index_strides",
      "Pairs of a stride and a worker expected to hold it, by the decisions of all routers.");
  page->Add(strides);
  page->Gauge("coarse_index_bytes", "Memory of the index of strides.");
  page->Add(stride_bytes);
  page->Counter(
      "rate_limit_leases_total",
      "Leases of the rate limit that all routers share, about ten a second: ok, empty (nothing was left) or "
      "failed (Redis rejected the script or did not reply).");
  each("result", {{"ok", lease.leases - lease.empty}, {"empty", lease.empty}, {"failed", lease.failed}});
  page->Gauge(
      "rate_limit_fallback",
      "1 while leases of the rate limit that all routers share have failed for a second, so that this router "
      "has "
      "a fixed part of it, else 0.");
  page->Add(lease.fallback ? 1 : 0);
}

}  // namespace vllm_router
