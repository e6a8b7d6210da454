#include "worker/model_catalog.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/text.h"

namespace vllm_router {
namespace {

constexpr int64_t kMemoryNanos = int64_t{24} * 3'600 * 1'000'000'000;
constexpr int64_t kNeverNanos = INT64_MIN / 2;
constexpr int64_t kJoiningNanos = 60'000'000'000;  // what a host says may precede its workers by so much

using Positions = ModelPools::Positions;

// A number of the set of workers; never 0, which is the whole fleet's.
uint64_t NumberOf(const Positions& positions) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const uint32_t position : positions) hash = (hash ^ (position + 1)) * 0x100000001b3u;
  return hash == 0 ? 1 : hash;
}

Positions Merged(const Positions& a, const Positions& b) {
  Positions merged;
  merged.reserve(a.size() + b.size());
  std::ranges::set_union(a, b, std::back_inserter(merged));
  return merged;
}

bool ContainsControl(std::string_view text) {
  return std::ranges::any_of(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f;
  });
}

// Continuation bytes, overlong forms, surrogates and what lies beyond Unicode.
bool IsUtf8(std::string_view text) {
  size_t i = 0;
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  while (i < text.size()) {
    const unsigned char first = byte(i);
    const size_t length = first < 0x80   ? 1
                          : first < 0xc2 ? 0
                          : first < 0xe0 ? 2
                          : first < 0xf0 ? 3
                          : first < 0xf5 ? 4
                                         : 0;
    if (length == 0 || i + length > text.size()) return false;
    for (size_t k = 1; k < length; ++k) {
      if ((byte(i + k) & 0xc0) != 0x80) return false;
    }
    if (length == 3 && first == 0xe0 && byte(i + 1) < 0xa0) return false;
    if (length == 3 && first == 0xed && byte(i + 1) >= 0xa0) return false;
    if (length == 4 && first == 0xf0 && byte(i + 1) < 0x90) return false;
    if (length == 4 && first == 0xf4 && byte(i + 1) >= 0x90) return false;
    i += length;
  }
  return true;
}

// As most workers have it; of as many, as the first. So neither one that is wrong nor one that is not yet updated
// changes what a model is.
ModelCard CardOf(const ModelCard& last, std::span<const ModelCard* const> cards) {
  const ModelCard* best = &last;
  size_t most = 0;
  for (const ModelCard* const card : cards) {
    if (*card == *best && most > 0) continue;
    const auto same = static_cast<size_t>(
        std::ranges::count_if(cards, [card](const ModelCard* other) { return *other == *card; }));
    if (same > most) {
      best = card;
      most = same;
    }
  }
  return *best;
}

FleetView ViewOfMembers(const FleetView& whole, const ModelPools::Members& members, uint64_t number) {
  FleetView view = whole.PoolOf(members.workers, number);
  if (members.residents.empty()) return view;
  auto residents = std::make_shared<FleetView::Residents>(whole.members().size());
  for (const uint32_t position : members.residents) (*residents)[position] = 1;
  view.set_residents(std::move(residents));
  return view;
}

}  // namespace

bool IsModelName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxModelName && !ContainsControl(name) && IsUtf8(name);
}

ModelPools::Result ModelPools::Resolve(std::string_view name, int64_t now_ns, int64_t memory_ns) const {
  if (!decides()) return Result::kAll;
  const Name* const known = Find(name);
  if (known != nullptr && known->has_pool()) return Result::kPool;
  if (anything != nullptr && anything->in_rotation() > 0) return Result::kAnything;
  if (known != nullptr && known->IsRemembered(now_ns, memory_ns)) return Result::kAsleep;
  return names->any_said ? Result::kUnknown : Result::kAll;
}

std::shared_ptr<const FleetView> ModelPools::ViewOf(
    const std::shared_ptr<const FleetView>& whole, const Name& name) const {
  if (!names->decides) return whole;
  if (views[name.pool] != nullptr) return views[name.pool];
  return std::make_shared<const FleetView>(ViewOfMembers(*whole, names->pools[name.pool], 0));
}

ModelCatalog::ModelCatalog() : other_(std::make_shared<ModelDemand>()), memory_ns_(kMemoryNanos) {}

