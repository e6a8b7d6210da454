#include "peer_sync/frame.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/check.h"
#include "base/text.h"
#include "peer_sync/seal.h"

namespace vllm_router {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they are");

constexpr std::string_view kMagic = "VRP1";
constexpr size_t kHeadBytes = 48;
constexpr uint16_t kSealed = 1, kFull = 2, kBye = 4;
constexpr uint8_t kHolds = 1, kReceivesKey = 2;
constexpr size_t kMaxSectionBytes = (1 << 24) - 1;

enum Section : uint8_t {
  kNames = 1,
  kLoads = 2,
  kDecisions = 3,
  kForgotten = 4,
  kSuspects = 5,
  kSeen = 6,
  kAbout = 7,
  kFacts = 8,
  kStaged = 9,
};
constexpr std::string_view kSectionNames[] = {"",         "workers", "loads", "decisions", "forgotten",
                                              "suspects", "seen",    "about", "facts",     "staged"};

class Writer {
 public:
  explicit Writer(std::string* out) : out_(*out) {}

  template <typename Number>
  void Fixed(Number value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(value | 0x80);
    out_ += static_cast<char>(value);
  }
  void Count(int64_t value) { Varint(static_cast<uint64_t>(std::max<int64_t>(0, value))); }
  void Bytes(std::string_view bytes) { out_ += bytes; }

 private:
  std::string& out_;
};

// Reads that fail leave it failed and give zeros, so a loop over entries checks once per entry.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}

  bool ok() const { return ok_; }
  size_t left() const { return left_.size(); }

  template <typename Number>
  Number Fixed() {
    Number value{};
    if (left_.size() < sizeof(value)) return Fail<Number>();
    std::memcpy(&value, left_.data(), sizeof(value));
    left_.remove_prefix(sizeof(value));
    return value;
  }
  // Not above `most`.
  uint64_t Varint(uint64_t most) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (left_.empty()) return Fail<uint64_t>();
      const auto byte = static_cast<uint8_t>(left_.front());
      left_.remove_prefix(1);
      if (shift == 63 && byte > 1) return Fail<uint64_t>();
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value <= most ? value : Fail<uint64_t>();
    }
    return Fail<uint64_t>();
  }
  uint32_t Number() { return static_cast<uint32_t>(Varint(std::numeric_limits<uint32_t>::max())); }
  std::string_view Bytes(size_t size) {
    if (left_.size() < size) return Fail<std::string_view>();
    const std::string_view bytes = left_.substr(0, size);
    left_.remove_prefix(size);
    return bytes;
  }

 private:
  template <typename Value>
  Value Fail() {
    ok_ = false;
    left_ = {};
    return Value{};
  }

  std::string_view left_;
  bool ok_ = true;
};

// A section of `entries`, unless there are none.
template <typename Entry, typename Write>
void WriteSection(
    Section type, const std::vector<Entry>& entries, std::string* out, uint16_t* sections, Write write) {
  if (entries.empty()) return;
  ++*sections;
  const size_t head = out->size();
  out->append(4, '\0');
  Writer writer(out);
  writer.Varint(entries.size());
  for (const Entry& entry : entries) write(writer, entry);
  const size_t length = out->size() - head - 4;
  ROUTER_CHECK(length <= kMaxSectionBytes, "a frame is split before a section grows this long");
  const uint32_t packed = type | static_cast<uint32_t>(length) << 8;
  std::memcpy(out->data() + head, &packed, sizeof(packed));
}

template <typename Entry, typename Read>
bool ReadSection(Reader* reader, std::vector<Entry>* entries, Read read) {
  const uint64_t count = reader->Varint(reader->left());  // an entry takes a byte at least
  for (uint64_t i = 0; i < count && reader->ok(); ++i) read(*reader, entries->emplace_back());
  return reader->ok();
}

constexpr uint64_t kMaxCount = int64_t{1} << 48;  // a load above this is no load

