// Cached responses in Redis for tests: the store of one thread and the service of the control thread, each with a link
// of its own, on one loop.
#include <pybind11/stl.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/errors.h"
#include "proxy/response_cache/redis_response_store.h"
#include "proxy/response_cache/response_cache_service.h"
#include "redis/redis_link.h"
#include "redis/redis_url.h"
#include "response_cache/generations.h"

namespace vllm_router {
namespace {

namespace py = pybind11;

CacheKey KeyOfNumber(uint64_t number) {
  CacheKey key{};
  for (size_t i = 0; i < 8; ++i) key[31 - i] = static_cast<uint8_t>(number >> (8 * i));
  return key;
}

// What becomes of a call on the harness's loop.
template <typename T>
class LoopCall {
 public:
  std::shared_ptr<std::promise<T>> promise = std::make_shared<std::promise<T>>();
  std::shared_ptr<CancelScope> scope = std::make_shared<CancelScope>(std::span<const std::string_view>());

  T Get() {
    const py::gil_scoped_release release;
    std::future<T> future = promise->get_future();
    if (future.wait_for(std::chrono::seconds(30)) != std::future_status::ready)
      throw std::runtime_error("the call did not end in time");
    return future.get();
  }
};

using FindCall = LoopCall<std::pair<std::string, std::string>>;
using ClearCall = LoopCall<std::pair<int64_t, std::string>>;

class ResponsesHarness {
 public:
  ResponsesHarness(
      const std::string& url, const std::string& key_prefix, size_t connections, int64_t lookup_budget_ms,
      int64_t connect_timeout_ms, int64_t command_timeout_ms, size_t max_reply_bytes,
      int64_t longest_probe_delay_ms, size_t max_waiting_bytes, const std::string& ca_file)
      : pool_(
            RedisOptions{
                .url = ValueOrThrow(ParseRedisUrl("url", url)),
                .connect_timeout_ms = connect_timeout_ms,
                .command_timeout_ms = command_timeout_ms,
                .failures = 1,
                .max_reply_bytes = max_reply_bytes,
                .probe_key = RedisResponses::ProbeKey(key_prefix),
                .longest_probe_delay_ms = longest_probe_delay_ms},
            url.starts_with("rediss")
                ? ValueOrThrow(TlsContext::Make(TlsContext::ForWorkers{.ca_path = ca_file}))
                : nullptr,
            clock_),
        resolver_(loop_),
        control_(pool_, loop_, buffers_, resolver_, 1, RedisLink::Role::kProbes),
        link_(pool_, loop_, buffers_, resolver_, connections, RedisLink::Role::kUses),
        responses_(pool_, key_prefix),
        store_(
            std::in_place, link_, responses_,
            RedisResponseStore::Limits{
                .lookup_budget_ms = lookup_budget_ms, .max_waiting_bytes = max_waiting_bytes}),
        service_(control_, generations_, responses_, [this] { ++recovered_; }),
        thread_([this] { loop_.Run(); }) {
    loop_.Post([this] {
      control_.Start();
      link_.Start();
      service_.Start();
    });
  }
  ~ResponsesHarness() { Stop(); }

