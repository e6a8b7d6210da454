#include "net/resolver.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstring>
#include <utility>

#include "base/limits.h"
#include "base/time_units.h"

namespace vllm_router {
namespace asio = boost::asio;
namespace {
constexpr int64_t kFreshNanos = 30 * kNanosPerSecond;
constexpr int64_t kAskAgainNanos = 5 * kNanosPerSecond;  // after a failed lookup
// A worker that is down does not cause a lookup per request.
constexpr int64_t kNotDoubtedNanos = kNanosPerSecond;

using Results = asio::ip::tcp::resolver::results_type;

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

Resolver::Lookup AskSystem(EventLoop& loop) {
  auto resolver = std::make_shared<asio::ip::tcp::resolver>(loop.context());
  return [resolver](const std::string& host, std::function<void(Resolver::Answer)> tell) {
    resolver->async_resolve(
        host, "", [host, tell = std::move(tell)](const boost::system::error_code& why, const Results& found) {
          std::vector<Address> addresses;
          for (const auto& entry : found) addresses.push_back(ToAddress(entry.endpoint().address()));
          if (addresses.empty()) {
            tell(absl::UnavailableError("the name '" + host + "' has no address: " + why.message()));
          } else {
            tell(std::move(addresses));
          }
        });
  };
}

}  // namespace

Resolver::Resolver(EventLoop& loop) : clock_(all_admitting_), lookup_(AskSystem(loop)) {}

Resolver::Resolver(EventLoop&, const Clock& clock, Lookup lookup)
    : clock_(clock), lookup_(std::move(lookup)) {}

std::optional<std::vector<Address>> Resolver::Known(const std::string& host) const {
  if (const std::optional<Address> literal = ParseAddress(host)) return std::vector<Address>{*literal};
  const auto found = entries_.find(host);
  if (found == entries_.end() || clock_.NowNanos() >= found->second.fresh_until_ns) return std::nullopt;
  return found->second.addresses;
}

Task<Resolver::Answer> Resolver::Resolve(std::string host, std::shared_ptr<Waiter> waiter) {
  if (const std::optional<std::vector<Address>> known = Known(host)) co_return *known;
  Ask(host);
  Entry& entry = entries_[host];
  if (!entry.addresses.empty()) co_return entry.addresses;
  entry.waiters.push_back(waiter);
  co_await waiter->told_;
  co_return std::move(waiter->answer_);
}

void Resolver::ReportFailure(const std::string& host) {
  const auto found = entries_.find(host);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  const int64_t now = clock_.NowNanos();
  if (now - entry.learned_ns >= kNotDoubtedNanos) entry.fresh_until_ns = std::min(entry.fresh_until_ns, now);
}

void Resolver::Ask(const std::string& host) {
  Forget();
  if (std::exchange(entries_[host].asking, true)) return;
  lookup_(host, [this, host](Answer result) { Learn(host, std::move(result)); });
}

void Resolver::Learn(const std::string& host, Answer result) {
  Entry& entry = entries_[host];
  entry.asking = false;
  entry.learned_ns = clock_.NowNanos();
  entry.fresh_until_ns = entry.learned_ns + (result.ok() ? kFreshNanos : kAskAgainNanos);
  if (result.ok()) entry.addresses = *result;
  const std::vector<std::shared_ptr<Waiter>> waiters = std::exchange(entry.waiters, {});
  if (entry.addresses.empty()) entries_.erase(host);
  for (const std::shared_ptr<Waiter>& waiter : waiters) Tell(waiter, result);
}

// Removes names of removed workers when there are more names than there may be workers.
void Resolver::Forget() {
  if (entries_.size() < kMaxWorkers) return;
  const int64_t now = clock_.NowNanos();
  std::erase_if(entries_, [now](const auto& named) {
    return !named.second.asking && now >= named.second.fresh_until_ns;
  });
}

void Resolver::Tell(const std::shared_ptr<Waiter>& waiter, Answer result) {
  waiter->loop_.Post([waiter, result = std::move(result)]() mutable {
    if (std::exchange(waiter->over_, true)) return;
    waiter->answer_ = std::move(result);
    waiter->told_.Notify();
  });
}

void Resolver::Waiter::Cancel(const std::shared_ptr<Waiter>& waiter) {
  Answer cancelled = waiter->answer_;
  Tell(waiter, std::move(cancelled));
}

}  // namespace vllm_router