int64_t LoadCount(Reader& reader) { return static_cast<int64_t>(reader.Varint(kMaxCount)); }

void ReadFact(Reader& in, AdminFact& fact) {
  fact.kind = static_cast<AdminFact::Kind>(in.Varint(UINT8_MAX));
  const uint64_t flags = in.Varint(UINT8_MAX);
  fact.holds = (flags & kHolds) != 0;
  fact.receives_api_key = (flags & kReceivesKey) != 0;
  fact.weight = in.Number();
  fact.timeout_ms = in.Number();
  fact.at_ms = in.Varint(std::numeric_limits<uint64_t>::max());
  fact.router = in.Fixed<uint64_t>();
  fact.url = in.Bytes(in.Varint(kMaxFrameUrlBytes));
}

void WriteFact(Writer& to, const AdminFact& fact) {
  to.Varint(static_cast<uint8_t>(fact.kind));
  to.Varint((fact.holds ? kHolds : 0u) | (fact.receives_api_key ? kReceivesKey : 0u));
  to.Varint(fact.weight);
  to.Varint(fact.timeout_ms);
  to.Varint(fact.at_ms);
  to.Fixed(fact.router);
  to.Varint(fact.url.size());
  to.Bytes(fact.url);
}

void ReadRole(Reader& in, WorkerRole& role) {
  const uint64_t stage = in.Varint(UINT8_MAX);
  const uint64_t port = in.Varint(UINT16_MAX);
  role.kv_group = in.Bytes(in.Varint(kMaxKvGroupBytes));
  for (const Stage known : {Stage::kPrefill, Stage::kDecode}) {
    if (stage == static_cast<uint8_t>(known)) role.stage = known;
  }
  if (port != 0) role.bootstrap_port = static_cast<uint16_t>(port);
}

bool ReadStaged(Reader* reader, std::vector<AdminFact>* staged) {
  const bool ok = ReadSection(reader, staged, [](Reader& in, AdminFact& fact) {
    ReadFact(in, fact);
    ReadRole(in, fact.role);
  });
  std::erase_if(*staged, [](const AdminFact& fact) { return fact.role.stage == Stage::kAll; });
  return ok;
}

bool ReadPayload(uint8_t type, std::string_view payload, PeerFrame* frame) {
  Reader reader(payload);
  switch (type) {
    case kNames:
      return ReadSection(&reader, &frame->names, [](Reader& in, PeerFrame::Name& name) {
        name.index = in.Number();
        name.incarnation = in.Fixed<uint64_t>();
        name.url = in.Bytes(in.Varint(kMaxFrameUrlBytes));
      });
    case kLoads:
      return ReadSection(&reader, &frame->loads, [](Reader& in, PeerFrame::Load& load) {
        load.index = in.Number();
        load.counts.requests = LoadCount(in);
        load.counts.waiting = LoadCount(in);
        load.counts.queued_prefill = LoadCount(in);
        load.counts.expected_output = LoadCount(in);
        load.counts.context = LoadCount(in);
      });
    case kDecisions:
      return ReadSection(&reader, &frame->decisions, [frame](Reader& in, PeerFrame::Decision& decision) {
        decision.index = in.Number();
        decision.prompt_tokens = in.Number();
        decision.kind = static_cast<PeerFrame::Kind>(in.Varint(UINT8_MAX));
        decision.strides = static_cast<uint32_t>(in.Varint(kMaxFrameStrides));
        const std::string_view strides = in.Bytes(decision.strides * sizeof(uint64_t));
        const size_t before = frame->strides.size();
        frame->strides.resize(before + strides.size() / sizeof(uint64_t));
        if (!strides.empty()) std::memcpy(&frame->strides[before], strides.data(), strides.size());
      });
    case kForgotten:
      return ReadSection(&reader, &frame->forgotten, [](Reader& in, PeerFrame::Forgotten& worker) {
        worker.index = in.Number();
        worker.incarnation = in.Fixed<uint64_t>();
      });
    case kSuspects:
      return ReadSection(&reader, &frame->suspects, [](Reader& in, PeerFrame::Suspect& suspect) {
        suspect.index = in.Number();
        suspect.cause = static_cast<PeerFrame::Cause>(in.Varint(UINT8_MAX));
      });
    case kSeen:
      return ReadSection(&reader, &frame->seen, [](Reader& in, PeerFrame::Seen& seen) {
        seen.router = in.Fixed<uint64_t>();
        seen.sequence = in.Varint(std::numeric_limits<uint64_t>::max());
      });
    case kAbout:
      return ReadSection(&reader, &frame->about, [](Reader& in, PeerFrame::About& about) {
        about.name = in.Bytes(in.Varint(kMaxRouterNameBytes));
        about.version = in.Bytes(in.Varint(kMaxRouterVersionBytes));
      });
    case kFacts:
      return ReadSection(&reader, &frame->facts, ReadFact);
    case kStaged:
      return ReadStaged(&reader, &frame->staged);
    default:
      if (type >= kFirstTopicSection && type <= kLastTopicSection)
        frame->topics.push_back({.section = type, .payload = std::string(payload)});
      return true;  // else it is of a later version
  }
}

