// BodyEdits: what workers get instead of a client's body. No byte of it is copied; edits lie on top of each other:
//
//   client's body ── without what no client may say to a worker ──▶ with insertions ──▶ copy()
//
// Where two workers serve the request, each worker's copy is made from the body and insertions() (UpstreamPair).
// Belongs to one Request. One thread.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "routing/body_map.h"
#include "routing/body_patch.h"

namespace vllm_router {

class BodyEdits {
 public:
  // Where the body's members stand; null: no step has read them. They outlive the edits.
  void set_members(const BodyMap& members) { members_ = &members; }
  const BodyMap* members() const { return members_; }

  // `copy`, which outlives the edits, is the body without some members; if it lacks none, it is left alone.
  void Strip(const SplicedBody& copy) {
    if (copy.removed != 0) stripped_ = &copy;
  }
  // After Strip(); on top of earlier insertions. REQUIRES: as SplicedBody::Insert().
  void Insert(std::vector<BodyInsertion> insertions);
  // After Insert(), where one worker serves the request, whose body this is.
  void MakeCopy(std::string_view body);
  // Takes the insertion of this text back, and makes the copy once more.
  void Withdraw(std::string_view text, std::string_view body);
  // What comes back is edited as well, so that it must not be compressed.
  void set_edits_response() { edits_response_ = true; }
  bool edits_response() const { return edits_response_; }

  std::span<const BodyInsertion> insertions() const;
  // What one worker gets; null: the body as it is.
  const SplicedBody* copy() const;

 private:
  struct Inserted {
    std::vector<BodyInsertion> insertions;
    SplicedBody copy;
  };

  const BodyMap* members_ = nullptr;
  const SplicedBody* stripped_ = nullptr;
  std::unique_ptr<Inserted> inserted_;
  bool edits_response_ = false;
};

}  // namespace vllm_router
