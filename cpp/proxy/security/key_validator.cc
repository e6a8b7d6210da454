#include "proxy/security/key_validator.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "base/text.h"
#include "base/time_units.h"
#include "proxy/client/http_client.h"
#include "proxy/telemetry/event_counts.h"

namespace vllm_router {
namespace {
constexpr int64_t kRememberNoMs = 10'000;

// A rejection of the key itself; after any other status the next response might differ.
bool SaysNo(int status) { return status == 400 || status == 401 || status == 403 || status == 404; }

// The response of a service: its status, and of a yes what it says of the key.
class Reply final : public ResponseSink {
 public:
  bool OnHead(const ResponseHead& head) override {
    status = head.status;
    if (status == 200) grant = GrantInHeaders(head.fields);
    return true;
  }
  // Read to its end, however it is framed, and not kept.
  bool OnData(std::string_view body_data) override {
    bytes_ += body_data.size();
    too_long = bytes_ > HttpClient::kMaxBodyBytes;
    return !too_long;
  }

  int status = 0;
  KeyGrant grant;
  bool too_long = false;

 private:
  size_t bytes_ = 0;
};

}  // namespace

KeyValidityCache::KeyValidityCache(int64_t yes_nanos, int64_t no_nanos, size_t most_of_each)
    : yes_nanos_(yes_nanos), no_nanos_(no_nanos), most_(most_of_each) {}

void KeyValidityCache::Remember(const Digest256& key, const KeyVerdict& verdict, int64_t now_nanos) {
  if (verdict.validity == KeyValidity::kUnknown) return;
  MutexLock lock(mutex_);
  const bool yes = verdict.validity == KeyValidity::kYes;
  Table& table = yes ? yes_ : no_;
  (yes ? no_ : yes_).erase(key);
  if (table.size() >= most_ && !table.contains(key)) {
    std::erase_if(table, [now_nanos](const auto& entry) { return entry.second.until <= now_nanos; });
    if (table.size() >= most_) table.erase(table.begin());
  }
  table[key] = {.until = now_nanos + (yes ? yes_nanos_ : no_nanos_), .grant = verdict.grant};
}

std::optional<KeyVerdict> KeyValidityCache::Find(const Digest256& key, int64_t now_nanos) const {
  MutexLock lock(mutex_);
  if (const auto found = yes_.find(key); found != yes_.end() && found->second.until > now_nanos) {
    return KeyVerdict{.validity = KeyValidity::kYes, .grant = found->second.grant};
  }
  if (const auto found = no_.find(key); found != no_.end() && found->second.until > now_nanos) {
    return KeyVerdict{.validity = KeyValidity::kNo};
  }
  return std::nullopt;
}

bool KeyValidityCache::WasYes(const Digest256& key) const {
  MutexLock lock(mutex_);
  return yes_.contains(key);
}

size_t KeyValidityCache::size() const {
  MutexLock lock(mutex_);
  return yes_.size() + no_.size();
}

KeyValidator::KeyValidator(const Options& options)
    : timeout_ms_(options.timeout_ms),
      remembered_(
          options.remember_ms * kNanosPerMs, std::min(options.remember_ms, kRememberNoMs) * kNanosPerMs,
          kMaxKeyValidities),
      queue_(kMaxKeyWaiters, kMaxKeyWaitersPerAddress) {}

StatusOr<std::unique_ptr<KeyValidator>> KeyValidator::Make(const Options& options) {
  std::unique_ptr<KeyValidator> validator(new KeyValidator(options));
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
          ", which is not a valid URL; write it as https://auth.example/validate"));
    }
    validator->addresses_.push_back({*std::move(host), target.front() == '?' ? "/" + target : target});
  }
  return validator;
}

Task<KeyVerdict> KeyValidator::Validate(std::string key, std::shared_ptr<Waiter> waiter) {
  const Digest256 digest = Sha256({key});
  std::optional<KeyVerdict> remembered = remembered_.Find(digest, clock_.NowNanos());
  if (remembered.has_value()) co_return *std::move(remembered);
  http_->loop().Post([this, digest, key = std::move(key), waiter] { Enqueue(digest, key, waiter); });
  co_await waiter->notified_;
  co_return std::move(waiter->verdict_);
}

