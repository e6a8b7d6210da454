#include "redis/redis_connection.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/limits.h"
#include "base/text.h"
#include "net/write_all.h"
#include "redis/redis_command.h"

namespace vllm_router {
namespace {

constexpr size_t kReadBytes = 16 * 1024;

struct Greeting {
  std::string commands;
  std::vector<std::string_view> names;  // of each
};

Greeting Greet(const RedisOptions& options, std::string_view password, bool probe) {
  Greeting greeting;
  const auto add = [&](std::string_view name, std::initializer_list<std::string_view> words) {
    greeting.names.push_back(name);
    AppendRedisCommand(words, &greeting.commands);
  };
  const RedisUrl& url = options.url;
  if (!password.empty() && url.user.empty()) add("AUTH", {"AUTH", password});
  if (!password.empty() && !url.user.empty()) add("AUTH", {"AUTH", url.user, password});
  if (url.database != 0) add("SELECT", {"SELECT", std::to_string(url.database)});
  add("CLIENT SETNAME", {"CLIENT", "SETNAME", "vllm-router"});
  add("PING", {"PING"});
  if (probe && !options.probe_key.empty()) {
    add("SET", {"SET", options.probe_key, "1", "EX", "60"});
    add("GET", {"GET", options.probe_key});
    add("DEL", {"DEL", options.probe_key});
  }
  return greeting;
}

// A proxy may not know CLIENT; a replica takes no SET and can be read, and so can a Redis that cannot save, which says so
// to a PING.
Status CheckGreeting(std::string_view name, RedisValue reply) {
  using Effect = RedisError::Effect;
  if (!reply.is_error()) return absl::OkStatus();
  const RedisError error = ReadRedisError(reply.text());
  if (error.effect == Effect::kUnwritable || error.effect == Effect::kReadOnly) return absl::OkStatus();
  const bool login = name == "AUTH" || name == "SELECT" || name == "PING";
  if (!login && (name == "CLIENT SETNAME" || error.effect != Effect::kDown)) return absl::OkStatus();
  const std::string message = Concat(error.message, " (to ", name, ")");
  return error.type == RedisErrorType::kConnection ? absl::UnavailableError(message)
                                                   : absl::FailedPreconditionError(message);
}

}  // namespace

RedisConnection::RedisConnection(RedisPool& pool, EventLoop& loop, BufferPool& buffers, Resolver& resolver)
    : pool_(pool), loop_(loop), resolver_(resolver), in_(buffers), reader_(pool.options().max_reply_bytes) {}

RedisConnection::~RedisConnection() = default;

Task<Status> RedisConnection::Open(std::shared_ptr<RedisConnection> self, bool probe) {
  self->self_ = self;
  self->timer_.Arm(
      self->loop_.timers(), self->pool_.options().connect_timeout_ms, &RedisConnection::OnTimeout,
      self.get());
  Status status = co_await self->Connect();
  if (status.ok()) status = co_await self->LogIn(probe);
  self->timer_.Disarm();
  if (!self->ended_.ok()) co_return self->ended_;
  if (!status.ok()) {
    self->Close(status);
    co_return status;
  }
  self->open_ = true;
  self->pool_.CountOpen(1);
  co_return status;
}

Task<Status> RedisConnection::Connect() {
  const RedisUrl& url = pool_.options().url;
  if (!ended_.ok()) co_return ended_;
  name_ = std::make_shared<Resolver::Waiter>(loop_);
  StatusOr<std::vector<Address>> addresses = co_await resolver_.Resolve(url.host, name_);
  name_ = nullptr;
  if (!ended_.ok()) co_return ended_;
  if (!addresses.ok()) co_return absl::UnavailableError("has a name that cannot be resolved");
  Connector connector(loop_, pool_.tls(), url.host);
  connector_ = &connector;
  const int error = co_await connector.ConnectToAny(*std::move(addresses), url.port);
  connector_ = nullptr;
  if (!ended_.ok()) co_return ended_;
  if (error != 0) {
    resolver_.ReportFailure(url.host);
    co_return absl::UnavailableError(
        connector.tls_error().empty() ? "cannot be connected to"
                                      : Concat("fails the TLS handshake: ", connector.tls_error()));
  }
  socket_ = connector.TakeSocket();
  co_return absl::OkStatus();
}

Task<Status> RedisConnection::LogIn(bool probe) {
  const RedisOptions& options = pool_.options();
  StatusOr<std::string> password = options.url.password;
  if (!options.password_file.empty()) password = ReadRedisPassword(options.password_file);
  if (!password.ok()) {
    co_return absl::FailedPreconditionError(
        Concat("needs a password, and the password file", std::string(password.status().message())));
  }
  const Greeting greeting = Greet(options, *password, probe);
  std::array<iovec, 1> pieces = {Piece(greeting.commands)};
  const WriteEnd written = co_await WriteAll(socket_, pieces);
  std::vector<RedisReply> replies;
  Status status = written == WriteEnd::kAll ? absl::OkStatus() : absl::UnavailableError("closes connections");
  while (status.ok() && replies.size() < greeting.names.size()) status = co_await Read(&replies);
  for (size_t i = 0; i < std::min(replies.size(), greeting.names.size()); ++i) {
    Status checked = CheckGreeting(greeting.names[i], replies[i].value());
    if (!checked.ok()) co_return checked;
  }
  if (status.ok() && replies.size() > greeting.names.size())
    status = absl::FailedPreconditionError("sent a reply without a command");
  co_return status;
}

Task<Status> RedisConnection::Read(std::vector<RedisReply>* replies) {
  in_.Reserve(kReadBytes);
  const IoResult read = co_await socket_.Read(in_.room());
  if (!ended_.ok()) co_return ended_;
  if (read.error != 0) co_return absl::UnavailableError("broke the connection");
  if (read.eof) co_return absl::UnavailableError("closed the connection");
  in_.Commit(static_cast<size_t>(read.bytes));
  const Status status = reader_.Feed(in_.view(), replies);
  in_.Clear();
  co_return status;
}

Task<Status> RedisConnection::Serve(std::shared_ptr<RedisConnection> self) {
  std::vector<RedisReply> replies;
  size_t this_turn = 0;
  Status status = self->ended_;
  while (status.ok()) {
    replies.clear();
    status = co_await self->Read(&replies);
    if (status.ok()) self->ArmTimer();
    const Status taken = self->Take(&replies);
    if (status.ok()) status = taken;
    this_turn += kReadBytes;
    if (this_turn < kFairnessBytes) continue;
    this_turn = 0;
    co_await self->loop_.Yield();
  }
  self->Close(status);
  self->in_.Release();
  self->pool_.CountOpen(-1);
  if (!self->waiting_.empty()) self->pool_.CountActive(-1);
  const std::deque<Waiting> failed = std::exchange(self->waiting_, {});
  Status why = self->ended_;
  for (const Waiting& waiting : failed) {
    if (waiting.errors_to == RedisErrorsTo::kPool) self->pool_.Failed(why);
    waiting.done(why);
    // The first alone has the reply that is too large.
    if (absl::IsResourceExhausted(why)) why = absl::AbortedError(why.message());
  }
  co_return self->ended_;
}

Status RedisConnection::Take(std::vector<RedisReply>* replies) {
  for (RedisReply& reply : *replies) {
    if (waiting_.empty()) return absl::FailedPreconditionError("sent a reply without a command");
    Waiting& first = waiting_.front();
    first.replies.push_back(std::move(reply));
    if (--first.missing > 0) continue;
    Waiting complete = std::move(first);
    waiting_.pop_front();
    ArmTimer();
    if (waiting_.empty()) pool_.CountActive(-1);
    if (complete.errors_to == RedisErrorsTo::kPool) {
      std::string_view error;
      for (const RedisReply& one : complete.replies) {
        if (error.empty()) error = one.value().FirstError();
      }
      pool_.Replied(pool_.clock().NowNanos() - complete.sent_ns, error);
    }
    complete.done(std::move(complete.replies));
  }
  return retired_ && waiting_.empty() ? absl::CancelledError("is opened anew") : absl::OkStatus();
}

void RedisConnection::Send(
    std::string_view commands, size_t replies, RedisDone done, RedisErrorsTo errors_to) {
  if (waiting_.empty()) pool_.CountActive(1);
  waiting_.push_back({replies, pool_.clock().NowNanos(), {}, std::move(done), errors_to});
  if (waiting_.size() == 1) ArmTimer();
  unsent_ += commands;
  if (!writing_) Spawn(Write(self_.lock()));
}

Task<void> RedisConnection::Write(std::shared_ptr<RedisConnection> self) {
  self->writing_ = true;
  while (!self->unsent_.empty() && self->ended_.ok()) {
    const std::string sending = std::exchange(self->unsent_, {});
    std::array<iovec, 1> pieces = {Piece(sending)};
    const WriteEnd end = co_await WriteAll(self->socket_, pieces);
    if (end == WriteEnd::kGone) self->Close(absl::UnavailableError("broke the connection"));
  }
  self->writing_ = false;
}

void RedisConnection::Close(Status why) {
  if (ended_.ok()) ended_ = std::move(why);
  open_ = false;
  timer_.Disarm();
  if (name_ != nullptr) Resolver::Waiter::Cancel(name_);
  if (connector_ != nullptr) connector_->Cancel();
  socket_.Close();
}

void RedisConnection::Retire() {
  if (!open_) return;
  retired_ = true;
  if (waiting_.empty()) Close(absl::CancelledError("is opened anew"));
}

// Bytes have just arrived, or the first command was sent.
void RedisConnection::ArmTimer() {
  if (waiting_.empty() || !open_) return timer_.Disarm();
  timer_.Arm(loop_.timers(), pool_.options().command_timeout_ms, &RedisConnection::OnTimeout, this);
}

void RedisConnection::OnTimeout(void* connection) {
  auto* const self = static_cast<RedisConnection*>(connection);
  const RedisOptions& options = self->pool_.options();
  const int64_t limit_ms = self->open_ ? options.command_timeout_ms : options.connect_timeout_ms;
  self->Close(absl::DeadlineExceededError(
      Concat("does not ", self->open_ ? "reply" : "let the router log in", " within ", limit_ms, " ms")));
}

}  // namespace vllm_router