template <typename... Parts>
Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(Concat(parts...));
}

}  // namespace

void WriteFrame(const PeerFrame& frame, std::string_view secret, std::string* bytes) {
  std::string* const out = bytes;
  out->clear();
  Writer writer(out);
  writer.Bytes(kMagic);
  writer.Fixed(static_cast<uint16_t>(
      (secret.empty() ? 0 : kSealed) | (frame.full ? kFull : 0) | (frame.bye ? kBye : 0)));
  writer.Fixed(uint16_t{0});
  writer.Fixed(frame.fingerprint);
  writer.Fixed(frame.router);
  writer.Fixed(frame.sequence);
  writer.Fixed(frame.sent_ms);
  writer.Fixed(frame.interval_ms);
  writer.Fixed(uint32_t{0});

  uint16_t sections = 0;
  WriteSection(kNames, frame.names, out, &sections, [](Writer& to, const PeerFrame::Name& name) {
    to.Varint(name.index);
    to.Fixed(name.incarnation);
    to.Varint(name.url.size());
    to.Bytes(name.url);
  });
  WriteSection(kLoads, frame.loads, out, &sections, [](Writer& to, const PeerFrame::Load& load) {
    to.Varint(load.index);
    to.Count(load.counts.requests);
    to.Count(load.counts.waiting);
    to.Count(load.counts.queued_prefill);
    to.Count(load.counts.expected_output);
    to.Count(load.counts.context);
  });
  size_t at = 0;
  WriteSection(
      kDecisions, frame.decisions, out, &sections, [&](Writer& to, const PeerFrame::Decision& decision) {
        to.Varint(decision.index);
        to.Varint(decision.prompt_tokens);
        to.Varint(static_cast<uint8_t>(decision.kind));
        to.Varint(decision.strides);
        to.Bytes(
            {reinterpret_cast<const char*>(frame.strides.data() + at), decision.strides * sizeof(uint64_t)});
        at += decision.strides;
      });
  WriteSection(
      kForgotten, frame.forgotten, out, &sections, [](Writer& to, const PeerFrame::Forgotten& worker) {
        to.Varint(worker.index);
        to.Fixed(worker.incarnation);
      });
  WriteSection(kSuspects, frame.suspects, out, &sections, [](Writer& to, const PeerFrame::Suspect& suspect) {
    to.Varint(suspect.index);
    to.Varint(static_cast<uint8_t>(suspect.cause));
  });
  WriteSection(kSeen, frame.seen, out, &sections, [](Writer& to, const PeerFrame::Seen& seen) {
    to.Fixed(seen.router);
    to.Varint(seen.sequence);
  });

  WriteSection(kAbout, frame.about, out, &sections, [](Writer& to, const PeerFrame::About& about) {
    to.Varint(about.name.size());
    to.Bytes(about.name);
    to.Varint(about.version.size());
    to.Bytes(about.version);
  });

  WriteSection(kFacts, frame.facts, out, &sections, WriteFact);
  WriteSection(kStaged, frame.staged, out, &sections, [](Writer& to, const AdminFact& fact) {
    WriteFact(to, fact);
    to.Varint(static_cast<uint8_t>(fact.role.stage));
    to.Varint(fact.role.bootstrap_port.value_or(0));
    to.Varint(fact.role.kv_group.size());
    to.Bytes(fact.role.kv_group);
  });

  for (const PeerFrame::Topic& topic : frame.topics) {
    ++sections;
    ROUTER_CHECK(topic.payload.size() <= kMaxSectionBytes, "what a topic tells is bounded");
    writer.Fixed(topic.section | static_cast<uint32_t>(topic.payload.size()) << 8);
    writer.Bytes(topic.payload);
  }

  const auto body = static_cast<uint32_t>(out->size() - kHeadBytes);
  std::memcpy(out->data() + 6, &sections, sizeof(sections));
  std::memcpy(out->data() + 44, &body, sizeof(body));
  if (!secret.empty()) AeadSeal(SealKey(secret, kMagic, frame.router), frame.sequence, kHeadBytes, out);
  ROUTER_CHECK(out->size() <= kMaxFrameBytes, "a frame is split before it grows this long");
}

