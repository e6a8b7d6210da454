#include "routing/kv_connector.h"

#include <algorithm>
#include <array>

#include "routing/nixl_connector.h"
#include "routing/shared_store_connector.h"

namespace vllm_router {

std::span<const KvConnector* const> KvConnectors() {
  static const std::array kConnectors = {
      &NixlConnector(),
      &SharedStoreConnector(),
  };
  return kConnectors;
}

const KvConnector* FindKvConnector(std::string_view name) {
  const std::span<const KvConnector* const> all = KvConnectors();
  const auto found = std::ranges::find(all, name, [](const KvConnector* one) { return one->traits().name; });
  return found == all.end() ? nullptr : *found;
}

}  // namespace vllm_router
