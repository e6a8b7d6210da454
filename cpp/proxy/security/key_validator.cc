#include "proxy/security/key_validator.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "base/text.h"
#include "proxy/client/http_client.h"
#include "proxy/telemetry/telemetry.h"

namespace vllm_router {
namespace {

constexpr int64_t kNanosPerMs = 1'000'000;
constexpr int64_t kRememberNoMs = 10'000;

// A refusal of the key itself; of anything else one cannot tell whether the next answer would be another.
bool SaysNo(int status) { return status == 400 || status == 401 || status == 403 || status == 404; }

}  // namespace

KeyVerdicts::KeyVerdicts(int64_t yes_nanos, int64_t no_nanos, size_t most_of_each)
    : yes_nanos_(yes_nanos), no_nanos_(no_nanos), most_(most_of_each) {}

void KeyVerdicts::Remember(const Digest256& key, KeyVerdict verdict, int64_t now_nanos) {
  if (verdict == KeyVerdict::kUnknown) return;
  std::lock_guard lock(mutex_);
  const bool yes = verdict == KeyVerdict::kYes;
  Expiries& table = yes ? yes_ : no_;
  (yes ? no_ : yes_).erase(key);
  if (table.size() >= most_ && !table.contains(key)) {
    std::erase_if(table, [now_nanos](const auto& entry) { return entry.second <= now_nanos; });
    if (table.size() >= most_) table.erase(table.begin());
  }
  table[key] = now_nanos + (yes ? yes_nanos_ : no_nanos_);
}

std::optional<KeyVerdict> KeyVerdicts::Find(const Digest256& key, int64_t now_nanos) const {
  std::lock_guard lock(mutex_);
  if (const auto found = yes_.find(key); found != yes_.end() && found->second > now_nanos) {
    return KeyVerdict::kYes;
  }
  if (const auto found = no_.find(key); found != no_.end() && found->second > now_nanos) {
    return KeyVerdict::kNo;
  }
  return std::nullopt;
}

bool KeyVerdicts::WasYes(const Digest256& key) const {
  std::lock_guard lock(mutex_);
  return yes_.contains(key);
}

size_t KeyVerdicts::size() const {
  std::lock_guard lock(mutex_);
  return yes_.size() + no_.size();
}

KeyJudge::KeyJudge(const Options& options)
    : timeout_ms_(options.timeout_ms),
      verdicts_(
          options.remember_ms * kNanosPerMs, std::min(options.remember_ms, kRememberNoMs) * kNanosPerMs,
          kMaxKeyVerdicts),
      queue_(kMaxKeyWaiters, kMaxKeyWaitersPerAddress) {}

StatusOr<std::unique_ptr<KeyJudge>> KeyJudge::Make(const Options& options) {
  std::unique_ptr<KeyJudge> judge(new KeyJudge(options));
  for (const std::string& url : options.urls) {
    const size_t scheme = url.find("://");
    const size_t path = scheme == std::string::npos ? url.size() : url.find_first_of("/?", scheme + 3);
    StatusOr<WorkerUrl> host = ParseWorkerUrl(url.substr(0, path));
    const std::string target = path < url.size() ? url.substr(path) : "/";
    const bool plain =
        std::all_of(target.begin(), target.end(), [](char c) { return c > 0x20 && c < 0x7f && c != '#'; });
    if (!host.ok() || host->rank.has_value() || !plain) {
      return absl::InvalidArgumentError(Concat(
          "--api-key-validation-urls has ", Quoted(url),
          ", which is not an address to ask; write it as https://auth.example/validate"));
    }
    judge->addresses_.push_back({*std::move(host), target.front() == '?' ? "/" + target : target});
  }
  return judge;
}

Task<KeyVerdict> KeyJudge::Ask(std::string key, std::shared_ptr<Waiter> waiter) {
  const Digest256 digest = Sha256({key});
  const std::optional<KeyVerdict> remembered = verdicts_.Find(digest, clock_.NowNanos());
  if (remembered.has_value()) co_return *remembered;
  http_->loop().Post([this, digest, key = std::move(key), waiter] { Enquire(digest, key, waiter); });
  co_await waiter->told_;
  co_return waiter->verdict_;
}

// What it posts comes to the control lane behind what Ask() posted, since both run on the waiter's lane.
void KeyJudge::Waiter::Cancel(const std::shared_ptr<Waiter>& waiter) {
  Tell(waiter, KeyVerdict::kUnknown);
  waiter->judge_.http_->loop().Post([waiter] { waiter->judge_.Leave(waiter.get()); });
}

// On the lane of the waiter, which may wait no more.
void KeyJudge::Tell(const std::shared_ptr<Waiter>& waiter, KeyVerdict verdict) {
  waiter->loop_.Post([waiter, verdict] {
    if (std::exchange(waiter->over_, true)) return;
    waiter->verdict_ = verdict;
    waiter->told_.Notify();
  });
}

void KeyJudge::Enquire(const Digest256& digest, std::string key, const std::shared_ptr<Waiter>& waiter) {
  // The same question may have been answered while this one was on its way.
  if (const auto verdict = verdicts_.Find(digest, clock_.NowNanos()); verdict.has_value()) {
    Tell(waiter, *verdict);
    return;
  }
  if (http_->stopped()) {
    Tell(waiter, KeyVerdict::kUnknown);
    return;
  }
  const KeyQueue::Entry entry = queue_.Enter(waiter.get(), digest, std::move(key), verdicts_.WasYes(digest));
  if (entry == KeyQueue::Entry::kFull || entry == KeyQueue::Entry::kAddressFull) {
    Recorder& recorder = *recorder_;
    (entry == KeyQueue::Entry::kFull ? recorder.key_validations_full : recorder.key_validations_share)
        .fetch_add(1, std::memory_order_relaxed);
    Tell(waiter, KeyVerdict::kUnknown);
    return;
  }
  waiter->queued_ = waiter;
  ShowWaiting();
  if (entry == KeyQueue::Entry::kJoined || working_ >= kMaxKeyQuestions) return;
  ++working_;
  Spawn(Work());
}

void KeyJudge::Leave(Waiter* waiter) {
  const std::shared_ptr<KeyQueue::Validation> abandoned = queue_.Leave(waiter);
  waiter->queued_ = nullptr;
  ShowWaiting();
  if (abandoned != nullptr) running_.at(abandoned.get())->Cancel();
}

void KeyJudge::ShowWaiting() {
  recorder_->key_validations_waiting.store(static_cast<int64_t>(queue_.waiting()), std::memory_order_relaxed);
}

Task<void> KeyJudge::Work() {
  while (const std::shared_ptr<KeyQueue::Validation> validation = queue_.Begin()) {
    CancelScope errand{std::span<const std::string_view>()};
    running_.emplace(validation.get(), &errand);
    KeyVerdict verdict = KeyVerdict::kUnknown;
    if (!http_->stopped()) verdict = co_await Judge(errand, validation->key);
    running_.erase(validation.get());
    verdicts_.Remember(validation->digest, verdict, clock_.NowNanos());
    for (KeyQueue::Waiter* told : queue_.End(*validation)) {
      auto* waiter = static_cast<Waiter*>(told);
      Tell(std::exchange(waiter->queued_, nullptr), verdict);
    }
    ShowWaiting();
  }
  --working_;
}

// Unknown if the errand is cancelled.
Task<KeyVerdict> KeyJudge::Judge(CancelScope& errand, std::string key) {
  bool all_say_no = true;
  for (const Address& address : addresses_) {
    const StatusOr<HttpResponse> answer =
        co_await http_->GetExternal(&errand, address.host, address.target, key, timeout_ms_);
    if (errand.cancelled()) co_return KeyVerdict::kUnknown;
    if (answer.ok() && answer->status == 200) co_return KeyVerdict::kYes;
    if (!answer.ok() || !SaysNo(answer->status)) all_say_no = false;
  }
  co_return all_say_no ? KeyVerdict::kNo : KeyVerdict::kUnknown;
}

}  // namespace vllm_router