// The youngest: a worker that lists other names each time costs its own, and none that others are asked for.
bool ModelCatalog::MakeRoom(Idle* idle, bool of_label) {
  if (!std::exchange(idle->is_filled, true)) {
    std::vector<const std::pair<const std::string, std::shared_ptr<Known>>*> by_age;
    for (const auto& entry : known_) {
      if (IsIdle(entry.second)) by_age.push_back(&entry);
    }
    std::ranges::sort(by_age, {}, [](const auto* entry) { return entry->second->number; });
    for (const auto* const entry : by_age) {
      idle->names.push_back(entry->first);
      if (entry->second->demand != nullptr) idle->labelled.push_back(entry->first);
    }
  }
  std::vector<std::string>& names = of_label ? idle->labelled : idle->names;
  while (!names.empty()) {
    const auto found = known_.find(names.back());
    names.pop_back();
    if (found == known_.end() || !IsIdle(found->second)) continue;  // forgotten or listed meanwhile
    const bool has_label = found->second->demand != nullptr;
    if (of_label && !has_label) continue;
    if (has_label) --labels_;
    found->second->demand = nullptr;
    if (!of_label) known_.erase(found);
    return true;
  }
  return false;
}

std::shared_ptr<ModelCatalog::Known> ModelCatalog::Keep(
    const ModelCard& card, int64_t now_ns, Idle* idle, bool asked) {
  if (const auto found = known_.find(card.id); found != known_.end()) return found->second;
  if (known_.size() >= kMaxModelNames && !MakeRoom(idle, /*of_label=*/false) && !asked) return nullptr;
  auto known = std::make_shared<Known>();
  known->card = card;
  known->number = next_number_++;
  known->said_ns = now_ns;
  if (labels_ < kMaxModelLabels || MakeRoom(idle, /*of_label=*/true)) {
    ++labels_;
    known->demand = std::make_shared<ModelDemand>();
  }
  known_.emplace(card.id, known);
  return known;
}

std::shared_ptr<ModelDemand> ModelCatalog::DemandOf(const Known& known) const {
  if (known.demand != nullptr) return known.demand;
  const auto parent = known.card.parent.empty() ? known_.end() : known_.find(known.card.parent);
  return parent != known_.end() && parent->second->demand != nullptr ? parent->second->demand : other_;
}

bool ModelCatalog::Say(
    std::string_view base, std::span<const ModelCard> cards, int64_t now_ns, size_t* refused) {
  Host& host = hosts_[std::string(base)];
  const bool first = host.said_ns == 0 || std::exchange(host.is_awaited, false);
  const std::vector<Said> before = std::exchange(host.listed, {});
  host.said_ns = now_ns != 0 ? now_ns : 1;
  std::set<std::string_view> seen;
  Idle idle;
  size_t dropped = 0;
  for (const ModelCard& card : cards) {
    const bool fits = host.listed.size() < kMaxModelsPerWorker && IsModelName(card.id) &&
                      (card.parent.empty() || IsModelName(card.parent));
    if (!fits) {
      ++dropped;
      continue;
    }
    if (!seen.insert(card.id).second) continue;
    std::shared_ptr<Known> known = Keep(card, now_ns, &idle);
    if (known == nullptr) {
      ++dropped;
      continue;
    }
    host.listed.push_back({std::move(known), card});
  }
  if (refused != nullptr) *refused = dropped;
  const bool changed = first || host.listed != before;
  changed_ = changed_ || changed;
  return changed;
}

std::vector<std::string> ModelCatalog::NamesOf(std::string_view base) const {
  std::vector<std::string> names;
  const auto found = hosts_.find(base);
  if (found == hosts_.end()) return names;
  for (const Said& said : found->second.listed) names.push_back(said.card.id);
  return names;
}

bool ModelCatalog::Forget(std::string_view base, bool if_awaited) {
  const auto found = hosts_.find(base);
  if (found == hosts_.end() || (if_awaited && !found->second.is_awaited)) return false;
  hosts_.erase(found);
  changed_ = true;
  return true;
}

bool ModelCatalog::Await(std::string_view base, int64_t now_ns) {
  const auto [at, is_new] =
      hosts_.try_emplace(std::string(base), Host{.said_ns = now_ns, .is_awaited = true});
  changed_ = changed_ || is_new;
  return is_new;
}

