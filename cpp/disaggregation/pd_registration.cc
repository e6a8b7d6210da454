#include "disaggregation/pd_registration.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "events/msgpack_cursor.h"
#include "worker/worker_url.h"

namespace vllm_router {
namespace {

constexpr uint32_t kMaxMembers = 64;

bool IsAlphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool IsAddressByte(char c) {
  constexpr std::string_view kOthers = ".-_:[]";
  return IsAlphanumeric(c) || kOthers.find(c) != std::string_view::npos;
}

// The address of http://<text>, which names a port; nullopt if the text is anything else.
std::optional<std::string> HostAndPortIn(std::string_view text) {
  if (text.empty() || !std::ranges::all_of(text, IsAddressByte)) return std::nullopt;
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || text.find(']', colon) != std::string_view::npos) return std::nullopt;
  const StatusOr<WorkerUrl> url = ParseWorkerUrl(Concat("http://", text));
  if (!url.ok()) return std::nullopt;
  const std::string host = AsciiLower(url->host);
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? Concat("[", host, "]:", url->port) : Concat(host, ":", url->port);
}

// "name:value" with a host or a port as the value.
bool IsNamedPart(std::string_view part) {
  const size_t colon = part.find(':');
  if (colon == 0 || colon == std::string_view::npos || colon + 1 == part.size()) return false;
  return std::ranges::all_of(part.substr(0, colon), [](char c) { return IsAlphanumeric(c) || c == '_'; }) &&
         std::ranges::all_of(part.substr(colon + 1), IsAddressByte);
}

// host:port, or MoRI-IO's list of named parts. It may not look like the request id that it will be in.
bool IsZmqAddress(std::string_view text) {
  if (text.size() > kMaxZmqAddress || text.find("___") != std::string_view::npos) return false;
  if (HostAndPortIn(text)) return true;
  if (text.find(',') == std::string_view::npos) return false;
  while (true) {
    const size_t comma = text.find(',');
    if (!IsNamedPart(text.substr(0, comma))) return false;
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

// Members as they come; what a worker did not send is nullopt.
struct Told {
  std::optional<std::string_view> type;
  std::optional<std::string_view> http_address;
  std::optional<std::string_view> zmq_address;
  std::optional<std::string_view> transfer_mode;
  std::optional<uint64_t> tp_size;
  std::optional<uint64_t> dp_size;
};

bool ReadText(MsgpackCursor* cursor, std::optional<std::string_view>* text) {
  if (cursor->ReadNil()) return true;
  return !text->has_value() && cursor->ReadString(&text->emplace());
}

bool ReadSize(MsgpackCursor* cursor, std::optional<uint64_t>* size) {
  if (cursor->ReadNil()) return true;
  return !size->has_value() && cursor->ReadUnsigned(kMaxRegisteredRanks, &size->emplace()) && **size != 0;
}

bool ReadMember(std::string_view name, MsgpackCursor* cursor, Told* told) {
  if (name == "type") return ReadText(cursor, &told->type);
  if (name == "http_address") return ReadText(cursor, &told->http_address);
  if (name == "zmq_address") return ReadText(cursor, &told->zmq_address);
  if (name == "transfer_mode") return ReadText(cursor, &told->transfer_mode);
  if (name == "tp_size") return ReadSize(cursor, &told->tp_size);
  if (name == "dp_size") return ReadSize(cursor, &told->dp_size);
  return cursor->Skip();
}

bool ReadMembers(std::string_view map, Told* told) {
  MsgpackCursor cursor({reinterpret_cast<const uint8_t*>(map.data()), map.size()});
  uint32_t count = 0;
  if (!cursor.ReadMap(&count) || count > kMaxMembers) return false;
  for (; count != 0; --count) {
    std::string_view name;
    if (!cursor.ReadString(&name)) return false;
    if (!ReadMember(name, &cursor, told)) return false;
  }
  return cursor.done();
}

// False: a mode that is not known.
bool ReadMode(const std::optional<std::string_view>& name, std::optional<MoriioMode>* mode) {
  mode->reset();
  if (!name) return true;
  for (const MoriioMode one : {MoriioMode::kRead, MoriioMode::kWrite}) {
    if (*name == MoriioModeName(one)) *mode = one;
  }
  return mode->has_value();
}

PdMessage Read(const Told& told, PdRegistration* registration) {
  if (!told.type) return PdMessage::kMalformed;
  if (told.type != "P" && told.type != "D") return PdMessage::kIgnored;
  if (!told.http_address || !told.zmq_address || !IsZmqAddress(*told.zmq_address))
    return PdMessage::kMalformed;
  std::optional<std::string> address = HostAndPortIn(*told.http_address);
  std::optional<MoriioMode> mode;
  if (!address || !ReadMode(told.transfer_mode, &mode)) return PdMessage::kMalformed;
  registration->role = told.type == "P" ? PdRole::kPrefill : PdRole::kDecode;
  registration->http_address = *std::move(address);
  registration->zmq_address = *told.zmq_address;
  registration->mode = mode;
  registration->tp_size = static_cast<uint32_t>(told.tp_size.value_or(1));
  registration->dp_size = static_cast<uint32_t>(told.dp_size.value_or(1));
  return PdMessage::kRegistration;
}

}  // namespace

std::string_view PdRoleName(PdRole role) { return role == PdRole::kPrefill ? "prefill" : "decode"; }

std::string_view PdMessageName(PdMessage message) {
  switch (message) {
    case PdMessage::kRegistration:
      return "registration";
    case PdMessage::kIgnored:
      return "ignored";
    case PdMessage::kTooLong:
      return "too_long";
    case PdMessage::kMalformed:
      return "malformed";
  }
  return "";
}

PdMessage DecodePdMessage(std::span<const std::string> frames, PdRegistration* registration) {
  size_t size = 0;
  for (const std::string& frame : frames) size += frame.size();
  if (size > kMaxPdMessage) return PdMessage::kTooLong;
  const bool has_empty = frames.size() == 3 && frames[1].empty();
  if (frames.size() != 2 && !has_empty) return PdMessage::kMalformed;
  Told told;
  if (!ReadMembers(frames.back(), &told)) return PdMessage::kMalformed;
  return Read(told, registration);
}

}  // namespace vllm_router