  // False: connections or work did not end.
  bool Stop() {
    if (!thread_.joinable()) return ended_;
    const py::gil_scoped_release release;
    loop_.Post([this] {
      service_.Stop();
      control_.Stop();
      link_.Stop();
    });
    for (int turns = 0; turns < 3'000 && !Ended(); ++turns)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ended_ = Ended();
    OnLoop([this] { store_.reset(); });  // whose timer is of the loop
    loop_.Stop();
    thread_.join();
    return ended_;
  }

  std::shared_ptr<FindCall> Find(uint64_t number) {
    auto call = std::make_shared<FindCall>();
    loop_.Post([this, call, number] { Spawn(RunFind(call, KeyOfNumber(number))); });
    return call;
  }
  void Set(uint64_t number, std::string blob, int64_t ttl_ms) {
    const py::gil_scoped_release release;
    OnLoop([&] {
      store_->Set(KeyOfNumber(number), std::make_shared<const std::string>(std::move(blob)), ttl_ms);
    });
  }
  void Delete(uint64_t number) {
    const py::gil_scoped_release release;
    OnLoop([&] { store_->Delete(KeyOfNumber(number)); });
  }
  template <typename Call>
  void Cancel(const std::shared_ptr<Call>& call) {
    loop_.Post([call] { call->scope->Cancel(); });
  }
  std::shared_ptr<ClearCall> Clear() {
    auto call = std::make_shared<ClearCall>();
    loop_.Post([this, call] { Spawn(RunClear(call)); });
    return call;
  }
  uint64_t Bump(const std::string& model) {
    const uint64_t generation = generations_.Bump(model);
    service_.Tell();
    return generation;
  }

  py::dict Stats() {
    const RedisResponses::Stats stats = responses_.stats();
    const RedisPool::Stats pool = pool_.stats();
    size_t waiting = 0;
    {
      const py::gil_scoped_release release;
      if (thread_.joinable()) OnLoop([&] { waiting = store_->waiting_bytes(); });
    }
    py::dict latency;
    for (size_t i = 0; i < RedisResponses::kOperations; ++i) {
      uint64_t count = 0;
      for (const uint64_t bucket : stats.latency[i].counts) count += bucket;
      latency[py::str(std::string(RedisResponses::kNames[i]))] = count;
    }
    py::dict errors;
    for (size_t i = 0; i < pool.errors.size(); ++i)
      errors[py::str(std::string(NameOf(static_cast<RedisErrorType>(i))))] = pool.errors[i];
    using namespace py::literals;
    return py::dict(
        "latency"_a = latency, "errors"_a = errors, "late"_a = stats.late, "too_large"_a = stats.too_large,
        "dropped"_a = stats.dropped, "waiting_bytes"_a = waiting, "usable"_a = responses_.usable(),
        "fallback"_a = pool.fallback, "idle"_a = pool.idle, "recovered"_a = recovered_.load(),
        "outages"_a = pool_.outages());
  }
  uint64_t Of(const std::string& model) const { return generations_.Of(model); }
  std::optional<int64_t> Entries() { return service_.entries(); }
  static std::string HexKey(uint64_t number) { return DigestHex(KeyOfNumber(number)); }

 private:
  template <typename Function>
  void OnLoop(Function function) {
    std::promise<void> done;
    loop_.Post([&] {
      function();
      done.set_value();
    });
    done.get_future().get();
  }
  bool Ended() {
    bool ended = false;
    OnLoop(
        [&] { ended = control_.running() == 0 && link_.running() == 0 && service_.ended() && calls_ == 0; });
    return ended;
  }
  Task<void> RunFind(std::shared_ptr<FindCall> call, CacheKey key) {
    ++calls_;
    const RedisResponseStore::Found found = co_await store_->Find(call->scope.get(), key);
    constexpr std::array<const char*, 4> kOutcomes = {"hit", "miss", "late", "down"};
    call->promise->set_value(
        {kOutcomes[static_cast<size_t>(found.outcome)], found.blob != nullptr ? *found.blob : std::string()});
    --calls_;
  }
  Task<void> RunClear(std::shared_ptr<ClearCall> call) {
    ++calls_;
    const StatusOr<int64_t> cleared = co_await service_.Clear(call->scope.get());
    call->promise->set_value(
        {cleared.ok() ? *cleared : -1,
         cleared.ok() ? std::string() : std::string(cleared.status().message())});
    --calls_;
  }

  const SteadyClock clock_;
  RedisPool pool_;
  EventLoop loop_;
  BufferPool buffers_;
  Resolver resolver_;
  Generations generations_;
  RedisLink control_;
  RedisLink link_;
  RedisResponses responses_;
  std::optional<RedisResponseStore> store_;
  std::atomic<int> recovered_{0};
  ResponseCacheService service_;
  int calls_ = 0;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace

void BindTestingRedisResponses(py::module_& testing) {
  py::class_<FindCall, std::shared_ptr<FindCall>>(testing, "RedisFindCall").def("get", [](FindCall& call) {
    const auto [outcome, blob] = call.Get();
    return py::make_tuple(outcome, py::bytes(blob));
  });
  py::class_<ClearCall, std::shared_ptr<ClearCall>>(testing, "RedisClearCall").def("get", &ClearCall::Get);
  py::class_<ResponsesHarness>(testing, "RedisResponses")
      .def(
          py::init<
              const std::string&, const std::string&, size_t, int64_t, int64_t, int64_t, size_t, int64_t,
              size_t, const std::string&>(),
          py::arg("url"), py::kw_only(), py::arg("key_prefix") = "cr:resp:", py::arg("connections") = 1,
          py::arg("lookup_budget_ms") = 30'000, py::arg("connect_timeout_ms") = 3'000,
          py::arg("command_timeout_ms") = 30'000, py::arg("max_reply_bytes") = 10 << 20,
          py::arg("longest_probe_delay_ms") = 1'000, py::arg("max_waiting_bytes") = 16 << 20,
          py::arg("ca_file") = "")
      .def("find", &ResponsesHarness::Find)
      .def("set", &ResponsesHarness::Set, py::arg("number"), py::arg("blob"), py::arg("ttl_ms") = 60'000)
      .def("delete", &ResponsesHarness::Delete)
      .def("cancel", &ResponsesHarness::Cancel<FindCall>)
      .def("cancel", &ResponsesHarness::Cancel<ClearCall>)
      .def("clear", &ResponsesHarness::Clear)
      .def("bump", &ResponsesHarness::Bump)
      .def("of", &ResponsesHarness::Of)
      .def("entries", &ResponsesHarness::Entries)
      .def("stats", &ResponsesHarness::Stats)
      .def("stop", &ResponsesHarness::Stop)
      .def_static("hex_key", &ResponsesHarness::HexKey);
}

}  // namespace vllm_router
