#include "proxy/disaggregation/bootstrap_poller.h"

#include <map>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/text.h"
#include "disaggregation/mooncake_engines.h"
#include "disaggregation/pair_id.h"
#include "proxy/api/settings.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

constexpr int kWarnedFailures = 3;

}  // namespace

std::optional<WorkerUrl> BootstrapPoller::AddressOf(const Worker& worker) const {
  if (worker.stage != Stage::kPrefill) return std::nullopt;
  const uint16_t port = worker.bootstrap_port.value_or(thread_.settings.Get()->pd.bootstrap_port);
  StatusOr<WorkerUrl> url = ParseWorkerUrl(Concat("http://", HostAndPort(worker.url.host, port)));
  if (!url.ok()) return std::nullopt;
  return *std::move(url);
}

bool BootstrapPoller::Learn(
    const WorkerUrl& address, const Workers& workers, const StatusOr<HttpResponse>& response, bool doubted,
    int failures) {
  std::optional<std::map<uint32_t, std::string>> engines;
  if (response.ok() && response->status == 200) engines = ReadMooncakeEngines(response->body);
  const bool unreachable = !response.ok() && !absl::IsResourceExhausted(response.status()) &&
                           !absl::IsFailedPrecondition(response.status());
  bool whole = engines.has_value();
  for (const std::shared_ptr<Worker>& worker : workers) {
    if (engines) {
      const auto found = engines->find(worker->url.rank.value_or(0));
      const BootstrapResult result = LearnOne(*worker, found != engines->end() ? &found->second : nullptr);
      whole = whole && result == BootstrapResult::kOk;
      thread_.telemetry.stages().BootstrapQueried(worker, result);
      continue;
    }
    thread_.telemetry.stages().BootstrapQueried(
        worker, unreachable ? BootstrapResult::kUnreachable : BootstrapResult::kInvalid);
    if (doubted) LearnOne(*worker, nullptr);
  }
  if (!whole && failures + 1 == kWarnedFailures) {
    const std::string what = !response.ok()            ? std::string(response.status().message())
                             : response->status != 200 ? Concat("it returned status ", response->status)
                             : !engines
                                 ? std::string("its response is no JSON object of ranks")
                                 : std::string("it names no engine id for some ranks of these workers");
    Log(LogLevel::kWarning,
        Concat(
            "bootstrap server ", address.base, " has not told the engine ids of its ", workers.size(),
            workers.size() == 1 ? " prefill worker" : " prefill workers", ": GET /query: ", what,
            "; a worker without one is not chosen (bootstrap port: --prefill URL PORT, or "
            "--bootstrap-port)"));
  }
  return whole;
}

// Null: it is not known any more.
BootstrapResult BootstrapPoller::LearnOne(Worker& worker, const std::string* id) {
  const std::shared_ptr<const std::string> last = worker.engine_id.Load();
  const bool same = id == nullptr ? last == nullptr : last != nullptr && *last == *id;
  if (!same) {
    if (id != nullptr && last != nullptr) {
      Log(LogLevel::kInfo,
          Concat("worker ", worker.url.url, " has another engine id: its engine has started anew"));
    }
    worker.engine_id.Publish(id != nullptr ? std::make_shared<const std::string>(*id) : nullptr);
    PublishSoon();
  }
  return id != nullptr ? BootstrapResult::kOk : BootstrapResult::kNoId;
}

void BootstrapPoller::IsDown(Worker& worker) { LearnOne(worker, nullptr); }

}  // namespace vllm_router
