#include "proxy/exchange/body_edits.h"

#include <utility>

namespace vllm_router {

void BodyEdits::Insert(std::vector<BodyInsertion> insertions) {
  if (insertions.empty()) return;
  inserted_ = std::make_unique<Inserted>(Inserted{.insertions = std::move(insertions), .copy = {}});
}

void BodyEdits::MakeCopy(std::string_view body) {
  if (inserted_ == nullptr) return;
  SplicedBody& copy = inserted_->copy;
  if (stripped_ != nullptr) {
    copy = *stripped_;
  } else {
    copy.Add(body);
  }
  for (const BodyInsertion& insertion : inserted_->insertions) copy.Insert(insertion);
}

std::span<const BodyInsertion> BodyEdits::insertions() const {
  return inserted_ != nullptr ? std::span<const BodyInsertion>(inserted_->insertions)
                              : std::span<const BodyInsertion>();
}

const SplicedBody* BodyEdits::copy() const { return inserted_ != nullptr ? &inserted_->copy : stripped_; }

}  // namespace vllm_router
