// Families of what the threads count at requests: exchanges, retries, durations, connections, and the calls that requests
// make on the way. Any thread.
#pragma once

namespace vllm_router {

class MetricsPage;
class Router;
class TelemetrySums;

void WriteExchanges(const TelemetrySums& threads, MetricsPage* page);
void WriteRetries(const TelemetrySums& threads, MetricsPage* page);
void WriteTimes(const TelemetrySums& threads, MetricsPage* page);
// Requests for token ids; nothing if no policy wants any.
void WriteTokenizing(const TelemetrySums& threads, const Router& router, MetricsPage* page);
void WriteRemovedMembers(const TelemetrySums& threads, MetricsPage* page);
void WriteCacheControl(const TelemetrySums& threads, MetricsPage* page);
// Connections of clients and to workers.
void WriteConnections(const TelemetrySums& threads, MetricsPage* page);

}  // namespace vllm_router