void ModelCatalog::Expect(std::span<const std::string> names, int64_t memory_ns, bool spread) {
  memory_ns_ = memory_ns;
  spread_ = spread;
  for (const auto& [name, known] : known_) known->expected = false;
  Idle idle;
  for (const std::string& name : names) {
    if (!IsModelName(name)) continue;
    const std::shared_ptr<Known> known = Keep({.id = name}, kNeverNanos, &idle, /*asked=*/true);
    if (known != nullptr) known->expected = true;
  }
  changed_ = true;
}

// Hosts that left, and names that no host lists and nothing remembers.
void ModelCatalog::Prune(std::span<const Listed> workers, int64_t now_ns) {
  std::set<std::string_view> bases;
  for (const Listed& worker : workers) bases.insert(worker.base);
  std::erase_if(hosts_, [&](const auto& entry) {
    return !bases.contains(entry.first) && now_ns - entry.second.said_ns > kJoiningNanos;
  });
  std::erase_if(known_, [&](const auto& entry) {
    const Known& known = *entry.second;
    const bool idle = IsIdle(entry.second) && now_ns - known.said_ns > memory_ns_;
    if (idle && known.demand != nullptr) --labels_;
    return idle;
  });
}

std::shared_ptr<const ModelPools::Names> ModelCatalog::NamesOf(
    const FleetView& whole, std::span<const Listed> workers, int64_t now_ns) {
  const std::shared_ptr<const ModelPools::Names> last = names_;
  auto names = std::make_shared<ModelPools::Names>();
  names->other = other_;
  struct Use {
    size_t number;  // as names come in the fleet's order, so that routers with equal fleets list them alike
    Positions workers;
    std::vector<const ModelCard*> cards;  // of those that said one
  };
  std::map<std::shared_ptr<Known>, Use> uses;
  Positions awaited;
  Idle idle;
  for (uint32_t position = 0; position < workers.size(); ++position) {
    const Listed& worker = workers[position];
    const auto use = [&](const std::shared_ptr<Known>& known) -> Use& {
      Use& use = uses.try_emplace(known, Use{uses.size(), {}, {}}).first->second;
      if (use.workers.empty() || use.workers.back() != position) use.workers.push_back(position);
      return use;
    };
    const auto host = hosts_.find(worker.base);
    if (!worker.declared.empty()) {
      names->any_said = true;
      for (const std::string& name : worker.declared) {
        if (!IsModelName(name)) continue;
        use(Keep({.id = name}, now_ns, &idle, /*asked=*/true));
      }
    } else if (host != hosts_.end() && host->second.is_awaited) {
      awaited.push_back(position);
    } else if (host != hosts_.end()) {
      names->any_said = true;
      for (const Said& said : host->second.listed) use(said.known).cards.push_back(&said.card);
    } else {
      names->anything.push_back(position);
    }
  }
  for (const auto& [known, use] : uses) known->card = CardOf(known->card, use.cards);
  const size_t others = whole.members().size() - awaited.size();
  const bool all_list_the_same = std::ranges::all_of(uses, [&](const auto& entry) {
    return entry.second.workers.size() + names->anything.size() == others;
  });
  if (!names->any_said) names->anything = Merged(names->anything, awaited);
  const Positions anywhere =
      names->any_said && all_list_the_same ? Merged(names->anything, awaited) : names->anything;
  std::vector<const std::pair<const std::string, std::shared_ptr<Known>>*> ordered;
  for (const auto& entry : known_) ordered.push_back(&entry);
  std::ranges::sort(ordered, {}, [&](const auto* entry) {
    const auto used = uses.find(entry->second);
    return used != uses.end() ? std::pair(size_t{0}, uint64_t{used->second.number})
                              : std::pair(size_t{1}, entry->second->number);
  });
  const auto workers_of = [&](const std::string& model) -> const Positions* {
    const auto found = known_.find(model);
    const auto used = found != known_.end() ? uses.find(found->second) : uses.end();
    return used != uses.end() ? &used->second.workers : nullptr;
  };
  std::map<ModelPools::Members, uint32_t> pools;
  const auto pool_of = [&](ModelPools::Members members) {
    const auto number = static_cast<uint32_t>(names->pools.size());
    const auto [at, is_new] = pools.try_emplace(std::move(members), number);
    if (is_new) names->pools.push_back(at->first);
    return at->second;
  };
  for (const auto* entry : ordered) {
    Known& known = *entry->second;
    // Those that can load it.
    const Positions* const family =
        spread_ && !known.card.parent.empty() ? workers_of(known.card.parent) : nullptr;
    ModelPools::Name name{
        .card = known.card,
        .said_ns = known.said_ns,
        .expected = known.expected,
        .demand = DemandOf(known),
        .is_label = known.demand != nullptr};
    if (const auto used = uses.find(entry->second); used != uses.end()) {
      known.said_ns = name.said_ns = now_ns;
      name.workers = used->second.workers;
      ModelPools::Members members{.workers = Merged(name.workers, anywhere), .residents = {}};
      if (family != nullptr) {
        Positions all = Merged(members.workers, *family);
        if (all.size() != members.workers.size()) members.residents = name.workers;
        members.workers = std::move(all);
      }
      names->decides =
          names->decides || !members.residents.empty() || members.workers.size() != whole.members().size();
      name.pool = pool_of(std::move(members));
      if (name.card.parent.empty()) names->bases.push_back(entry->first);
    } else {
      const ModelPools::Name* const before =
          last != nullptr && last->by_name.contains(entry->first) ? &last->by_name.at(entry->first) : nullptr;
      if (before != nullptr && before->is_listed()) known.said_ns = name.said_ns = now_ns;
      if (!known.expected && now_ns - known.said_ns > memory_ns_) continue;
      // In an empty fleet, too.
      names->decides = names->decides || names->any_said || names->anything.empty();
      if (family != nullptr) name.pool = pool_of({.workers = Merged(*family, anywhere), .residents = {}});
    }
    names->order.push_back(entry->first);
    names->by_name.emplace(entry->first, std::move(name));
  }
  return names;
}

