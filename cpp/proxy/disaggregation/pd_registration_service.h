// PdRegistrationService hears prefill and decode workers that register themselves (--vllm-discovery-address) and
// declares them to the fleet, as the source `registration`. From then on they are workers like all others: checked
// before they join, with load, breaker and metrics, drained when they leave.
//
//   workers ──ZMQ──▶ [DecodePdMessage ─▶ allowed? ─▶ PdRegistrations ─▶ list] ──Reconcile──▶ fleet ─▶ FleetManager
//                     `────────────── a thread of its own ──────────────'
//
//   registers                       declared, one worker for each data-parallel rank
//   silent for 5 s                  not ready: its requests go on, it gets no new ones
//   silent for discovery_forget     not declared any more
//   tells something else            another role: another worker in place of the old one, which drains
//
// Any process that reaches the address can register anything. A message has at most kMaxPdMessage bytes; a turn
// at most kTurnMessages, with a pause behind a full one, so a flood costs the router a bounded part of a core and
// waits in its sender; and what changes is declared in lists, likewise at intervals. While a worker is heard, only the
// address that it registered from may say something else of it.
//
// Report() from any thread, the rest on the control thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/mutex.h"
#include "base/status.h"
#include "disaggregation/pd_registrations.h"
#include "net/ip_range.h"
#include "proxy/control/service.h"
#include "proxy/disaggregation/registration_socket.h"
#include "worker/worker_declaration.h"
#include "worker/worker_registry.h"

namespace vllm_router {

struct IoThread;

// What became of a message: a label of metrics.
enum class PdReceived : uint8_t {
  kTaken,
  kIgnored,    // HELLO, or a type of a later version
  kTooLong,    // more than kMaxPdMessage bytes
  kMalformed,  // no registration
  kNotAllowed,
  kOtherPeer,     // the worker is heard from another address
  kOtherRole,     // it has registered for the other stage
  kOtherMode,     // the fleet's MoRI-IO workers have the other mode
  kNoMode,        // --kv-connector moriio needs it
  kTooManyRanks,  // more than kMaxRanks
  kFull,          // as many workers as there may be
};
inline constexpr size_t kPdReceivedKinds = 11;
std::string_view PdReceivedName(PdReceived what);

struct PdRegistrationReport {
  struct Instance {
    PdRegistration told;
    std::string peer;  // IP address that it registers from; empty: unknown
    int64_t heard_ns = 0;
    bool silent = false;
  };
  std::string endpoint;  // empty: not bound yet
  std::array<uint64_t, kPdReceivedKinds> messages{};
  std::vector<Instance> instances;  // as they came
  int64_t now_ns = 0;
};

class PdRegistrationService final : public Service {
 public:
  static constexpr uint32_t kMaxRanks = 256;  // of one worker
  static constexpr size_t kTurnMessages = 256;
  static constexpr int64_t kPauseNanos = 10'000'000;    // behind a full turn
  static constexpr int64_t kDeclareNanos = 50'000'000;  // between two lists, or
  static constexpr int64_t kDeclareShare = 10;          // so many times what the last one took
  static constexpr int64_t kWarnAgainNanos = 60'000'000'000;
  static constexpr std::string_view kSource = "registration";

  explicit PdRegistrationService(IoThread& thread);
  ~PdRegistrationService() override;

  // Binds the address. An error unless the port may be another router's for now (--reuse-port).
  Status Open();

  void Start() override;
  void Stop() override;
  bool ended() const override { return !running_.load(); }

  PdRegistrationReport Report() const;
  void WriteMetrics(MetricsPage* page) const override;

 private:
  using Instance = PdRegistrationReport::Instance;
  struct Numbered {
    Instance instance;
    uint64_t number = 0;  // in order of arrival
  };

  void Bound();
  void Run();
  int WaitMs(int64_t now_ns) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True: there may be more.
  bool Receive(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  PdReceived Take(std::span<const std::string> frames, const std::string& peer, int64_t now_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  PdReceived Admit(const PdRegistration& told, const std::string& peer) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Follow(const std::vector<PdChange>& changes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Leaves(const PdRegistration& told) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsAllowed(std::string_view address) const;
  uint32_t RanksOf(const PdRegistration& told) const;
  std::vector<std::string> UrlsOf(const PdRegistration& told) const;
  std::vector<const Instance*> Ordered() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Declare(int64_t now_ns);
  std::vector<WorkerDeclaration> ListOf(std::span<const Instance> instances) const;
  // Removes those that would have the whole list rejected.
  void RemoveUnfit(std::vector<WorkerDeclaration>* list) const;
  void Warn(PdReceived what, const PdRegistration& told, const std::string& peer, int64_t now_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  IoThread& thread_;
  RegistrationSocket socket_;
  std::vector<IpRange> allowed_;  // empty: any
  const bool needs_mode_;
  const SteadyClock clock_{};
  FileDescriptor wake_;
  std::thread run_;
  std::atomic<bool> running_{false};
  std::atomic<bool> stopping_{false};
  std::vector<std::string> frames_;  // reused
  std::string peer_;                 // likewise

  mutable Mutex mutex_;  // leaf
  std::string bound_ ABSL_GUARDED_BY(mutex_);
  PdRegistrations registrations_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Numbered, std::less<>> instances_ ABSL_GUARDED_BY(mutex_);  // by HTTP address
  uint64_t next_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> left_ ABSL_GUARDED_BY(mutex_);  // URLs, since the last list
  bool changed_ ABSL_GUARDED_BY(mutex_) = false;           // since the last list
  int64_t declare_ns_ ABSL_GUARDED_BY(mutex_) = 0;         // not before
  std::array<uint64_t, kPdReceivedKinds> messages_ ABSL_GUARDED_BY(mutex_){};
  std::array<int64_t, kPdReceivedKinds> warned_ns_ ABSL_GUARDED_BY(mutex_){};  // 0: not yet
};

}  // namespace vllm_router
