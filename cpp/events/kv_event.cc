#include "events/kv_event.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/text.h"
#include "events/msgpack_cursor.h"
#include "hashing/hash.h"

namespace vllm_router {
namespace {

constexpr uint64_t kMaxBlockTokens = 4096;
constexpr uint64_t kMaxGroup = UINT16_MAX;
constexpr size_t kMaxEventNameBytes = 1024;
constexpr uint32_t kTokensAtOnce = 64;

enum class Field : uint8_t {
  kHashes,
  kParent,
  kTokens,
  kBlockSize,
  kLoraId,
  kMedium,
  kLoraName,
  kExtraKeys,
  kGroup,
  kSpecKind,
  kLocality,
  kCacheSalt,
  kIgnored,
};

// The fields of an event that is an array, behind its tag.
constexpr Field kStoredFields[] = {Field::kHashes, Field::kParent,  Field::kTokens,   Field::kBlockSize,
                                   Field::kLoraId, Field::kMedium,  Field::kLoraName, Field::kExtraKeys,
                                   Field::kGroup,  Field::kSpecKind};
constexpr Field kRemovedFields[] = {Field::kHashes, Field::kMedium, Field::kGroup};

struct FieldName {
  std::string_view name;
  Field field;
};
constexpr FieldName kFieldNames[] = {
    {"block_hashes", Field::kHashes}, {"parent_block_hash", Field::kParent},
    {"token_ids", Field::kTokens},    {"block_size", Field::kBlockSize},
    {"lora_id", Field::kLoraId},      {"medium", Field::kMedium},
    {"lora_name", Field::kLoraName},  {"extra_keys", Field::kExtraKeys},
    {"group_idx", Field::kGroup},     {"kv_cache_spec_kind", Field::kSpecKind},
    {"locality", Field::kLocality},   {"cache_salt", Field::kCacheSalt}};

Field FieldByName(std::string_view name) {
  for (const FieldName& known : kFieldNames) {
    if (known.name == name) return known.field;
  }
  return Field::kIgnored;
}

std::optional<KvEventKind> KindByTag(std::string_view tag) {
  if (tag == "BlockStored") return KvEventKind::kStored;
  if (tag == "BlockRemoved") return KvEventKind::kRemoved;
  if (tag == "AllBlocksCleared") return KvEventKind::kCleared;
  return std::nullopt;
}

bool ReadName(MsgpackCursor* cursor, std::string_view* name) {
  return cursor->ReadString(name) && name->size() <= kMaxEventNameBytes;
}

EngineHash HashOfBytes(std::string_view bytes) {
  EngineHash hash = 0;
  const size_t taken = std::min<size_t>(bytes.size(), sizeof hash);
  for (const char byte : bytes.substr(bytes.size() - taken)) hash = hash << 8 | static_cast<uint8_t>(byte);
  return hash;
}

bool ReadHash(MsgpackCursor* cursor, EngineHash* hash) {
  std::string_view bytes;
  if (cursor->ReadInteger(hash)) return true;
  if (cursor->ReadBinary(&bytes)) {
    *hash = HashOfBytes(bytes);
    return true;
  }
  if (!cursor->ReadString(&bytes)) return false;
  *hash = Xxh3(bytes);
  return true;
}

// Reads one event at a time into a batch. After a wrong type the batch is as it was before.
class EventReader {
 public:
  EventReader(MsgpackCursor* cursor, KvBatch* batch) : cursor_(cursor), batch_(batch) {}

  // False: the payload's structure is broken.
  bool Read() {
    const MsgpackCursor begin = *cursor_;
    const size_t hashes = batch_->hashes.size();
    const size_t tokens = batch_->tokens.size();
    const size_t extras = batch_->extras.size();
    event_ = {};
    event_.hash_begin = static_cast<uint32_t>(hashes);
    event_.token_begin = static_cast<uint32_t>(tokens);
    event_.extra_begin = static_cast<uint32_t>(extras);
    kind_.reset();
    has_tag_ = false;
    const bool is_map = cursor_->Peek() == MsgpackCursor::Type::kMap;
    const bool read = is_map ? ReadMap() : ReadArray();
    if (read && kind_) {
      event_.kind = *kind_;
      event_.hash_count = static_cast<uint32_t>(batch_->hashes.size() - hashes);
      event_.token_count = static_cast<uint32_t>(batch_->tokens.size() - tokens);
      event_.extra_count = static_cast<uint32_t>(batch_->extras.size() - extras);
      if (event_.kind == KvEventKind::kCleared || event_.hash_count != 0) {
        batch_->events.push_back(event_);
        return true;
      }
    }
    batch_->hashes.resize(hashes);
    batch_->tokens.resize(tokens);
    batch_->extras.resize(extras);
    const bool is_unknown = has_tag_ && !kind_;
    ++batch_->dropped[static_cast<size_t>(is_unknown ? KvDrop::kUnknownTag : KvDrop::kMalformedEvent)];
    *cursor_ = begin;
    return cursor_->Skip();
  }

