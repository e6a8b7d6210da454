#include "proxy/security/key_queue.h"

#include <utility>

namespace vllm_router {

KeyQueue::Entry KeyQueue::Enter(Waiter* waiter, const Digest256& digest, std::string key, bool refresh) {
  if (waiting_ >= places_) return Entry::kFull;
  const auto known = validations_.find(digest);
  const bool is_new = known == validations_.end();
  const bool counts = is_new ? !refresh : !known->second->refresh;
  if (counts && waiting_of(waiter->address_) >= address_share_) return Entry::kAddressFull;

  std::shared_ptr<Validation> validation =
      is_new ? std::make_shared<Validation>(digest, std::move(key), refresh) : known->second;
  if (is_new) {
    validations_.emplace(digest, validation);
    ++queued_;
    if (refresh) validation->at = refreshes_.insert(refreshes_.end(), validation.get());
  }
  if (counts) {
    ++addresses_[waiter->address_].waiters;
    if (!validation->running) EnterQueue(validation.get(), waiter->address_);
  }
  waiter->at_ = validation->waiters.insert(validation->waiters.end(), waiter);
  waiter->validation_ = std::move(validation);
  ++waiting_;
  return is_new ? Entry::kNew : Entry::kJoined;
}

std::shared_ptr<KeyQueue::Validation> KeyQueue::Begin() {
  Validation* next = nullptr;
  if (!refreshes_.empty()) {
    next = refreshes_.front();
    refreshes_.pop_front();
  } else if (!turns_.empty()) {
    Address& address = addresses_.at(turns_.front());
    turns_.splice(turns_.end(), turns_, turns_.begin());
    next = address.queue.front();
    LeaveQueues(next);
  }
  if (next == nullptr) return nullptr;
  next->running = true;
  --queued_;
  return validations_.at(next->digest);
}

std::vector<KeyQueue::Waiter*> KeyQueue::End(const Validation& validation) {
  const auto found = validations_.find(validation.digest);
  if (found == validations_.end() || found->second.get() != &validation) return {};  // abandoned
  const std::shared_ptr<Validation> ended = std::move(found->second);
  validations_.erase(found);
  std::vector<Waiter*> waiters(ended->waiters.begin(), ended->waiters.end());
  ended->waiters.clear();
  for (Waiter* waiter : waiters) Release(waiter);
  return waiters;
}

std::shared_ptr<KeyQueue::Validation> KeyQueue::Leave(Waiter* waiter) {
  const std::shared_ptr<Validation> validation = waiter->validation_;
  if (validation == nullptr) return nullptr;
  validation->waiters.erase(waiter->at_);
  if (const auto place = validation->places.find(waiter->address_);
      place != validation->places.end() && --place->second.waiters == 0) {
    LeaveQueue(place);
    validation->places.erase(place);
  }
  Release(waiter);
  if (!validation->waiters.empty()) return nullptr;
  validations_.erase(validation->digest);
  if (validation->running) return validation;
  if (validation->refresh) refreshes_.erase(validation->at);
  --queued_;
  return nullptr;
}

size_t KeyQueue::waiting_of(const std::string& address) const {
  const auto found = addresses_.find(address);
  return found == addresses_.end() ? 0 : found->second.waiters;
}

void KeyQueue::EnterQueue(Validation* validation, const std::string& name) {
  Validation::Place& place = validation->places[name];
  if (place.waiters++ > 0) return;
  Address& address = addresses_.at(name);
  if (address.queue.empty()) address.turn = turns_.insert(turns_.end(), name);
  place.at = address.queue.insert(address.queue.end(), validation);
}

void KeyQueue::LeaveQueue(Validation::Places::iterator place) {
  Address& address = addresses_.at(place->first);
  address.queue.erase(place->second.at);
  if (address.queue.empty()) turns_.erase(address.turn);
}

void KeyQueue::LeaveQueues(Validation* validation) {
  for (auto place = validation->places.begin(); place != validation->places.end(); ++place) LeaveQueue(place);
  validation->places.clear();
}

void KeyQueue::Release(Waiter* waiter) {
  --waiting_;
  if (!waiter->validation_->refresh) {
    const auto address = addresses_.find(waiter->address_);
    if (--address->second.waiters == 0) addresses_.erase(address);
  }
  waiter->validation_ = nullptr;
}

}  // namespace vllm_router
