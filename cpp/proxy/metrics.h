// Metrics: everything the Recorders count, as Prometheus text. Lanes count in their own shards without locks; a scrape
// sums the shards, adds what the fleet says about its workers, and lets prometheus-cpp write the text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "proxy/recorder.h"
#include "routing/router.h"

namespace vllm_router {

class Metrics {
 public:
  // The recorders must outlive this.
  Metrics(std::shared_ptr<Router> router, std::vector<const Recorder*> recorders);
  ~Metrics();

  // Prometheus text format 0.0.4. Any thread.
  std::string Text() const;

 private:
  class Collector;
  std::shared_ptr<Collector> collector_;
};

}  // namespace vllm_router
