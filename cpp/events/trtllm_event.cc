#include "events/trtllm_event.h"

#include <simdjson.h>

#include <utility>

#include "hashing/hash.h"

namespace vllm_router {
namespace {

namespace dom = simdjson::dom;

constexpr uint64_t kMaxBlockTokens = 4096;
constexpr uint64_t kMaxGroup = UINT16_MAX;
constexpr uint64_t kMaxNumber = static_cast<uint64_t>(INT64_MAX);
constexpr size_t kMaxNameBytes = 1024;
constexpr size_t kDepth = 64;  // of brackets; an event has 7

bool ReadUnsigned(dom::element value, uint64_t most, uint64_t* number) {
  *number = 0;
  return value.get_uint64().get(*number) == simdjson::SUCCESS && *number <= most;
}

// An integer's bits.
bool ReadInteger(dom::element value, uint64_t* bits) {
  if (value.get_uint64().get(*bits) == simdjson::SUCCESS) return true;
  int64_t number;
  if (value.get_int64().get(number) != simdjson::SUCCESS) return false;
  *bits = static_cast<uint64_t>(number);
  return true;
}

bool ReadName(dom::element value, std::string_view* name) {
  return value.get_string().get(*name) == simdjson::SUCCESS && name->size() <= kMaxNameBytes;
}

bool ReadHash(dom::element value, EngineHash* hash) {
  if (ReadInteger(value, hash)) return true;
  std::string_view name;
  if (!ReadName(value, &name)) return false;
  *hash = Xxh3(name);
  return true;
}

KvMedium MediumOf(uint64_t cache_level) {
  constexpr KvMedium kMedia[] = {KvMedium::kGpu, KvMedium::kHost};
  return cache_level < std::size(kMedia) ? kMedia[cache_level] : KvMedium::kUnknown;
}

// Calls `read` with each member's name and value, unless the value is null, until it returns false.
template <typename Read>
bool ReadMembers(dom::element value, Read read) {
  dom::object object;
  if (value.get_object().get(object) != simdjson::SUCCESS) return false;
  for (const dom::key_value_pair& member : object) {
    if (!member.value.is_null() && !read(std::string_view(member.key), member.value)) return false;
  }
  return true;
}

template <typename Read>
bool ReadElements(dom::element value, Read read) {
  dom::array array;
  if (value.get_array().get(array) != simdjson::SUCCESS) return false;
  for (const dom::element element : array) {
    if (!read(element)) return false;
  }
  return true;
}

// What is told of a block that is stored. The lists are read once the rest is known.
struct Block {
  std::optional<EngineHash> hash;
  std::optional<dom::element> tokens;
  std::optional<dom::element> media;
  KvMedium medium = KvMedium::kGpu;
  std::optional<int64_t> lora_id;
  std::string_view lora_name;
  std::string_view cache_salt;
};

bool ReadBlock(dom::element value, Block* block) {
  return ReadMembers(
             value,
             [block](std::string_view name, dom::element member) {
               uint64_t number;
               if (name == "block_hash") {
                 if (!ReadHash(member, &number)) return false;
                 block->hash = number;
               } else if (name == "tokens") {
                 block->tokens = member;
               } else if (name == "cache_level") {
                 if (!ReadUnsigned(member, kMaxNumber, &number)) return false;
                 block->medium = MediumOf(number);
               } else if (name == "lora_id") {
                 if (!ReadInteger(member, &number)) return false;
                 block->lora_id = static_cast<int64_t>(number);
               } else if (name == "lora_name") {
                 return ReadName(member, &block->lora_name);
               } else if (name == "cache_salt") {
                 return ReadName(member, &block->cache_salt);
               } else if (name == "mm_keys") {
                 block->media = member;
               }
               return true;
             }) &&
         block->hash && block->tokens;
}

// Reads one event at a time. After a wrong type what was read of it is taken back.
class EventReader {
 public:
  explicit EventReader(TrtllmEvent* event) : event_(*event), batch_(event->batch) {}

  void Read(dom::element value) {
    KvBatch batch = std::move(batch_);
    batch.Clear();
    event_ = {.batch = std::move(batch)};
    if (ReadHead(value) && data_ && ReadType() && ReadData()) return;
    batch_.Clear();
    const KvDrop why = has_type_ && kind_ == Kind::kNone ? KvDrop::kUnknownTag : KvDrop::kMalformedEvent;
    ++batch_.dropped[static_cast<size_t>(why)];
    const bool is_known = is_whose_known_ && event_.number;
    event_ = {
        .number = is_known ? event_.number : std::nullopt,
        .rank = is_known ? event_.rank : 0,
        .batch = std::move(batch_)};
  }

 private:
  using Kind = TrtllmEvent::Kind;

