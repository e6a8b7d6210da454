// ClientRules: what an operator's options say of clients: which header names tenants, whose headers count, and the classes of
// models' aliases. Immutable; any thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "admission/priority_class.h"
#include "base/status.h"
#include "net/ip_range.h"

namespace vllm_router {

struct FixedOptions;

class ClientRules {
 public:
  // InvalidArgument names the option, what is wrong with it and the remedy.
  static StatusOr<ClientRules> Make(const FixedOptions& options);

  // False: nothing of it is set, so only attributes of keys tell clients apart.
  bool any() const { return !tenant_header_.empty() || !trusted_.empty() || !alias_classes_.empty(); }

  const std::string& tenant_header() const { return tenant_header_; }
  bool TrustsAddress(std::string_view address) const;
  std::optional<PriorityClass> ClassOfAlias(std::string_view alias) const;

 private:
  std::string tenant_header_;
  std::vector<IpRange> trusted_;
  std::map<std::string, PriorityClass, std::less<>> alias_classes_;
};

}  // namespace vllm_router
