#include "proxy/thread/quarantine.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"
#include "hashing/hash.h"
#include "hashing/sha256.h"
#include "proxy/api/settings.h"
#include "proxy/security/authorizer.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"

namespace vllm_router {
namespace {

// The address from which the nearest proxy says it was connected; empty if none says so.
std::string_view LastForwardedFor(const RequestHead& head) {
  std::string_view last;
  for (const HeaderField& field : head.fields) {
    if (!EqualsIgnoreCase(field.name, "x-forwarded-for")) continue;
    const size_t comma = field.value.rfind(',');
    last = TrimBlanks(comma == std::string_view::npos ? field.value : field.value.substr(comma + 1));
  }
  return last;
}

struct Client {
  std::string_view kind;
  std::string_view name;
};

Client ClientOf(
    const IoThread& thread, const Settings& settings, const RequestHead& head,
    std::string_view peer_address) {
  const std::optional<std::string_view> key =
      thread.authorizer.takes_client_keys() ? KeyOf(head) : std::nullopt;
  if (key.has_value() && !key->empty()) return {.kind = "key", .name = *key};
  const std::string_view forwarded = settings.trust_forwarded ? LastForwardedFor(head) : std::string_view();
  return {.kind = "address", .name = forwarded.empty() ? peer_address : forwarded};
}

}  // namespace

uint64_t HostNumber(const WorkerUrl& url) { return Xxh3(url.base); }

uint64_t ClientNumber(
    const IoThread& thread, const Settings& settings, const RequestHead& head,
    std::string_view peer_address) {
  const auto [kind, name] = ClientOf(thread, settings, head, peer_address);
  return std::max<uint64_t>(1, DigestWord(Sha256({kind, std::string_view("\0", 1), name}), 0));
}

uint32_t ClientTag(
    const IoThread& thread, const Settings& settings, const RequestHead& head,
    std::string_view peer_address) {
  const auto [kind, name] = ClientOf(thread, settings, head, peer_address);
  return std::max<uint32_t>(1, static_cast<uint32_t>(Xxh3(name) ^ kind.size()));
}

void ReportWorkerDown(IoThread& thread, const WorkerUrl& url) {
  RequestQuarantine& quarantine = thread.limits.quarantine;
  if (!quarantine.has_pending()) return;
  for (const RequestQuarantine::Quarantined& one :
       quarantine.ReportDown(HostNumber(url), thread.clock.NowNanos())) {
    Log(LogLevel::kWarning,
        Concat(
            "request ", one.request_id, " is quarantined for 60 s: two workers died while serving it",
            one.restricted_ns != 0 ? Concat(
                                         "; its client is restricted for ",
                                         std::to_string(one.restricted_ns / kNanosPerSecond), " s")
                                   : ""));
  }
}

void ReportWorkerUp(IoThread& thread, const WorkerUrl& url, int64_t since_ns) {
  RequestQuarantine& quarantine = thread.limits.quarantine;
  if (quarantine.has_pending()) quarantine.ReportUp(HostNumber(url), since_ns, thread.clock.NowNanos());
}

RequestDigest DigestOf(
    const IoThread& thread, const Settings& settings, const RequestHead& head, std::string_view body,
    std::string_view peer_address) {
  if (!body.empty()) return DigestOfRequest(head.path, body);
  const uint64_t client = ClientNumber(thread, settings, head, peer_address);
  return DigestOfRequest(head.target, {reinterpret_cast<const char*>(&client), sizeof(client)});
}

void ReportServed(
    IoThread& thread, const WorkerUrl& url, const RequestDigest& digest, std::string_view request_id) {
  const RequestQuarantine::Lifted lifted =
      thread.limits.quarantine.ReportSuccess(digest, HostNumber(url), thread.clock.NowNanos());
  if (lifted == RequestQuarantine::Lifted::kNothing) return;
  Log(LogLevel::kInfo,
      Concat(
          "requests equal to ", request_id, " are no longer quarantined: a worker served one",
          lifted == RequestQuarantine::Lifted::kRestriction ? "; their client is no longer restricted" : ""));
}

}  // namespace vllm_router
