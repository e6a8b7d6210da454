#include "net/resolver.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstring>
#include <limits>

#include "base/clock.h"

namespace vllm_router {
namespace asio = boost::asio;
namespace {

constexpr int64_t kFreshNanos = 30'000'000'000;

using Results = asio::ip::tcp::resolver::results_type;

struct ResolveAwaiter {
  asio::ip::tcp::resolver& resolver;
  const std::string& host;
  boost::system::error_code error;
  Results results;

  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiter) {
    resolver.async_resolve(host, "", [this, waiter](const boost::system::error_code& why, Results found) {
      error = why;
      results = std::move(found);
      waiter.resume();
    });
  }
  void await_resume() const noexcept {}
};

Address ToAddress(const asio::ip::address& from) {
  Address address;
  if (from.is_v6()) {
    address.v6 = true;
    const auto bytes = from.to_v6().to_bytes();
    std::memcpy(address.bytes, bytes.data(), bytes.size());
  } else {
    const auto bytes = from.to_v4().to_bytes();
    std::memcpy(address.bytes, bytes.data(), bytes.size());
  }
  return address;
}

}  // namespace

Resolver::Resolver(EventLoop& loop) : loop_(loop) {}

const std::vector<Address>* Resolver::Known(const std::string& host) {
  const auto found = entries_.find(host);
  if (found != entries_.end()) {
    return SteadyClock().NowNanos() < found->second.fresh_until_ns ? &found->second.addresses : nullptr;
  }
  if (const std::optional<Address> literal = ParseAddress(host)) {
    Entry& entry = entries_[host];
    entry.addresses = {*literal};
    entry.fresh_until_ns = std::numeric_limits<int64_t>::max();
    return &entry.addresses;
  }
  return nullptr;
}

Task<StatusOr<std::vector<Address>>> Resolver::Resolve(std::string host) {
  if (const std::vector<Address>* known = Known(host)) co_return *known;
  asio::ip::tcp::resolver resolver(loop_.context());
  ResolveAwaiter lookup{resolver, host, {}, {}};
  co_await lookup;
  std::vector<Address> addresses;
  for (const auto& entry : lookup.results) addresses.push_back(ToAddress(entry.endpoint().address()));
  if (addresses.empty()) {
    const auto stale = entries_.find(host);
    if (stale != entries_.end()) co_return stale->second.addresses;
    co_return absl::UnavailableError("the name '" + host + "' has no address: " + lookup.error.message());
  }
  Entry& entry = entries_[host];
  entry.addresses = addresses;
  entry.fresh_until_ns = SteadyClock().NowNanos() + kFreshNanos;
  co_return addresses;
}

}  // namespace vllm_router
