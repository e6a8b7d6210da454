#include "proxy/events/events_feature.h"

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "events/backend_names.h"
#include "events/dial_in_topic.h"
#include "events/kv_push.h"
#include "events/kv_source.h"
#include "events/prefix_source.h"
#include "policy/kv_index.h"
#include "proxy/admin/feature.h"
#include "proxy/api/server_options.h"
#include "proxy/control/services.h"
#include "proxy/events/kv_event_endpoints.h"
#include "proxy/events/kv_event_service.h"
#include "proxy/events/prefix_event_service.h"
#include "proxy/events/prefix_index_endpoints.h"
#include "proxy/events/redis_prefix_index.h"
#include "proxy/events/trtllm_poller.h"
#include "proxy/events/zmq_feed.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

Status CheckPrefixSources(const FixedOptions& options) {
  std::set<std::string> named;
  for (const std::string& text : options.kv_prefix_sources) {
    const StatusOr<PrefixSource> source = ParsePrefixSource("kv_prefix_source", text);
    if (!source.ok()) return source.status();
    if (!named.insert(source->name).second) {
      return absl::InvalidArgumentError(Concat(
          "kv_prefix_source: ", Quoted(source->name),
          " is the name of two sources; give each a name of its own"));
    }
  }
  return absl::OkStatus();
}

Status Check(const ServerOptions& options, const Router& /*router*/) {
  std::set<std::string> named;
  for (const std::string& text : options.kv_event_sources) {
    const StatusOr<NamedEndpoints> source = ParseNamedEndpoints("kv_event_source", text);
    if (!source.ok()) return source.status();
    if (!named.insert(source->worker).second) {
      return absl::InvalidArgumentError(Concat(
          "kv_event_source: worker ", Quoted(source->worker),
          " is named twice; list the endpoints of its ranks in one value, separated by commas"));
    }
  }
  for (const std::string& text : options.kv_event_replay_sources) {
    const StatusOr<NamedEndpoints> source = ParseNamedEndpoints("kv_event_replay_source", text);
    if (!source.ok()) return source.status();
    if (!named.contains(source->worker)) {
      return absl::InvalidArgumentError(Concat(
          "kv_event_replay_source: worker ", Quoted(source->worker),
          " has no kv_event_source; name the endpoint of its events too"));
    }
  }
  for (const std::string& endpoint : options.kv_events_bind)
    ROUTER_RETURN_IF_ERROR(CheckBindEndpoint("kv_events_bind", endpoint));
  return CheckPrefixSources(options);
}

// Check() has accepted them.
BackendNames NamesOf(const FixedOptions& options) {
  std::vector<PrefixSource> sources;
  for (const std::string& text : options.kv_prefix_sources) {
    StatusOr<PrefixSource> source = ParsePrefixSource("kv_prefix_source", text);
    if (source.ok()) sources.push_back(*std::move(source));
  }
  return BackendNames(std::move(sources));
}

Status Add(const ServerParts& server) {
  KvIndex* const index = server.router.pool().index();
  if (SharesPrefixIndex(server.options, server.router)) {
    for (const std::unique_ptr<IoThread>& thread : server.threads) {
      thread->features.Own(std::make_unique<RedisPrefixIndex>(
          *thread->redis, *index->prefixes(), NamesOf(server.options), server.options.kv_lookup_timeout_ms));
    }
  }
  if (server.options.kv_events_push && index != nullptr) {
    server.services.Keep(std::make_unique<KvPushReceiver>(&index->reported()));
  }
  std::vector<KvFeed*> feeds;
  if (index != nullptr) {
    feeds.push_back(server.services.Add<TrtllmPoller>());
    feeds.push_back(
        server.services.Keep(std::make_unique<ZmqFeed>(&index->reported(), server.options.kv_events_bind)));
  }
  server.services.Add<KvEventService>(std::move(feeds));
  server.services.Add<PrefixEventService>();
  return absl::OkStatus();
}

constexpr EndpointTable kSubjects[] = {&KvEventEndpoints, &PrefixIndexEndpoints};

}  // namespace

PrefixTable* PrefixTableOf(const Router& router) {
  const KvIndex* const index = router.pool().index();
  return index != nullptr ? index->prefixes() : nullptr;
}

bool SharesPrefixIndex(const FixedOptions& options, const Router& router) {
  return options.kv_index_backend == KvIndexBackend::kRedis && PrefixTableOf(router) != nullptr;
}

extern constexpr Feature kEventsFeature = {
    .name = "events", .check = &Check, .add = &Add, .endpoints = kSubjects};

}  // namespace vllm_router