  bool ReadHead(dom::element value) {
    is_whose_known_ = true;
    return ReadMembers(
               value,
               [this](std::string_view name, dom::element member) {
                 uint64_t number;
                 if (name == "event_id") {
                   event_.number.reset();
                   if (!ReadUnsigned(member, kMaxNumber, &number)) return Unknown();
                   event_.number = number;
                 } else if (name == "attention_dp_rank") {
                   if (!ReadUnsigned(member, kMaxKvRanks - 1, &number)) return Unknown();
                   event_.rank = static_cast<uint32_t>(number);
                 } else if (name == "window_size") {
                   if (member.get_int64().get(event_.window) != simdjson::SUCCESS) is_window_known_ = false;
                 } else if (name == "layer_group_id") {
                   if (!ReadUnsigned(member, kMaxGroup, &number)) is_group_known_ = false;
                   group_ = static_cast<uint16_t>(number);
                 } else if (name == "data") {
                   data_ = member;
                 }
                 return true;
               }) &&
           event_.number && is_window_known_ && is_group_known_;
  }

  // The members behind it are not read, so another of them may be wrong too.
  bool Unknown() {
    is_whose_known_ = false;
    return false;
  }

  bool ReadType() {
    return ReadMembers(
               *data_,
               [this](std::string_view name, dom::element member) {
                 std::string_view type;
                 if (name != "type") return true;
                 has_type_ = ReadName(member, &type);
                 kind_ = type == "created"   ? Kind::kCreated
                         : type == "stored"  ? Kind::kStored
                         : type == "removed" ? Kind::kRemoved
                         : type == "updated" ? Kind::kUpdated
                                             : Kind::kNone;
                 return has_type_;
               }) &&
           kind_ != Kind::kNone;
  }

  bool ReadData() {
    event_.kind = kind_;
    switch (kind_) {
      case Kind::kCreated:
        return ReadCreated();
      case Kind::kStored:
        return ReadStored();
      case Kind::kRemoved:
        return ReadRemoved();
      case Kind::kUpdated:
        return ReadUpdated();
      case Kind::kNone:
        break;
    }
    return false;
  }

  bool ReadCreated() {
    return ReadMembers(*data_, [this](std::string_view name, dom::element member) {
      if (name != "num_blocks_per_cache_level") return true;
      event_.gpu_blocks = 0;
      bool is_first = true;
      return ReadElements(member, [this, &is_first](dom::element level) {
        uint64_t blocks;
        if (!ReadUnsigned(level, kMaxNumber, &blocks)) return false;
        if (std::exchange(is_first, false)) event_.gpu_blocks = blocks;
        return true;
      });
    });
  }

  bool ReadStored() {
    std::optional<EngineHash> parent;
    std::optional<dom::element> blocks;
    const bool read = ReadMembers(*data_, [&](std::string_view name, dom::element member) {
      EngineHash hash;
      if (name == "parent_hash") {
        if (!ReadHash(member, &hash)) return false;
        parent = hash;
      } else if (name == "blocks") {
        blocks = member;
      } else if (name == "lora_name") {
        return ReadName(member, &lora_name_);
      }
      return true;
    });
    return read && blocks && ReadBlocks(*blocks, parent) && event_.full_blocks + event_.partial_blocks != 0;
  }

  bool ReadBlocks(dom::element blocks, std::optional<EngineHash> parent) {
    return ReadElements(blocks, [this, &parent](dom::element value) {
      if (event_.partial_blocks != 0) {
        ++event_.partial_blocks;
        return true;
      }
      Block block;
      dom::array tokens;
      if (!ReadBlock(value, &block) || block.tokens->get_array().get(tokens) != simdjson::SUCCESS)
        return false;
      const size_t count = CountOf(tokens);
      if (count == 0 || count > kMaxBlockTokens) return false;
      if (event_.block_size == 0) event_.block_size = static_cast<uint32_t>(count);
      if (count > event_.block_size) return false;
      if (count < event_.block_size) {
        event_.partial_blocks = 1;
        return true;
      }
      if (batch_.events.empty() || batch_.events.back().medium != block.medium) BeginStored(block, parent);
      KvEvent& event = batch_.events.back();
      ++event_.full_blocks;
      parent = *block.hash;
      batch_.hashes.push_back(*block.hash);
      const uint32_t number = event.hash_count++;
      event.token_count += event_.block_size;
      const bool read = ReadTokens(tokens, number) && (!block.media || ReadMedia(*block.media, number));
      event.extra_count = static_cast<uint32_t>(batch_.extras.size()) - event.extra_begin;
      return read;
    });
  }

  // simdjson's count of a long array saturates.
  static size_t CountOf(dom::array array) {
    size_t count = 0;
    for ([[maybe_unused]] const dom::element element : array) {
      if (++count > kMaxBlockTokens) break;
    }
    return count;
  }

  void BeginStored(const Block& block, std::optional<EngineHash> parent) {
    batch_.events.push_back(
        {.kind = KvEventKind::kStored,
         .medium = block.medium,
         .group = group_,
         .block_size = event_.block_size,
         .parent = parent,
         .lora_id = block.lora_id,
         .lora_name = block.lora_name.empty() ? lora_name_ : block.lora_name,
         .cache_salt = block.cache_salt,
         .hash_begin = static_cast<uint32_t>(batch_.hashes.size()),
         .token_begin = static_cast<uint32_t>(batch_.tokens.size()),
         .extra_begin = static_cast<uint32_t>(batch_.extras.size())});
  }

