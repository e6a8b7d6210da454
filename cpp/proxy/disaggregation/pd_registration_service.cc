#include "proxy/disaggregation/pd_registration_service.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "base/option_spec.h"
#include "base/text.h"
#include "base/time_units.h"
#include "disaggregation/kv_connector.h"
#include "proxy/api/server_options.h"
#include "proxy/telemetry/metrics_page.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"
#include "worker/worker_url.h"

namespace vllm_router {
namespace {

constexpr int64_t kLongestWaitNs = 1'000 * kNanosPerMs;

bool NeedsMode(std::string_view connector) {
  const KvConnector* known = FindKvConnector(connector);
  return known != nullptr && known->traits().registers_mode;
}

// The host of an http_address, without the port and brackets.
std::string_view HostIn(std::string_view address) {
  std::string_view host = address.substr(0, address.rfind(':'));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return host;
}

std::string DetailOf(const PdRegistration& told) {
  std::string detail = Concat("zmq=", told.zmq_address, " tp=", told.tp_size, " dp=", told.dp_size);
  if (told.mode) detail += Concat(" mode=", MoriioModeName(*told.mode));
  return detail;
}

}  // namespace

std::string_view PdReceivedName(PdReceived what) {
  static constexpr std::array<std::string_view, kPdReceivedKinds> kNames = {
      "taken",      "ignored",    "too_long", "malformed",      "not_allowed", "other_peer",
      "other_role", "other_mode", "no_mode",  "too_many_ranks", "full"};
  return kNames[static_cast<size_t>(what)];
}

PdRegistrationService::PdRegistrationService(IoThread& thread)
    : thread_(thread),
      needs_mode_(NeedsMode(thread.options.kv_connector)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      registrations_(thread.options.discovery_forget_ms * kNanosPerMs, kMaxWorkers) {
  // Server::Start has checked them.
  for (const std::string& text : thread.options.vllm_discovery_allow) {
    StatusOr<IpRange> range = IpRange::Parse("vllm_discovery_allow", text);
    if (range.ok()) allowed_.push_back(*range);
  }
}

PdRegistrationService::~PdRegistrationService() {
  Stop();
  if (run_.joinable()) run_.join();
}

Status PdRegistrationService::Open() {
  StatusOr<std::string> endpoint = RegistrationSocket::EndpointOf(thread_.options.vllm_discovery_address);
  if (!endpoint.ok()) return endpoint.status();
  if (!wake_.is_open()) return absl::ResourceExhaustedError("cannot open an eventfd for registrations");
  const Status bound = socket_.Bind(*std::move(endpoint));
  if (bound.ok()) Bound();
  if (bound.ok() || thread_.options.reuse_port) return absl::OkStatus();
  return absl::FailedPreconditionError(Concat(
      "vllm_discovery_address is ", thread_.options.vllm_discovery_address, ": ",
      std::string(bound.message()), "; choose another port, or stop the process that has this one"));
}

void PdRegistrationService::Bound() {
  const MutexLock lock(mutex_);
  bound_ = socket_.endpoint();
  Log(LogLevel::kInfo, Concat("registration: prefill and decode workers may register at ", bound_));
}

void PdRegistrationService::Start() {
  running_ = true;
  run_ = std::thread([this] {
    Run();
    running_ = false;
  });
}

void PdRegistrationService::Stop() {
  stopping_ = true;
  const uint64_t one = 1;
  if (wake_.is_open()) (void)!::write(*wake_, &one, sizeof one);
}

void PdRegistrationService::Run() {
  bool pauses = false;
  while (!stopping_.load()) {
    int wait_ms = kPauseNanos / kNanosPerMs;
    if (!pauses) {
      const MutexLock lock(mutex_);
      wait_ms = WaitMs(clock_.NowNanos());
    }
    std::array<ZmqPollItem, 2> items;
    items[0] = {.descriptor = *wake_};
    const bool listens = socket_.is_bound() && !pauses;
    if (listens) items[1] = socket_.poll_item();
    ZmqPoll(std::span(items).first(listens ? 2 : 1), wait_ms);
    if (stopping_.load()) return;
    const int64_t now = clock_.NowNanos();
    if (!socket_.is_bound() && socket_.BindAgain(now)) Bound();
    bool declares = false;
    {
      const MutexLock lock(mutex_);
      pauses = socket_.is_bound() && Receive(now);
      std::vector<PdChange> changes;
      registrations_.Expire(now, &changes);
      Follow(changes);
      declares = changed_ && now >= declare_ns_;
    }
    if (!declares) continue;
    Declare(now);
    const int64_t end = clock_.NowNanos();
    const MutexLock lock(mutex_);
    declare_ns_ = end + std::max(kDeclareNanos, kDeclareShare * (end - now));
  }
}

int PdRegistrationService::WaitMs(int64_t now_ns) const {
  int64_t due = now_ns + kLongestWaitNs;
  if (changed_) due = std::min(due, declare_ns_);
  if (const std::optional<int64_t> next = registrations_.next_expiry_ns()) due = std::min(due, *next);
  return static_cast<int>((std::max<int64_t>(0, due - now_ns) + kNanosPerMs - 1) / kNanosPerMs);
}

bool PdRegistrationService::Receive(int64_t now_ns) {
  for (size_t i = 0; i < kTurnMessages; ++i) {
    const ZmqReceive received = socket_.Receive(&frames_, &peer_);
    if (received == ZmqReceive::kNone || received == ZmqReceive::kError) return false;
    PdReceived what = PdReceived::kMalformed;
    if (received == ZmqReceive::kMessage) what = Take(frames_, peer_, now_ns);
    ++messages_[static_cast<size_t>(what)];
  }
  return true;
}

PdReceived PdRegistrationService::Take(
    std::span<const std::string> frames, const std::string& peer, int64_t now_ns) {
  // The decoder's first frame is an identity, which a DEALER does not tell.
  std::vector<std::string> with_identity(1);
  with_identity.insert(with_identity.end(), frames.begin(), frames.end());
  PdRegistration told;
  switch (DecodePdMessage(with_identity, &told)) {
    case PdMessage::kIgnored:
      return PdReceived::kIgnored;
    case PdMessage::kTooLong:
      return PdReceived::kTooLong;
    case PdMessage::kMalformed:
      return PdReceived::kMalformed;
    case PdMessage::kRegistration:
      break;
  }
  PdReceived what = Admit(told, peer);
  if (what == PdReceived::kTaken) {
    std::vector<PdChange> changes;
    const PdRegistrations::Result result = registrations_.Register(told, now_ns, &changes);
    Follow(changes);
    if (result == PdRegistrations::Result::kOtherRole) what = PdReceived::kOtherRole;
    if (result == PdRegistrations::Result::kOtherMode) what = PdReceived::kOtherMode;
    if (result == PdRegistrations::Result::kFull) what = PdReceived::kFull;
  }
  if (what != PdReceived::kTaken) {
    Warn(what, told, peer, now_ns);
    return what;
  }
  Instance& instance = instances_.find(told.http_address)->second.instance;
  instance.heard_ns = now_ns;
  instance.peer = peer;
  return what;
}

PdReceived PdRegistrationService::Admit(const PdRegistration& told, const std::string& peer) const {
  if (!IsAllowed(HostIn(told.http_address)) || (!peer.empty() && !IsAllowed(peer))) {
    return PdReceived::kNotAllowed;
  }
  const auto known = instances_.find(told.http_address);
  if (known != instances_.end() && !known->second.instance.silent && known->second.instance.peer != peer) {
    return PdReceived::kOtherPeer;
  }
  if (needs_mode_ && !told.mode) return PdReceived::kNoMode;
  return RanksOf(told) > kMaxRanks ? PdReceived::kTooManyRanks : PdReceived::kTaken;
}

void PdRegistrationService::Follow(const std::vector<PdChange>& changes) {
  for (const PdChange& change : changes) {
    changed_ = true;
    if (change.kind == PdChange::Kind::kAdded) {
      instances_[change.worker.http_address] = {
          .instance = {.told = change.worker, .peer = {}}, .number = next_number_++};
      continue;
    }
    const auto known = instances_.find(change.worker.http_address);
    Instance& instance = known->second.instance;
    switch (change.kind) {
      case PdChange::Kind::kAdded:
        break;
      case PdChange::Kind::kUpdated:
        Leaves(instance.told);
        instance.told = change.worker;
        break;
      case PdChange::Kind::kSilenced:
        instance.silent = true;
        break;
      case PdChange::Kind::kReturned:
        instance.silent = false;
        break;
      case PdChange::Kind::kRemoved:
        Leaves(instance.told);
        instances_.erase(known);
        break;
    }
  }
}

// Its URLs, if the next list does not have them, have ended, and no guard holds them.
void PdRegistrationService::Leaves(const PdRegistration& told) {
  for (std::string& url : UrlsOf(told)) left_.push_back(std::move(url));
}

bool PdRegistrationService::IsAllowed(std::string_view address) const {
  return allowed_.empty() ||
         std::ranges::any_of(allowed_, [address](const IpRange& one) { return one.Contains(address); });
}

// As flags say, else as it told.
uint32_t PdRegistrationService::RanksOf(const PdRegistration& told) const {
  const Stage stage = told.role == PdRole::kPrefill ? Stage::kPrefill : Stage::kDecode;
  return std::max(told.dp_size, thread_.router->ranks_of(stage));
}

std::vector<std::string> PdRegistrationService::UrlsOf(const PdRegistration& told) const {
  const std::string base = Concat("http://", told.http_address);
  const uint32_t ranks = RanksOf(told);
  if (ranks == 1) return {base};
  std::vector<std::string> urls;
  for (uint32_t rank = 0; rank < ranks; ++rank) urls.push_back(Concat(base, "@", rank));
  return urls;
}

std::vector<const PdRegistrationService::Instance*> PdRegistrationService::Ordered() const {
  std::vector<const Numbered*> numbered;
  for (const auto& [address, one] : instances_) numbered.push_back(&one);
  std::ranges::sort(numbered, {}, &Numbered::number);
  std::vector<const Instance*> ordered;
  for (const Numbered* one : numbered) ordered.push_back(&one->instance);
  return ordered;
}

void PdRegistrationService::Declare(int64_t now_ns) {
  std::vector<Instance> instances;
  std::vector<std::string> left;
  {
    const MutexLock lock(mutex_);
    for (const Instance* one : Ordered()) instances.push_back(*one);
    left = std::exchange(left_, {});
    changed_ = false;
  }
  std::vector<WorkerDeclaration> list = ListOf(instances);
  WorkerRegistry& registry = thread_.router->pool().registry();
  StatusOr<Difference> difference = registry.Reconcile(kSource, list, /*complete=*/true, left, now_ns);
  if (difference.ok()) return;
  RemoveUnfit(&list);
  const std::string why(difference.status().message());
  difference = registry.Reconcile(kSource, std::move(list), /*complete=*/true, left, now_ns);
  const std::string rest(difference.ok() ? "the others are taken" : "the list is not taken");
  Log(LogLevel::kWarning, Concat("registration: ", why, "; ", rest));
  if (!difference.ok()) (void)registry.ReportError(kSource, "rejected", why);
}

std::vector<WorkerDeclaration> PdRegistrationService::ListOf(std::span<const Instance> instances) const {
  std::vector<WorkerDeclaration> list;
  for (const Instance& instance : instances) {
    const PdRegistration& told = instance.told;
    const std::vector<std::string> urls = UrlsOf(told);
    if (list.size() + urls.size() > kMaxWorkers) continue;  // the later ones find no place
    for (const std::string& url : urls) {
      // Whoever reaches the socket may have added it, unless the operator says which addresses are workers.
      StatusOr<WorkerDeclaration> worker = DeclareWorker(url, /*receives_api_key=*/!allowed_.empty());
      if (!worker.ok()) continue;  // a registration with such an address is no PdRegistration
      worker->role = {
          .stage = told.role == PdRole::kPrefill ? Stage::kPrefill : Stage::kDecode,
          .bootstrap_port = std::nullopt,
          .peer = KvPeer{
              .zmq_address = told.zmq_address,
              .mode = told.mode,
              .tp_size = told.tp_size,
              .dp_size = RanksOf(told)}};
      worker->ready = !instance.silent;
      worker->detail = DetailOf(told);
      list.push_back(*std::move(worker));
    }
  }
  return list;
}

void PdRegistrationService::RemoveUnfit(std::vector<WorkerDeclaration>* list) const {
  std::map<std::string, Stage> others;  // by key, declared by another source as well
  std::set<std::string> known;
  for (const DeclaredFleet::Row& row : thread_.router->pool().registry().Rows()) {
    known.insert(row.key);
    if (std::ranges::any_of(row.owners, [](const std::string& owner) { return owner != kSource; })) {
      others.emplace(row.key, row.spec.role.stage);
    }
  }
  size_t fresh = known.size() < 2 * kMaxWorkers ? 2 * kMaxWorkers - known.size() : 0;  // that find a place
  std::set<std::string> taken;
  std::erase_if(*list, [&](const WorkerDeclaration& declared) {
    const std::string key = WorkerKey(declared.url);
    const auto other = others.find(key);
    if (other != others.end() && other->second != declared.role.stage) return true;
    if (!taken.insert(key).second) return true;
    if (known.contains(key)) return false;
    if (fresh == 0) return true;
    --fresh;
    return false;
  });
}

void PdRegistrationService::Warn(
    PdReceived what, const PdRegistration& told, const std::string& peer, int64_t now_ns) {
  int64_t& warned = warned_ns_[static_cast<size_t>(what)];
  if (warned != 0 && now_ns - warned < kWarnAgainNanos) return;
  warned = now_ns;
  const auto why = [&]() -> std::string {
    switch (what) {
      case PdReceived::kNotAllowed:
        return "its address or that of its sender is not in --vllm-discovery-allow";
      case PdReceived::kOtherPeer:
        return "it is heard from another address";
      case PdReceived::kOtherRole:
        return "it has registered for the other stage; a worker has one stage";
      case PdReceived::kOtherMode:
        return "the fleet's MoRI-IO workers have the other mode; start all of them in one";
      case PdReceived::kNoMode:
        return "it names no transfer_mode, READ or WRITE, which --kv-connector moriio needs";
      case PdReceived::kTooManyRanks:
        return Concat("it has ", RanksOf(told), " data-parallel ranks; a worker has at most ", kMaxRanks);
      default:
        return Concat("there are ", kMaxWorkers, " workers; run a second router");
    }
  };
  Log(LogLevel::kWarning,
      Concat(
          "registration: ", PdRoleName(told.role), " worker ", told.http_address, " (from ",
          peer.empty() ? "an unknown address" : peer, ") is rejected: ", why()));
}

PdRegistrationReport PdRegistrationService::Report() const {
  const MutexLock lock(mutex_);
  PdRegistrationReport report;
  report.endpoint = bound_;
  report.messages = messages_;
  report.now_ns = clock_.NowNanos();
  for (const Instance* one : Ordered()) report.instances.push_back(*one);
  return report;
}

void PdRegistrationService::WriteMetrics(MetricsPage* page) const {
  const PdRegistrationReport report = Report();
  page->Gauge("pd_registrations", "Workers that have registered and are not silent: prefill or decode.");
  for (const PdRole role : {PdRole::kPrefill, PdRole::kDecode}) {
    const auto count = std::ranges::count_if(
        report.instances, [role](const auto& one) { return one.told.role == role && !one.silent; });
    page->Add(count, {{"type", PdRoleName(role)}});
  }
  page->Counter(
      "pd_registration_messages_total",
      "Messages at --vllm-discovery-address: taken, ignored (HELLO), or not taken: too_long, malformed, "
      "not_allowed (--vllm-discovery-allow), other_peer (the worker is heard from another address), "
      "other_role, other_mode, no_mode (MoRI-IO without READ or WRITE), too_many_ranks, full.");
  for (size_t i = 0; i < kPdReceivedKinds; ++i) {
    page->Add(report.messages[i], {{"result", PdReceivedName(static_cast<PdReceived>(i))}});
  }
}

}  // namespace vllm_router