 private:
  bool ReadTag() {
    std::string_view tag;
    if (!ReadName(cursor_, &tag)) return false;
    has_tag_ = true;
    kind_ = KindByTag(tag);
    return kind_.has_value();
  }

  bool ReadArray() {
    uint32_t count;
    if (!cursor_->ReadArray(&count) || count == 0 || !ReadTag()) return false;
    std::span<const Field> fields;
    if (*kind_ == KvEventKind::kStored) fields = kStoredFields;
    if (*kind_ == KvEventKind::kRemoved) fields = kRemovedFields;
    for (size_t i = 0; i + 1 < count; ++i) {
      const bool read = i < fields.size() ? ReadField(fields[i]) : cursor_->Skip();
      if (!read) return false;
    }
    return true;
  }

  bool ReadMap() {
    uint32_t count;
    if (!cursor_->ReadMap(&count)) return false;
    for (; count != 0; --count) {
      std::string_view name;
      if (!ReadName(cursor_, &name)) return false;
      const bool read = name == "type" ? ReadTag() : ReadField(FieldByName(name));
      if (!read) return false;
    }
    return true;
  }

  // Nil is the default of every field. A field that is there twice is malformed only if it is a list, whose
  // elements would add up.
  bool ReadField(Field field) {
    if (cursor_->ReadNil()) return true;
    uint64_t number;
    std::string_view name;
    switch (field) {
      case Field::kHashes:
        return batch_->hashes.size() == event_.hash_begin && ReadHashes();
      case Field::kParent: {
        EngineHash parent;
        if (!ReadHash(cursor_, &parent)) return false;
        event_.parent = parent;
        return true;
      }
      case Field::kTokens:
        return batch_->tokens.size() == event_.token_begin && ReadTokens();
      case Field::kBlockSize:
        if (!cursor_->ReadUnsigned(kMaxBlockTokens, &number)) return false;
        event_.block_size = static_cast<uint32_t>(number);
        return true;
      case Field::kLoraId:
        if (!cursor_->ReadInteger(&number)) return false;
        event_.lora_id = static_cast<int64_t>(number);
        return true;
      case Field::kMedium:
        if (!ReadName(cursor_, &name)) return false;
        event_.medium = KvMediumByName(name);
        return true;
      case Field::kLoraName:
        // Here SGLang has a map of options.
        return cursor_->Peek() == MsgpackCursor::Type::kMap ? ReadOptions()
                                                            : ReadName(cursor_, &event_.lora_name);
      case Field::kExtraKeys:
        return batch_->extras.size() == event_.extra_begin && ReadExtraKeys();
      case Field::kGroup:
        if (!cursor_->ReadUnsigned(kMaxGroup, &number)) return false;
        event_.group = static_cast<uint16_t>(number);
        return true;
      case Field::kSpecKind:
        if (!ReadName(cursor_, &name)) return false;
        event_.spec_kind =
            name == "full_attention" || name == "mla_attention" || name == "sink_full_attention"
                ? KvSpecKind::kFull
                : KvSpecKind::kOther;
        return true;
      case Field::kLocality:
        if (!ReadName(cursor_, &name)) return false;
        event_.is_remote = !EqualsIgnoreCase(name, "local");
        return true;
      case Field::kCacheSalt:
        return ReadName(cursor_, &event_.cache_salt);
      case Field::kIgnored:
        break;
    }
    return cursor_->Skip();
  }

  bool ReadHashes() {
    uint32_t count;
    if (!cursor_->ReadArray(&count)) return false;
    for (; count != 0; --count) {
      EngineHash hash;
      if (!ReadHash(cursor_, &hash)) return false;
      batch_->hashes.push_back(hash);
    }
    return true;
  }

