// EndpointSubset: the endpoints among which the data plane wants one to be picked, as metadata of a request lists them.
//
//   10.0.0.1:8000    one port           10.0.0.1    all ports of the address           [fd00::1]:8000, [fd00::1], fd00::1
//
//   envoy.lb.subset_hint / x-gateway-destination-endpoint-subset: a list of texts, or one text; commas separate endpoints in either
//
// An element that is no endpoint names none. A subset that names none is a subset all the same: nothing is in it.
// Cost: a sort when it is read, two binary searches for each endpoint. The rules: Gateway API Inference Extension, proposal 004
// (endpoint picker protocol), 1.0.0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "picker/ext_proc.h"

namespace vllm_router {

// An address as it is written, without brackets, and its port if it has one.
struct EndpointName {
  std::string_view host;
  std::optional<uint16_t> port;
};
// Within `text`; blanks around it are ignored. Nullopt: no host, or no port where there is a colon for it.
std::optional<EndpointName> ParseEndpointName(std::string_view text);

// "host:port", with brackets around an IPv6 address.
std::string EndpointText(std::string_view host, uint16_t port);

class EndpointSubset {
 public:
  // Nullopt: `hint` is neither a text nor a list, so there is no subset. InvalidArgument: the list is malformed; ResourceExhausted:
  // it names more than kMaxExtProcListed endpoints.
  static StatusOr<std::optional<EndpointSubset>> Read(const std::optional<StructValue>& hint);

  // `host` in lower case, without brackets.
  bool Contains(std::string_view host, uint16_t port) const;
  size_t size() const { return entries_.size(); }

 private:
  static constexpr int32_t kAllPorts = -1;
  struct Entry {
    std::string host;  // in lower case
    int32_t port;
  };

  void Add(std::string_view text);
  bool Has(std::string_view host, int32_t port) const;

  std::vector<Entry> entries_;  // in order
};

}  // namespace vllm_router
