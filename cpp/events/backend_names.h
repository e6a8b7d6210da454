// BackendNames: the worker that another router means by the name of a source of events about prefixes
// (prefix_source.h).
//
//   names.Find("vllm-1", fleet)             this router has a source of that name: its worker
//   names.Find("gpu-0:8000", fleet)         else the one worker at that host and port, or with that URL
//   names.Find("gpu-0", fleet)              else the one worker at that host
//
// A name that fits several workers means none. Cost: a look-up; after a change of the fleet's members once
// more one pass over them. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "events/prefix_source.h"
#include "worker/fleet_view.h"

namespace vllm_router {

class BackendNames {
 public:
  explicit BackendNames(std::vector<PrefixSource> sources) : sources_(std::move(sources)) {}

  std::optional<WorkerId> Find(std::string_view backend, const FleetView& fleet);

 private:
  void Read(const FleetView& fleet);
  void Add(std::string_view name, WorkerId worker);

  const std::vector<PrefixSource> sources_;
  std::optional<uint64_t> membership_;                                   // of the fleet that was read last
  std::map<std::string, std::optional<WorkerId>, std::less<>> workers_;  // nullopt: several
};

}  // namespace vllm_router