  bool ReadTokens() {
    uint32_t count;
    if (!cursor_->ReadArray(&count)) return false;
    std::vector<uint32_t>& tokens = batch_->tokens;
    while (count != 0) {
      const size_t before = tokens.size();
      tokens.resize(before + std::min(count, kTokensAtOnce));
      const size_t read = cursor_->ReadSmall(std::span(tokens).subspan(before));
      tokens.resize(before + read);
      count -= static_cast<uint32_t>(read);
      if (count != 0 && read < kTokensAtOnce) {
        if (!ReadToken()) return false;
        --count;
      }
    }
    return true;
  }

  bool ReadToken() {
    uint64_t id;
    uint32_t pair = 0;
    const bool is_pair = cursor_->ReadArray(&pair);
    if (is_pair && pair == 0) return false;
    if (!cursor_->ReadUnsigned(UINT32_MAX, &id)) return false;
    batch_->tokens.push_back(static_cast<uint32_t>(id));
    if (!is_pair) return true;
    event_.is_bigram = true;
    for (; pair != 1; --pair) {
      if (!cursor_->Skip()) return false;
    }
    return true;
  }

  bool ReadOptions() {
    uint32_t count;
    if (!cursor_->ReadMap(&count)) return false;
    for (; count != 0; --count) {
      std::string_view name;
      if (!ReadName(cursor_, &name)) return false;
      if (!ReadField(name == "cache_salt" ? Field::kCacheSalt : Field::kIgnored)) return false;
    }
    return true;
  }

  // For each block nil, or an array of a name, of bytes, or of [identifier, offset].
  bool ReadExtraKeys() {
    uint32_t blocks;
    if (!cursor_->ReadArray(&blocks)) return false;
    for (uint32_t block = 0; block < blocks; ++block) {
      if (cursor_->ReadNil()) continue;
      uint32_t keys;
      if (!cursor_->ReadArray(&keys)) return false;
      for (; keys != 0; --keys) {
        if (!ReadExtraKey(block)) return false;
      }
    }
    return true;
  }

  bool ReadExtraKey(uint32_t block) {
    KvExtraKey key{.block = block};
    uint32_t parts;
    if (cursor_->ReadBinary(&key.name)) {
      key.kind = KvExtraKey::Kind::kBytes;
    } else if (cursor_->ReadArray(&parts)) {
      uint64_t offset = 0;
      if (parts == 0 || !ReadName(cursor_, &key.name)) return false;
      if (parts > 1 && !cursor_->ReadInteger(&offset)) return false;
      for (uint32_t i = 2; i < parts; ++i) {
        if (!cursor_->Skip()) return false;
      }
      key.kind = KvExtraKey::Kind::kMedia;
      key.offset = static_cast<int64_t>(offset);
    } else if (!ReadName(cursor_, &key.name)) {
      return false;
    }
    batch_->extras.push_back(key);
    return true;
  }