  // A token with an extra id is part of a picture; the id is the media's offset, behind an empty name.
  bool ReadTokens(dom::array tokens, uint32_t block) {
    uint64_t before = 0;
    for (const dom::element token : tokens) {
      std::optional<uint64_t> id;
      uint64_t extra = 0;
      const bool read = ReadMembers(token, [&](std::string_view name, dom::element member) {
        uint64_t number;
        if (name == "token_id") {
          if (!ReadUnsigned(member, UINT32_MAX, &number)) return false;
          id = number;
        } else if (name == "token_extra_id") {
          return ReadInteger(member, &extra);
        }
        return true;
      });
      if (!read || !id) return false;
      batch_.tokens.push_back(static_cast<uint32_t>(*id));
      if (extra != 0 && extra != before) {
        batch_.extras.push_back(
            {.block = block, .kind = KvExtraKey::Kind::kMedia, .offset = static_cast<int64_t>(extra)});
      }
      before = extra;
    }
    return true;
  }

  bool ReadMedia(dom::element keys, uint32_t block) {
    return ReadElements(keys, [this, block](dom::element value) {
      KvExtraKey key{.block = block, .kind = KvExtraKey::Kind::kMedia};
      bool has_name = false;
      const bool read = ReadMembers(value, [&](std::string_view name, dom::element member) {
        uint64_t offset;
        if (name == "hash") return has_name = ReadName(member, &key.name);
        if (name != "start_offset") return true;
        if (!ReadInteger(member, &offset)) return false;
        key.offset = static_cast<int64_t>(offset);
        return true;
      });
      if (read && has_name) batch_.extras.push_back(key);
      return read && has_name;
    });
  }

  bool ReadRemoved() {
    return ReadMembers(
               *data_,
               [this](std::string_view name, dom::element member) {
                 if (name != "block_hashes") return true;
                 batch_.hashes.clear();
                 return ReadElements(member, [this](dom::element value) {
                   EngineHash hash;
                   if (!ReadHash(value, &hash)) return false;
                   batch_.hashes.push_back(hash);
                   return true;
                 });
               }) &&
           AddNames(KvEventKind::kRemoved, KvMedium::kGpu);
  }

  // An event about all of the batch's hashes.
  bool AddNames(KvEventKind kind, KvMedium medium) {
    batch_.events.push_back(
        {.kind = kind,
         .medium = medium,
         .group = group_,
         .hash_count = static_cast<uint32_t>(batch_.hashes.size())});
    return !batch_.hashes.empty();
  }

  bool ReadUpdated() {
    std::optional<EngineHash> hash;
    std::optional<uint64_t> before;
    std::optional<uint64_t> now;
    const bool read = ReadMembers(*data_, [&](std::string_view name, dom::element member) {
      EngineHash value;
      if (name == "block_hash") {
        if (!ReadHash(member, &value)) return false;
        hash = value;
      } else if (name == "cache_level") {
        return ReadMembers(member, [&](std::string_view which, dom::element level) {
          if (which != "old_value" && which != "new_value") return true;
          uint64_t number;
          if (!ReadUnsigned(level, kMaxNumber, &number)) return false;
          (which == "old_value" ? before : now) = number;
          return true;
        });
      }
      return true;
    });
    if (!read || !hash) return false;
    // Another of the block's properties changed.
    if (!before || !now || *before == *now) return true;
    batch_.hashes.push_back(*hash);
    return AddNames(KvEventKind::kStored, MediumOf(*now)) &&
           AddNames(KvEventKind::kRemoved, MediumOf(*before));
  }

  TrtllmEvent& event_;
  KvBatch& batch_;
  std::optional<dom::element> data_;
  std::string_view lora_name_;
  uint16_t group_ = 0;
  Kind kind_ = Kind::kNone;
  bool has_type_ = false;
  bool is_whose_known_ = false;
  bool is_window_known_ = true;
  bool is_group_known_ = true;
};

}  // namespace

struct TrtllmReader::Impl {
  struct Rest {
    dom::array::iterator next;
    dom::array::iterator end;
  };
  dom::parser parser;
  std::optional<Rest> rest;
};

TrtllmReader::TrtllmReader() : impl_(std::make_unique<Impl>()) {}
TrtllmReader::~TrtllmReader() = default;

bool TrtllmReader::Open(std::string_view response) {
  dom::parser& parser = impl_->parser;
  impl_->rest.reset();
  if (parser.capacity() > kKeptBytes) parser = dom::parser();
  if (response.size() > parser.capacity() && parser.allocate(response.size(), kDepth) != simdjson::SUCCESS)
    return false;
  dom::array events;
  if (parser.parse(response.data(), response.size()).get_array().get(events) != simdjson::SUCCESS)
    return false;
  impl_->rest = {events.begin(), events.end()};
  return true;
}

bool TrtllmReader::Next(TrtllmEvent* event) {
  if (!impl_->rest || impl_->rest->next == impl_->rest->end) return false;
  EventReader(event).Read(*impl_->rest->next);
  ++impl_->rest->next;
  return true;
}

}  // namespace vllm_router
