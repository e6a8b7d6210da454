#include "proxy/metrics.h"

namespace vllm_router {

class Metrics::Collector {};

Metrics::Metrics(std::shared_ptr<Router> /*router*/, std::vector<const Recorder*> /*recorders*/) {}

Metrics::~Metrics() = default;

std::string Metrics::Text() const { return {}; }

}  // namespace vllm_router