// Its post reaches the control thread after that of Validate(), since both run on the waiter's thread.
void KeyValidator::Waiter::Cancel(const std::shared_ptr<Waiter>& waiter) {
  Notify(waiter, {});
  waiter->validator_.http_->loop().Post([waiter] { waiter->validator_.Leave(waiter.get()); });
}

// Runs on the waiter's thread; the waiter may already have given up.
void KeyValidator::Notify(const std::shared_ptr<Waiter>& waiter, KeyVerdict verdict) {
  waiter->loop_.Post([waiter, verdict = std::move(verdict)] {
    if (std::exchange(waiter->done_, true)) return;
    waiter->verdict_ = verdict;
    waiter->notified_.Notify();
  });
}

void KeyValidator::Enqueue(const Digest256& digest, std::string key, const std::shared_ptr<Waiter>& waiter) {
  // The key may have been validated while this request was on its way.
  if (const auto verdict = remembered_.Find(digest, clock_.NowNanos()); verdict.has_value()) {
    Notify(waiter, *verdict);
    return;
  }
  if (http_->stopped()) {
    Notify(waiter, {});
    return;
  }
  const KeyQueue::Entry entry =
      queue_.Enter(waiter.get(), digest, std::move(key), remembered_.WasYes(digest));
  if (entry == KeyQueue::Entry::kFull || entry == KeyQueue::Entry::kAddressFull) {
    (entry == KeyQueue::Entry::kFull ? counts_->rejected_full : counts_->rejected_share)
        .fetch_add(1, std::memory_order_relaxed);
    Notify(waiter, {});
    return;
  }
  waiter->queued_ = waiter;
  ShowWaiting();
  if (entry == KeyQueue::Entry::kJoined || working_ >= kMaxConcurrentValidations) return;
  ++working_;
  Spawn(Work());
}

void KeyValidator::Leave(Waiter* waiter) {
  const std::shared_ptr<KeyQueue::Validation> abandoned = queue_.Leave(waiter);
  waiter->queued_ = nullptr;
  ShowWaiting();
  if (abandoned != nullptr) running_.at(abandoned.get())->Cancel();
}

void KeyValidator::ShowWaiting() {
  counts_->waiting.store(static_cast<int64_t>(queue_.waiting()), std::memory_order_relaxed);
}

Task<void> KeyValidator::Work() {
  while (const std::shared_ptr<KeyQueue::Validation> validation = queue_.Begin()) {
    CancelScope scope{std::span<const std::string_view>()};
    running_.emplace(validation.get(), &scope);
    KeyVerdict verdict;
    if (!http_->stopped()) verdict = co_await Query(scope, validation->key);
    running_.erase(validation.get());
    remembered_.Remember(validation->digest, verdict, clock_.NowNanos());
    for (KeyQueue::Waiter* notified : queue_.End(*validation)) {
      auto* waiter = static_cast<Waiter*>(notified);
      Notify(std::exchange(waiter->queued_, nullptr), verdict);
    }
    ShowWaiting();
  }
  --working_;
}

// Unknown if the scope is cancelled.
Task<KeyVerdict> KeyValidator::Query(CancelScope& scope, std::string key) {
  bool all_say_no = true;
  for (const Address& address : addresses_) {
    Reply reply;
    const Status status =
        co_await http_->GetExternal(&scope, address.host, address.target, key, timeout_ms_, &reply);
    if (scope.cancelled()) co_return KeyVerdict{};
    const bool is_whole = status.ok() && !reply.too_long;
    if (is_whole && reply.status == 200) {
      co_return KeyVerdict{
          .validity = KeyValidity::kYes,
          .grant = reply.grant.empty() ? nullptr : std::make_shared<const KeyGrant>(std::move(reply.grant))};
    }
    if (!is_whole || !SaysNo(reply.status)) all_say_no = false;
  }
  co_return KeyVerdict{.validity = all_say_no ? KeyValidity::kNo : KeyValidity::kUnknown};
}

}  // namespace vllm_router
