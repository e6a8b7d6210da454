#include "disaggregation/pd_registrations.h"

#include <iterator>
#include <utility>

namespace vllm_router {

std::string_view PdChangeName(PdChange::Kind kind) {
  switch (kind) {
    case PdChange::Kind::kAdded:
      return "added";
    case PdChange::Kind::kUpdated:
      return "updated";
    case PdChange::Kind::kSilenced:
      return "silenced";
    case PdChange::Kind::kReturned:
      return "returned";
    case PdChange::Kind::kRemoved:
      return "removed";
  }
  return "";
}

std::string_view PdRegisterResultName(PdRegistrations::Result result) {
  switch (result) {
    case PdRegistrations::Result::kTaken:
      return "taken";
    case PdRegistrations::Result::kOtherRole:
      return "other_role";
    case PdRegistrations::Result::kOtherMode:
      return "other_mode";
    case PdRegistrations::Result::kFull:
      return "full";
  }
  return "";
}

PdRegistrations::Result PdRegistrations::Admit(const PdRegistration& told) const {
  const auto place = places_.find(told.http_address);
  const bool is_known = place != places_.end();
  if (is_known && place->second->told.role != told.role) return Result::kOtherRole;
  if (told.mode && mode_ && *told.mode != *mode_) return Result::kOtherMode;
  return is_known || places_.size() < max_instances_ ? Result::kTaken : Result::kFull;
}

PdRegistrations::Result PdRegistrations::Register(
    const PdRegistration& told, int64_t now_ns, std::vector<PdChange>* changes) {
  Expire(now_ns, changes);
  const Result result = Admit(told);
  if (result != Result::kTaken) return result;
  if (const auto place = places_.find(told.http_address); place != places_.end()) {
    Refresh(place->second, told, changes);
    return result;
  }
  eligible_.push_back({.told = told, .heard_ns = now_ns_});
  places_.emplace(told.http_address, std::prev(eligible_.end()));
  CountMode(told, 1);
  changes->push_back({PdChange::Kind::kAdded, told});
  return result;
}

void PdRegistrations::Refresh(
    Instances::iterator instance, const PdRegistration& told, std::vector<PdChange>* changes) {
  const bool returns = std::exchange(instance->is_silent, false);
  eligible_.splice(eligible_.end(), returns ? silent_ : eligible_, instance);
  instance->heard_ns = now_ns_;
  const bool differs = instance->told != told;
  if (differs) {
    CountMode(instance->told, -1);
    CountMode(told, 1);
    instance->told = told;
  }
  if (returns) changes->push_back({PdChange::Kind::kReturned, told});
  if (differs) changes->push_back({PdChange::Kind::kUpdated, told});
}

void PdRegistrations::CountMode(const PdRegistration& told, int by) {
  if (!told.mode) return;
  of_mode_ = by > 0 ? of_mode_ + 1 : of_mode_ - 1;
  mode_ = of_mode_ != 0 ? told.mode : std::nullopt;
}

void PdRegistrations::Remove(Instances* from, std::vector<PdChange>* changes) {
  Instance& oldest = from->front();
  CountMode(oldest.told, -1);
  places_.erase(oldest.told.http_address);
  changes->push_back({PdChange::Kind::kRemoved, std::move(oldest.told)});
  from->pop_front();
}

void PdRegistrations::Expire(int64_t now_ns, std::vector<PdChange>* changes) {
  now_ns_ = std::max(now_ns_, now_ns);
  const auto silence = [this](const Instances& instances) { return now_ns_ - instances.front().heard_ns; };
  while (!silent_.empty() && silence(silent_) >= forget_ns_) Remove(&silent_, changes);
  while (!eligible_.empty() && silence(eligible_) >= forget_ns_) Remove(&eligible_, changes);
  while (!eligible_.empty() && silence(eligible_) >= kSilentNs) {
    Instance& oldest = eligible_.front();
    oldest.is_silent = true;
    changes->push_back({PdChange::Kind::kSilenced, oldest.told});
    silent_.splice(silent_.end(), eligible_, eligible_.begin());
  }
}

std::optional<int64_t> PdRegistrations::next_expiry_ns() const {
  std::optional<int64_t> next;
  if (!silent_.empty()) next = silent_.front().heard_ns + forget_ns_;
  if (!eligible_.empty()) {
    const int64_t silenced_ns = eligible_.front().heard_ns + silent_ns();
    next = std::min(next.value_or(silenced_ns), silenced_ns);
  }
  return next;
}

size_t PdRegistrations::eligible(PdRole role) const {
  return static_cast<size_t>(
      std::ranges::count_if(eligible_, [role](const Instance& one) { return one.told.role == role; }));
}

}  // namespace vllm_router
