#include "proxy/exchange/body_edits.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace vllm_router {

void BodyEdits::Insert(std::vector<BodyInsertion> insertions) {
  if (insertions.empty()) return;
  if (inserted_ == nullptr) inserted_ = std::make_unique<Inserted>();
  std::ranges::move(insertions, std::back_inserter(inserted_->insertions));
}

void BodyEdits::MakeCopy(std::string_view body) {
  if (inserted_ == nullptr) return;
  SplicedBody& copy = inserted_->copy = {};
  if (stripped_ != nullptr) {
    copy = *stripped_;
  } else {
    copy.Add(body);
  }
  for (const BodyInsertion& insertion : inserted_->insertions) copy.Insert(insertion);
}

void BodyEdits::Withdraw(std::string_view text, std::string_view body) {
  if (inserted_ == nullptr) return;
  std::erase_if(
      inserted_->insertions, [text](const BodyInsertion& each) { return each.text.data() == text.data(); });
  if (inserted_->insertions.empty()) {
    inserted_.reset();
  } else {
    MakeCopy(body);
  }
}

std::span<const BodyInsertion> BodyEdits::insertions() const {
  return inserted_ != nullptr ? std::span<const BodyInsertion>(inserted_->insertions)
                              : std::span<const BodyInsertion>();
}

const SplicedBody* BodyEdits::copy() const { return inserted_ != nullptr ? &inserted_->copy : stripped_; }

}  // namespace vllm_router
