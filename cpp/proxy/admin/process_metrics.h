// Families of the server as a whole: admission, quarantine, stored responses, files, logs and the process. Any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace vllm_router {

class MetricsPage;
class Reloadable;
class Router;
class TelemetrySums;
class TlsFiles;
class TrafficLog;
struct ServerLimits;

// The server's files. Null: none.
struct ServerFiles {
  const TrafficLog* records = nullptr;
  const TlsFiles* tls = nullptr;
  std::vector<Reloadable*> reloadables;  // these and the key files
};

void WriteAdmission(const TelemetrySums& threads, const ServerLimits& limits, MetricsPage* page);
void WriteQuarantine(const ServerLimits& limits, int64_t now_ns, MetricsPage* page);
// Sessions, and responses that workers store.
void WriteResponses(const Router& router, const ServerLimits& limits, MetricsPage* page);
void WriteFiles(const ServerFiles& files, MetricsPage* page);
// `started`: the server's start, Unix time.
void WriteProcess(const TelemetrySums& threads, const ServerFiles& files, double started, MetricsPage* page);

}  // namespace vllm_router