  MsgpackCursor* const cursor_;
  KvBatch* const batch_;
  KvEvent event_;
  std::optional<KvEventKind> kind_;
  bool has_tag_ = false;
};

bool ReadEvents(MsgpackCursor* cursor, KvBatch* batch) {
  uint32_t count;
  if (!cursor->ReadArray(&count)) return false;
  EventReader reader(cursor, batch);
  for (; count != 0; --count) {
    if (!reader.Read()) return false;
  }
  return true;
}

// Nil and absent are the same.
bool ReadRank(MsgpackCursor* cursor, std::optional<int64_t>* rank) {
  if (cursor->ReadNil()) return true;
  uint64_t bits;
  if (!cursor->ReadInteger(&bits)) return false;
  *rank = static_cast<int64_t>(bits);
  return true;
}

bool ReadBatchMap(MsgpackCursor* cursor, KvBatch* batch) {
  uint32_t count;
  if (!cursor->ReadMap(&count)) return false;
  bool has_events = false;
  for (; count != 0; --count) {
    std::string_view name;
    if (!cursor->ReadString(&name)) return false;
    bool read;
    if (name == "events" && !has_events) {
      has_events = read = ReadEvents(cursor, batch);
    } else if (name == "ts") {
      read = cursor->ReadNumber(&batch->seconds);
    } else if (name == "data_parallel_rank") {
      read = ReadRank(cursor, &batch->rank);
    } else {
      read = name != "events" && cursor->Skip();
    }
    if (!read) return false;
  }
  return has_events;
}

bool ReadBatchArray(MsgpackCursor* cursor, KvBatch* batch) {
  uint32_t count;
  if (!cursor->ReadArray(&count) || count < 2) return false;
  if (!cursor->ReadNumber(&batch->seconds) || !ReadEvents(cursor, batch)) return false;
  if (count > 2 && !ReadRank(cursor, &batch->rank)) return false;
  for (uint32_t i = 3; i < count; ++i) {
    if (!cursor->Skip()) return false;
  }
  return true;
}

// Field by field, as they are decoded: what a field contains may be nested as deep as Skip() enters.
bool SkipEvents(MsgpackCursor* cursor) {
  uint32_t events;
  if (!cursor->ReadArray(&events)) return false;
  for (; events != 0; --events) {
    uint32_t count = 0;
    uint64_t values = 1;
    if (cursor->ReadMap(&count)) {
      values = uint64_t{2} * count;
    } else if (cursor->ReadArray(&count)) {
      values = count;
    }
    for (; values != 0; --values) {
      if (!cursor->Skip()) return false;
    }
  }
  return true;
}

// Above this a time is in milliseconds: as seconds it would be in the year 5138.
constexpr double kMaxSeconds = 1e11;

}  // namespace

KvMedium KvMediumByName(std::string_view name) {
  struct Named {
    std::string_view name;
    KvMedium medium;
  };
  static constexpr Named kNames[] = {
      {"gpu", KvMedium::kGpu},
      {"device", KvMedium::kGpu},
      {"cpu", KvMedium::kHost},
      {"cpu_pinned", KvMedium::kHost},
      {"cpu_tier1", KvMedium::kHost},
      {"host", KvMedium::kHost},
      {"cpu_tier2", KvMedium::kExternal},
      {"disk", KvMedium::kExternal},
      {"nvme", KvMedium::kExternal},
      {"storage", KvMedium::kExternal},
      {"external", KvMedium::kPool},
      {"network", KvMedium::kPool},
      {"remote", KvMedium::kPool},
      {"shared", KvMedium::kPool}};
  for (const Named& known : kNames) {
    if (EqualsIgnoreCase(known.name, name)) return known.medium;
  }
  return KvMedium::kUnknown;
}

std::string_view KvMediumName(KvMedium medium) {
  constexpr std::string_view kNames[] = {"gpu", "host", "external", "pool", "unknown"};
  return kNames[static_cast<size_t>(medium)];
}

std::string_view KvDropName(KvDrop drop) {
  constexpr std::string_view kNames[] = {"malformed_event", "unknown_tag"};
  static_assert(std::size(kNames) == kKvDropCount);
  return kNames[static_cast<size_t>(drop)];
}

void KvBatch::Clear() {
  seconds = 0;
  rank.reset();
  events.clear();
  hashes.clear();
  tokens.clear();
  extras.clear();
  dropped.fill(0);
}

bool ReadBatchRank(std::span<const uint8_t> payload, std::optional<int64_t>* rank) {
  rank->reset();
  MsgpackCursor cursor(payload);
  uint32_t count;
  if (cursor.ReadMap(&count)) {
    for (; count != 0; --count) {
      std::string_view name;
      if (!cursor.ReadString(&name)) return false;
      const bool read = name == "data_parallel_rank" ? ReadRank(&cursor, rank)
                        : name == "events"           ? SkipEvents(&cursor)
                                                     : cursor.Skip();
      if (!read) return false;
    }
    return true;
  }
  if (!cursor.ReadArray(&count) || count < 2 || !cursor.Skip() || !SkipEvents(&cursor)) return false;
  return count == 2 || ReadRank(&cursor, rank);
}

bool DecodeKvBatch(std::span<const uint8_t> payload, KvBatch* batch) {
  batch->Clear();
  MsgpackCursor cursor(payload);
  const bool read = cursor.Peek() == MsgpackCursor::Type::kMap ? ReadBatchMap(&cursor, batch)
                                                               : ReadBatchArray(&cursor, batch);
  if (!read || !cursor.done()) {
    batch->Clear();
    return false;
  }
  if (batch->seconds > kMaxSeconds) batch->seconds /= 1000;
  return true;
}

}  // namespace vllm_router