Status ReadFrame(std::string_view bytes, std::string_view secret, PeerFrame* frame) {
  *frame = {};
  if (bytes.size() > kMaxFrameBytes) {
    return Invalid("the frame has ", bytes.size(), " bytes; at most ", kMaxFrameBytes, " are read");
  }
  if (bytes.size() < kHeadBytes || bytes.substr(0, kMagic.size()) != kMagic) {
    return Invalid("the bytes begin like no frame (VRP1) of a router");
  }
  Reader head(bytes.substr(kMagic.size(), kHeadBytes - kMagic.size()));
  const auto flags = head.Fixed<uint16_t>();
  const auto sections = head.Fixed<uint16_t>();
  frame->full = (flags & kFull) != 0;
  frame->bye = (flags & kBye) != 0;
  frame->fingerprint = head.Fixed<uint64_t>();
  frame->router = head.Fixed<uint64_t>();
  frame->sequence = head.Fixed<uint64_t>();
  frame->sent_ms = head.Fixed<uint64_t>();
  frame->interval_ms = head.Fixed<uint32_t>();
  const auto body_bytes = head.Fixed<uint32_t>();

  const bool sealed = (flags & kSealed) != 0;
  ROUTER_RETURN_IF_ERROR(CheckSealed("frame", sealed, secret));
  if (bytes.size() != kHeadBytes + body_bytes + (sealed ? kAeadTagBytes : 0)) {
    return Invalid(
        "the frame has ", bytes.size(), " bytes, but its head says that its body has ", body_bytes);
  }
  thread_local std::string opened;
  if (sealed) {
    const StatusOr<std::string_view> plain = Unsealed(
        "frame", SealKey(secret, kMagic, frame->router), frame->sequence, kHeadBytes, bytes, &opened);
    if (!plain.ok()) return plain.status();
    bytes = *plain;
  }

  Reader body(bytes.substr(kHeadBytes));
  for (uint16_t i = 0; i < sections; ++i) {
    const auto packed = body.Fixed<uint32_t>();
    const std::string_view payload = body.Bytes(packed >> 8);
    const auto type = static_cast<uint8_t>(packed & 0xff);
    if (!body.ok()) return Invalid("section ", i, " goes beyond the frame's end");
    if (!ReadPayload(type, payload, frame)) {
      return Invalid(
          "section ", i, " (", kSectionNames[type], ") is cut off, or has a number that is too large");
    }
  }
  if (body.left() != 0) return Invalid("behind the last section are ", body.left(), " bytes");
  return absl::OkStatus();
}

}  // namespace vllm_router
