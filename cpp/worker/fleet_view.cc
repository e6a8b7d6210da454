#include "worker/fleet_view.h"

namespace vllm_router {

FleetView::FleetView(std::vector<Member> members, uint64_t membership, uint64_t pool)
    : members_(std::move(members)),
      is_eligible_(members_.size()),
      membership_version_(membership),
      pool_(pool) {
  loads_.reserve(members_.size());
  for (size_t i = 0; i < members_.size(); ++i) {
    is_eligible_[i] = members_[i].serves() ? 1 : 0;
    const Worker& worker = *members_[i].worker;
    loads_.push_back(&worker.load);
    if (members_[i].elsewhere()) continue;
    const bool closed = worker.breaker.state() == BreakerState::kClosed;
    const bool in_doubt = members_[i].in_doubt;
    if (!closed || in_doubt || worker.backoff.active()) all_admitting_ = false;
    if (!members_[i].in_rotation()) continue;
    ++in_rotation_;
    if (!closed || in_doubt) ++ejected_;
    any_in_doubt_ |= in_doubt;
    any_overloaded_ |= members_[i].overloaded && members_[i].serves();
    if (!worker.url.prefix.empty()) any_prefix_ = true;
  }
  FindEligible();
}

std::optional<uint32_t> FleetView::Find(std::string_view url) const {
  for (uint32_t position = 0; position < members_.size(); ++position) {
    if (worker(position).url.url == url) return position;
  }
  return std::nullopt;
}

std::optional<uint32_t> FleetView::Find(WorkerId id) const {
  for (uint32_t position = 0; position < members_.size(); ++position) {
    if (worker(position).id == id) return position;
  }
  return std::nullopt;
}

void FleetView::MarkChecked(std::string_view base) const {
  for (const Member& member : members_) {
    if (member.worker->url.base == base) member.worker->health_known.store(true, std::memory_order_relaxed);
  }
}

FleetView FleetView::PoolOf(std::span<const uint32_t> positions, uint64_t pool) const {
  std::vector<Member> members = members_;
  for (Member& member : members) member.other_model = true;
  for (const uint32_t position : positions) members[position].other_model = false;
  FleetView view(std::move(members), membership_version_, pool);
  view.stage_ = stage_;
  view.plan_ = plan_;
  if (stages_ == nullptr) return view;
  view.stages_ = positions.size() == members_.size()
                     ? stages_
                     : std::make_shared<const StageViews>(stages_->PoolOf(positions));
  return view;
}

StageViews StageViews::PoolOf(std::span<const uint32_t> positions) const {
  const auto part = [&](const FleetView& stage) {
    return std::make_shared<const FleetView>(stage.PoolOf(positions, stage.pool()));
  };
  return {.prefill = part(*prefill), .decode = part(*decode)};
}

FleetView FleetView::StageOf(Stage stage) const {
  std::vector<Member> members = members_;
  for (Member& member : members) member.other_stage = member.worker->stage != stage;
  FleetView view(std::move(members), membership_version_);
  view.stage_ = stage;
  return view;
}

FleetView FleetView::Without(std::span<const uint32_t> positions) const {
  FleetView smaller(*this);
  for (const uint32_t position : positions) smaller.is_eligible_[position] = 0;
  smaller.FindEligible();
  return smaller;
}

FleetView FleetView::OnlyResidents() const {
  FleetView smaller(*this);
  for (const uint32_t position : eligible_) smaller.is_eligible_[position] = (*residents_)[position];
  smaller.FindEligible();
  return smaller;
}

FleetView FleetView::WithoutOverloaded() const {
  FleetView smaller(*this);
  for (const uint32_t position : eligible_) {
    if (members_[position].overloaded) smaller.is_eligible_[position] = 0;
  }
  smaller.FindEligible();
  return smaller;
}

void FleetView::Exclude(uint32_t position) {
  is_eligible_[position] = 0;
  FindEligible();
}

FleetView FleetView::Only(uint32_t position) const {
  FleetView one(*this);
  one.is_eligible_.assign(members_.size(), 0);
  one.is_eligible_[position] = 1;
  one.FindEligible();
  return one;
}

void FleetView::FindEligible() {
  eligible_.clear();
  eligible_weight_ = 0;
  equal_weights_ = true;
  uint32_t first = 0;
  for (uint32_t position = 0; position < members_.size(); ++position) {
    if (!IsEligible(position)) continue;
    const uint32_t weight = worker(position).load_weight();
    if (!eligible_.empty() && weight != first) equal_weights_ = false;
    if (eligible_.empty()) first = weight;
    eligible_.push_back(position);
    eligible_weight_ += weight;
  }
}

}  // namespace vllm_router
