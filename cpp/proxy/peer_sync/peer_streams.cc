#include "proxy/peer_sync/peer_streams.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "base/time_units.h"
#include "redis/redis_command.h"
#include "redis/redis_error.h"

namespace vllm_router {
namespace {

constexpr size_t kMaxIdBytes = 41;  // two numbers of 64 bits
constexpr int64_t kForgottenMs = 600'000;
constexpr int64_t kClockSlackMs = 1'000;
constexpr uint64_t kMaxSeconds = uint64_t{1} << 40;  // of a clock that tells the time
constexpr std::string_view kMaxRouters = "256";
constexpr std::string_view kFramesPerRead = "8";

// The limit as in RateLimit (routing/rate_limit.h), of the whole fleet: `due` is when all tokens that were taken would
// have been evenly spread. Of a second's worth half is kept here; the other half the routers have at hand. Times in
// microseconds, by Redis's clock, which may be set back.
//
// The other key is the queue of routers that got less than they asked for within the last second, each with the time
// until which it has had its part. In 0.3 s such a router may take an equal part of what is left, however often it asks:
// so what is left becomes 0.3 s' worth, out of which a router that wants little gets all of it. Where there is less than
// one token for each, those get one that have waited for longest. Anything may have written both values: what is none
// counts as absent.
constexpr std::string_view kLease = R"(
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, tokens, own = 1000000 / ARGV[1], tonumber(ARGV[2]), ARGV[3]
local burst = math.max(500000, interval + 250000)
local function read(key)
  local value = redis.pcall('GET', key)
  return type(value) == 'string' and value or ''
end
local due = read(KEYS[1])
due = math.max(#due < 18 and string.match(due, '^%d+$') and tonumber(due) or 0, now - burst)
if due > now + burst then due = now end
local left = math.max(0, math.floor((now - due) / interval))
local value = read(KEYS[2])
local queue, place, since = {}, nil, 300000
for router, paid in string.gmatch(#value < 10000 and value or '', '%f[%x](%x+):(%d+)') do
  local passed = #router == 16 and #paid < 18 and now - tonumber(paid) or -1
  if passed >= 0 and passed < 1000000 and #queue < 255 then
    if router == own then
      place, since = #queue, math.min(since, passed)
    else
      queue[#queue + 1] = router .. ':' .. paid
    end
  end
end
place = place or #queue
local got = tokens
if tokens > 0 then
  local part = left * since / 300000 / (#queue + 1)
  got = math.min(tokens, math.floor(part))
  if part >= 1 then
    since = since * (1 - got / part)
  elseif left <= #queue and place < left then
    got, since = 1, 0
  end
end
redis.call('SET', KEYS[1], string.format('%.0f', math.max(due + got * interval, now - burst)), 'PX', 60000)
if got < tokens then
  table.insert(queue, (got > 0 and #queue or place) + 1, own .. string.format(':%.0f', now - since))
end
queue = table.concat(queue, ' ')
if queue ~= value then redis.call('SET', KEYS[2], queue, 'PX', 60000) end
return got
)";

// Redis's own words of an error that no remedy is known of: without its code, and up to the first quotation mark, since it
// quotes what it repeats of a command.
std::string_view WordsOf(std::string_view error) {
  constexpr size_t kMaxBytes = 120;
  error.remove_prefix(std::min(error.find(' '), error.size()));
  error.remove_prefix(std::min(error.find_first_not_of(' '), error.size()));
  error = error.substr(0, kMaxBytes);
  const auto* const end = std::ranges::find_if(
      error, [](char c) { return c < ' ' || c > '~' || c == '"' || c == '\'' || c == '`'; });
  error = error.substr(0, static_cast<size_t>(end - error.begin()));
  while (error.ends_with(' ')) error.remove_suffix(1);
  return error;
}

std::optional<uint64_t> RouterIn(std::string_view text) {
  uint64_t router = 0;
  const char* const end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, router, 16);
  if (text.size() != 16 || error != std::errc() || parsed != end) return std::nullopt;
  return router;
}

std::optional<uint64_t> NumberOf(std::string_view text) {
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || parsed != end) return std::nullopt;
  return number;
}

// Of an id as Redis writes them: 1712345678901-0. No other is ever asked for, since Redis rejects it each time.
std::optional<int64_t> MsOf(std::string_view id) {
  const size_t dash = id.find('-');
  if (dash == std::string_view::npos || !NumberOf(id.substr(dash + 1))) return std::nullopt;
  const std::optional<uint64_t> ms = NumberOf(id.substr(0, dash));
  if (!ms || *ms > uint64_t{INT64_MAX}) return std::nullopt;
  return static_cast<int64_t>(*ms);
}

}  // namespace

PeerStreams::PeerStreams(std::string_view fleet, uint64_t router, uint64_t fingerprint)
    : prefix_(KeyOf(fleet, "")),
      router_(router),
      own_(Hex16(router)),
      snapshot_key_(Key("snap:") + Hex16(fingerprint)) {}

std::string PeerStreams::KeyOf(std::string_view fleet, std::string_view what) {
  return Concat("vr:{", fleet, "}:", what);
}

int64_t PeerStreams::RedisMs(int64_t now_ns) const {
  ROUTER_CHECK(knows_time(), "Redis has told the time");
  return time_ms_ + (now_ns - *time_ns_) / kNanosPerMs;
}

void PeerStreams::Add(
    Round::Kind kind, std::span<const std::string_view> words, Round* round, uint64_t router) {
  // Commands of the router's own, which are literals.
  AppendRedisCommand(words, &round->commands_);
  round->asked_.push_back({.kind = kind, .command = words.front(), .router = router});
}

void PeerStreams::AddTime(Round* round) {
  Add(Round::Kind::kTime, std::array{std::string_view("TIME")}, round);
}

void PeerStreams::AddFrames(std::span<const std::string> frames, int64_t now_ns, Round* round) const {
  const int64_t now_ms = RedisMs(now_ns);
  const std::string stream = Key("x:") + own_;
  const std::string oldest = std::to_string(std::max<int64_t>(0, now_ms - kKeptMs));
  const auto tell = [round](std::initializer_list<std::string_view> words) {
    Add(Round::Kind::kTold, std::span(words.begin(), words.size()), round);
  };
  if (begins_anew_) tell({"DEL", stream});
  for (const std::string& frame : frames) tell({"XADD", stream, "MINID", "~", oldest, "*", "f", frame});
  tell({"PEXPIRE", stream, std::to_string(kStreamMs)});
  const std::string members = Key("members");
  if (members_begin_anew_) tell({"DEL", members});
  tell({"ZADD", members, std::to_string(now_ms), own_});
  tell({"ZREMRANGEBYSCORE", members, "-inf", std::to_string(now_ms - kForgottenMs)});
}

void PeerStreams::AddReads(int64_t now_ns, Round* round) {
  const int64_t now_ms = RedisMs(now_ns);
  auto place = places_.lower_bound(next_);
  size_t reads = 0;
  for (bool alone = false; place != places_.end() && reads < most_ && !alone; ++place) {
    if (place->second.unread_until > now_ms) continue;
    alone = place->second.unread_until != 0;
    if (alone && reads > 0) break;
    ++reads;
    const std::string stream = Key("x:") + Hex16(place->first);
    const std::string after = Concat("(", place->second.last);
    Add(Round::Kind::kFrames,
        std::array<std::string_view, 6>{"XRANGE", stream, after, "+", "COUNT", vllm_router::kFramesPerRead},
        round, place->first);
  }
  round->has_rest_ = place != places_.end();
  next_ = round->has_rest_ ? place->first : 0;
  // The newest, and none whose time is not to come for long.
  const std::string members = Key("members");
  const std::string latest = std::to_string(now_ms + kStreamMs);
  const std::string since = std::to_string(now_ms - kStreamMs);
  Add(Round::Kind::kMembers,
      std::array<std::string_view, 7>{
          "ZREVRANGEBYSCORE", members, latest, since, "LIMIT", "0", vllm_router::kMaxRouters},
      round);
}

void PeerStreams::AddSnapshotRead(Round* round) const {
  Add(Round::Kind::kSnapshot, std::array<std::string_view, 2>{"GET", snapshot_key_}, round);
}

void PeerStreams::AddSnapshot(std::string_view snapshot, Round* round) const {
  const std::string kept = std::to_string(kSnapshotMs);
  Add(Round::Kind::kTold, std::array<std::string_view, 5>{"SET", snapshot_key_, snapshot, "PX", kept}, round);
}

void PeerStreams::AddLease(std::string_view name, uint32_t per_second, int64_t tokens, Round* round) const {
  const std::string key = Key("lim:") + std::string(name);
  const std::string queue = key + ":queue";
  const std::string rate = std::to_string(per_second);
  const std::string more = std::to_string(tokens);
  Add(Round::Kind::kLease,
      std::array<std::string_view, 8>{"EVAL", vllm_router::kLease, "2", key, queue, rate, more, own_}, round);
}

void PeerStreams::AddLeave(Round* round) const {
  const std::string members = Key("members");
  Add(Round::Kind::kTold, std::array<std::string_view, 3>{"ZREM", members, own_}, round);
}

std::string PeerStreams::Overflowed(const Round& round, int64_t now_ns) {
  std::vector<uint64_t> read;
  for (const Round::Asked& asked : round.asked_) {
    if (asked.kind == Round::Kind::kFrames) read.push_back(asked.router);
  }
  most_ = read.size() > 1 ? 1 : kRoutersPerRound;
  if (read.empty()) return {};
  next_ = read.front();
  const auto place = places_.find(next_);
  if (read.size() > 1 || place == places_.end()) return {};
  place->second.unread_until = RedisMs(now_ns) + kUnreadableMs;
  return Key("x:") + Hex16(next_);
}

Status PeerStreams::Take(
    const Round& round, int64_t sent_ns, std::span<const RedisReply> replies, Heard* heard) {
  *heard = {};
  heard->more = round.has_rest_;
  ROUTER_CHECK(replies.size() == round.replies(), "each command has a reply");
  Status first;
  for (size_t i = 0; i < replies.size(); ++i) {
    const Round::Asked& asked = round.asked_[i];
    const RedisValue reply = replies[i].value();
    if (reply.is_error()) {
      const RedisError error = ReadRedisError(reply.text());
      const bool of_one = asked.kind == Round::Kind::kFrames && error.effect == RedisError::Effect::kOneKey;
      Status* const wrong = of_one ? &heard->unread : &first;
      if (wrong->ok()) {
        const bool is_known = error.message.find(':') != std::string::npos;
        const std::string_view words = is_known ? std::string_view() : WordsOf(reply.text());
        *wrong = absl::FailedPreconditionError(Concat(
            error.message, words.empty() ? "" : ": ", words, " (to ", asked.command,
            of_one ? Concat(" of router ", Hex16(asked.router)) : std::string(), ")"));
      }
      if (asked.kind == Round::Kind::kFrames) TakeFrames(asked.router, reply, heard);
      if (error.effect == RedisError::Effect::kOneKey) TakeRefusal(asked.command, reply.text());
      continue;
    }
    switch (asked.kind) {
      case Round::Kind::kTime:
        TakeTime(sent_ns, reply);
        break;
      case Round::Kind::kTold:
        if (asked.command == "XADD") TakeOwnId(reply);
        if (asked.command == "ZADD") members_begin_anew_ = false;
        break;
      case Round::Kind::kMembers:
        if (!round.has_rest_) most_ = kRoutersPerRound;
        TakeMembers(reply);
        break;
      case Round::Kind::kFrames:
        TakeFrames(asked.router, reply, heard);
        break;
      case Round::Kind::kSnapshot:
        heard->snapshot = reply.text();
        heard->bytes += heard->snapshot.size();
        break;
      case Round::Kind::kLease:
        if (reply.kind() == RedisValue::Kind::kInteger) heard->leased = reply.integer();
        break;
    }
  }
  return first;
}

void PeerStreams::TakeTime(int64_t sent_ns, RedisValue reply) {
  if (reply.size() != 2) return;
  const std::optional<uint64_t> seconds = NumberOf(reply[0].text());
  const std::optional<uint64_t> micros = NumberOf(reply[1].text());
  if (!seconds || !micros || *seconds > kMaxSeconds || *micros >= 1'000'000) return;
  time_ns_ = sent_ns;
  time_ms_ = static_cast<int64_t>(*seconds * 1'000 + *micros / 1'000);
  // Another Redis, whose clock is behind the one that these ids are of.
  for (auto& [router, place] : places_) {
    if (MsOf(place.last).value_or(0) > time_ms_ + kClockSlackMs) place.last = "0-0";
  }
}

// Redis's clock was set back, and until it is there again, ids count on from the last, and no frame is ever too old. Or
// somebody wrote an entry of such an id, perhaps one that no router reads.
void PeerStreams::TakeOwnId(RedisValue reply) {
  begins_anew_ = MsOf(reply.text()).value_or(INT64_MAX) > time_ms_ + kClockSlackMs;
}

// The largest id of all is in the stream, so that Redis takes no other, or something else is under its key. Both keys are
// the fleet's own, whatever another program put there.
void PeerStreams::TakeRefusal(std::string_view command, std::string_view error) {
  if (command == "XADD") begins_anew_ = true;
  if (command == "ZADD" && error.starts_with("WRONGTYPE")) members_begin_anew_ = true;
}

void PeerStreams::TakeMembers(RedisValue reply) {
  std::map<uint64_t, Place> next;
  for (size_t i = 0; i < reply.size() && next.size() < PeerStreams::kMaxRouters; ++i) {
    const std::optional<uint64_t> router = RouterIn(reply[i].text());
    if (!router || *router == router_) continue;
    const auto known = places_.find(*router);
    Place& place = next[*router];
    if (known != places_.end()) place = known->second;
    if (known == places_.end()) place.last = Concat(std::max<int64_t>(0, start_ms_), "-0");
    place.left = false;
  }
  // What a router says last it says as it leaves.
  for (auto& [router, place] : places_) {
    if (next.size() < PeerStreams::kMaxRouters && place.unread_until == 0)
      next.try_emplace(router, Place{.last = place.last, .left = true});
  }
  places_ = std::move(next);
}

void PeerStreams::TakeFrames(uint64_t router, RedisValue reply, Heard* heard) {
  const auto place = places_.find(router);
  if (place == places_.end()) return;
  place->second.unread_until = 0;
  for (size_t i = 0; i < reply.size(); ++i) {
    const RedisValue entry = reply[i];
    if (entry.size() != 2) continue;
    const std::string_view id = entry[0].text();
    const std::optional<int64_t> told_ms = MsOf(id);
    if (id.size() > kMaxIdBytes || !told_ms) continue;
    place->second.last = id;
    if (entry[1].size() < 2 || entry[1][0].text() != "f") continue;
    heard->frames.push_back(entry[1][1].text());
    heard->frame_ms.push_back(*told_ms);
    heard->bytes += heard->frames.back().size();
  }
  if (reply.size() >= PeerStreams::kFramesPerRead) {
    heard->more = true;
  } else if (place->second.left) {
    places_.erase(place);
  }
}

}  // namespace vllm_router
