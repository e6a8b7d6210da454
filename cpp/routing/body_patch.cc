#include "routing/body_patch.h"

#include <algorithm>
#include <functional>

namespace vllm_router {
namespace {

bool Matches(std::string_view name, std::string_view pattern) {
  if (!pattern.ends_with('*')) return name == pattern;
  return name.starts_with(pattern.substr(0, pattern.size() - 1));
}

bool Contains(std::string_view whole, std::string_view part) {
  const std::less_equal<const char*> before;
  return before(whole.data(), part.data()) && before(part.data() + part.size(), whole.data() + whole.size());
}

// The kept members of a body, neighbors as one piece.
class Runs {
 public:
  explicit Runs(SplicedBody* out) : out_(out) {}

  void Keep(const BodyMap::Member& member) {
    if (begin_ == nullptr) begin_ = member.name.data() - 1;
    end_ = member.value.data() + member.value.size();
  }
  void Break() {
    if (begin_ == nullptr) return;
    if (out_->pieces.size() > 1) out_->Add(",");
    out_->Add({begin_, static_cast<size_t>(end_ - begin_)});
    begin_ = nullptr;
  }

 private:
  SplicedBody* const out_;
  const char* begin_ = nullptr;
  const char* end_ = nullptr;
};

}  // namespace

void SplicedBody::Add(std::string_view piece) {
  if (piece.empty()) return;
  pieces.push_back(piece);
  size += piece.size();
}

void SplicedBody::Insert(const BodyInsertion& insertion) {
  const std::less<const char*> before;
  for (auto piece = pieces.begin(); piece != pieces.end(); ++piece) {
    const char* const end = piece->data() + piece->size();
    // Kept pieces begin with a member's name, or are the whole body: no position is their first byte.
    if (!before(piece->data(), insertion.at) || before(end, insertion.at)) continue;
    std::string_view rest(insertion.at, static_cast<size_t>(end - insertion.at));
    piece->remove_suffix(rest.size());
    rest.remove_prefix(insertion.removed);
    if (!insertion.text.empty()) piece = pieces.insert(piece + 1, insertion.text);
    if (!rest.empty()) pieces.insert(piece + 1, rest);
    size += insertion.text.size();
    size -= insertion.removed;
    return;
  }
}

std::string SplicedBody::Joined() const {
  std::string joined;
  joined.reserve(size);
  for (const std::string_view piece : pieces) joined += piece;
  return joined;
}

void BodyPatch::Remove(std::string_view name) {
  if (std::ranges::find(removed_, name) == removed_.end()) removed_.push_back(name);
}

void BodyPatch::Insert(std::string_view name, std::string_view value) {
  AddText(value, StartInsertion(name));
}

void BodyPatch::InsertBytes(std::string_view name, std::string_view value) {
  AddBytes(value, StartInsertion(name));
}

void BodyPatch::InsertPatched(std::string_view name, const BodyMap& object, const BodyPatch& patch) {
  const SplicedBody spliced = patch.Apply(object);
  Insertion* const insertion = StartInsertion(name);
  for (const std::string_view piece : spliced.pieces) {
    if (Contains(object.body(), piece)) {
      AddBytes(piece, insertion);
    } else {
      AddText(piece, insertion);
    }
  }
}

BodyPatch::Insertion* BodyPatch::StartInsertion(std::string_view name) {
  Remove(name);
  std::erase_if(insertions_, [name](const Insertion& earlier) { return earlier.name == name; });
  insertions_.push_back({name, {}});
  Insertion* const insertion = &insertions_.back();
  AddText("\"", insertion);
  AddText(name, insertion);
  AddText("\":", insertion);
  return insertion;
}

void BodyPatch::AddText(std::string_view text, Insertion* insertion) {
  std::vector<Piece>& pieces = insertion->pieces;
  const bool continues = !pieces.empty() && pieces.back().bytes == nullptr &&
                         pieces.back().at + pieces.back().size == text_.size();
  if (continues) {
    pieces.back().size += text.size();
  } else {
    pieces.push_back({nullptr, text_.size(), text.size()});
  }
  text_ += text;
}

void BodyPatch::AddBytes(std::string_view bytes, Insertion* insertion) {
  insertion->pieces.push_back({bytes.data(), 0, bytes.size()});
}

std::string_view BodyPatch::ViewOf(const Piece& piece) const {
  if (piece.bytes != nullptr) return {piece.bytes, piece.size};
  return std::string_view(text_).substr(piece.at, piece.size);
}

bool BodyPatch::Removes(const BodyMap::Member& member) const {
  std::string scratch;
  const std::optional<std::string_view> name = member.Name(&scratch);
  return name &&
         std::ranges::any_of(removed_, [&](std::string_view pattern) { return Matches(*name, pattern); });
}

SplicedBody BodyPatch::Apply(const BodyMap& body, std::span<const BodyInsertion> insertions) const {
  SplicedBody out;
  out.pieces.reserve(2 * insertions_.size() + 8);
  out.Add("{");
  for (const Insertion& insertion : insertions_) {
    if (out.pieces.size() > 1) out.Add(",");
    for (const Piece& piece : insertion.pieces) out.Add(ViewOf(piece));
  }
  Runs runs(&out);
  for (const BodyMap::Member& member : body.members()) {
    if (Removes(member)) {
      ++out.removed;
      runs.Break();
    } else {
      runs.Keep(member);
    }
  }
  runs.Break();
  out.Add("}");
  if (insertions_.empty() && out.removed == 0) {
    out.pieces.assign(1, body.body());
    out.size = body.body().size();
  }
  for (const BodyInsertion& insertion : insertions) out.Insert(insertion);
  return out;
}

}  // namespace vllm_router