std::shared_ptr<const ModelPools> ModelCatalog::Publish(
    const FleetView& whole, std::span<const Listed> workers, const ModelPools* last, const Planner& planner,
    int64_t now_ns) {
  const auto declares_as_before = [&] {
    return std::ranges::equal(
        workers, declared_, [](const Listed& worker, const std::vector<std::string>& before) {
          return std::ranges::equal(worker.declared, before);
        });
  };
  if (changed_ || names_ == nullptr || membership_ != whole.membership_version() || !declares_as_before()) {
    declared_.clear();
    for (const Listed& worker : workers)
      declared_.emplace_back(worker.declared.begin(), worker.declared.end());
    names_ = NamesOf(whole, workers, now_ns);
    Prune(workers, now_ns);
    membership_ = whole.membership_version();
    changed_ = false;
  }
  auto pools = std::make_shared<ModelPools>();
  pools->names = names_;
  if (!names_->decides) return pools;
  const auto view_of = [&](const ModelPools::Members& members) {
    FleetView view = ViewOfMembers(whole, members, NumberOf(members.workers));
    // The same workers under another name, of which others have the adapter.
    for (const std::shared_ptr<const FleetView>& made : pools->views) {
      if (made == nullptr || made->pool() != view.pool()) continue;
      view.set_plan(made->shared_plan());
      return std::make_shared<const FleetView>(std::move(view));
    }
    // With a plan of the same members a policy only renews what depends on the pool or on health.
    const FleetView* before = nullptr;
    if (last != nullptr) {
      for (const std::shared_ptr<const FleetView>& candidate : last->views) {
        if (candidate != nullptr && candidate->pool() == view.pool()) before = candidate.get();
      }
    }
    if (before != nullptr && before->membership_version() == whole.membership_version()) {
      view.set_plan(before->shared_plan());
    }
    view.set_plan(planner ? planner(view) : nullptr);
    return std::make_shared<const FleetView>(std::move(view));
  };
  for (const ModelPools::Members& members : names_->pools) {
    const bool is_kept = pools->views.size() < kMaxModelPools;
    pools->views.push_back(is_kept ? view_of(members) : nullptr);
  }
  if (!names_->anything.empty()) {
    FleetView view = whole.PoolOf(names_->anything, 0);
    pools->anything = std::make_shared<const FleetView>(std::move(view));
  }
  return pools;
}

}  // namespace vllm_router
