// The world around one I/O thread of the router: its clients, two prefill and two decode workers, what the workers' engines
// hold, and the clock. Nothing happens by itself: Choices() names what may come next, Take() lets one of them happen, and
// the router's loop then runs until it has nothing to do. Every step and the end are checked; what is wrong is thrown
// as a Violation.
//
// The engines are as simple as they can be. A prefill worker that responds well keeps a block, which has a number; a
// decode worker that is sent that number fetches the block with the first byte of its response.
#pragma once

#include <poll.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "disaggregation/kv_connector.h"
#include "proxy/api/server_options.h"
#include "proxy/client/tls_files.h"
#include "proxy/client/upstream_pool.h"
#include "proxy/disaggregation/disaggregation_feature.h"
#include "proxy/disaggregation/push_identities.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/request.h"
#include "proxy/security/authorizer.h"
#include "proxy/steps/steps.h"
#include "proxy/telemetry/telemetry_shard.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/own_endpoints.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"
#include "simulated_io.h"

namespace vllm_router {

struct Scenario {
  std::string name;
  std::string connector;
  bool knows_identities = false;  // nixl_push, whose workers get their requests at once then
  bool stream = true;
  bool long_texts = false;  // more than sockets hold
  bool merges = false;      // log probabilities of the prompt
  int clients = 1;
  bool rare = false;  // also what doubles the search: stalls, shutdowns, health checks
  PdOrphan orphan = PdOrphan::kRefuse;
  PdOnPrefillLoss on_prefill_loss = PdOnPrefillLoss::kUnavailable;
};

struct Violation {
  std::string what;
};

// The attempts that the records of requests have, by worker; as a step, so that it sees each record at its end.
struct SeenAttempts {
  static void Add(Request& request) {
    auto& seen = *request.thread.features.Find<SeenAttempts>();
    for (const AttemptInfo& attempt : request.info.attempts_made) {
      if (attempt.worker == nullptr || attempt.end_ns == 0) {
        seen.fault = "an attempt of a record has a worker and an end";
        continue;
      }
      int64_t last_ns = 0;
      for (const int64_t ns :
           {attempt.chosen_ns, attempt.sent_ns, attempt.responded_ns, attempt.first_body_ns,
            attempt.end_ns}) {
        if (ns != 0 && ns < last_ns) seen.fault = "the times of an attempt ascend";
        last_ns = std::max(last_ns, ns);
      }
      const bool is_prefill = attempt.phase == AttemptPhase::kPrefill;
      if (is_prefill != (attempt.worker->stage == Stage::kPrefill)) seen.fault = "an attempt has its phase";
      if (attempt.error.empty() && attempt.status == 0)
        seen.fault = "an attempt that did not fail has a status";
      if (attempt.sent_ns != 0) ++seen.sent[attempt.worker->url.port];
    }
  }

  std::map<uint16_t, uint64_t> sent;
  std::string fault;  // empty: none
};

constexpr Step kSeenAttemptsStep = {
    .name = "seen_attempts", .begin = [](Request&) { return false; }, .on_end = &SeenAttempts::Add};

inline std::span<const Step* const> StepsAndSeen() {
  static const std::vector<const Step*> all = [] {
    std::vector<const Step*> steps{&kSeenAttemptsStep};
    steps.insert(steps.end(), Steps().begin(), Steps().end());
    return steps;
  }();
  return all;
}

struct Choice {
  std::string name;
  int weight;  // of a random walk
  std::function<void()> act;
};

class World {
 public:
  explicit World(const Scenario& scenario) : scenario_(scenario), options_(OptionsOf(scenario)) {
    first_descriptor_ = LowestDescriptor();
    simulated_io::Get().now_ns = simulated_io::kStartNs;
    simulated_io::Get().connecting.clear();
    RouterOptions router{.policy = {.policy = "round_robin"}, .disaggregated = true};
    router.decode_policy.policy = "round_robin";
    for (int i = 0; i < kWorkers; ++i) {
      router.prefill_urls.push_back({.url = Concat("http://10.0.0.1:", kPrefillPort + i)});
      router.decode_urls.push_back(Concat("http://10.0.0.1:", kDecodePort + i));
    }
    router_ = *Router::Create(router);
    tls_ = *TlsFiles::Open(options_);
    limits_ = std::make_unique<ServerLimits>(options_);
    settings_ = std::make_unique<Snapshot<Settings>>(std::make_shared<const Settings>(options_));
    thread_ =
        std::make_unique<IoThread>(options_, *settings_, hop_name_, *limits_, router_, keys_, *tls_, Logs{});
    AddPairParts(thread_.get());
    thread_->features.Own(std::make_unique<SeenAttempts>());
    for (const FleetView::Member& member : router_->fleet()->members()) workers_.push_back(member.worker);
    if (scenario.knows_identities) {
      for (const std::shared_ptr<Worker>& worker : workers_) {
        thread_->features.Find<PushIdentities>()->Learn(
            worker->id, {.engine_id = "e", .host = "10.0.0.1", .port = 5600, .tp_size = 1});
      }
    }
    for (int i = 0; i < scenario.clients; ++i) clients_.push_back({.number = i});
    Settle();
  }

  World(const World&) = delete;
  World& operator=(const World&) = delete;

  ~World() {
    for (Client& client : clients_) CloseEnd(&client.end);
    for (Link& link : links_) CloseEnd(&link.end);
  }

  std::vector<Choice> Choices() {
    std::vector<Choice> choices;
    const auto add = [&choices](int weight, std::string name, std::function<void()> act) {
      choices.push_back({std::move(name), weight, std::move(act)});
    };
    for (size_t i = 0; i < clients_.size(); ++i) AddChoicesOf(i, add);
    for (size_t i = 0; i < links_.size(); ++i) AddChoicesOf(links_[i], i, add);
    bool any_open = std::ranges::any_of(clients_, [](const Client& c) { return c.phase != Phase::kNew; });
    if (any_open) add(2, "time passes", [this] { PassTime(); });
    if (scenario_.rare && any_open && !cut_) {
      for (const std::shared_ptr<Worker>& worker : workers_) {
        if (dead_.contains(worker->url.port)) continue;
        add(1, Concat("health check finds ", NameOf(worker->url.port), " dead"),
            [this, worker] { Die(worker); });
      }
      add(1, "shutdown cuts", [this] {
        cut_ = true;
        const std::vector<Connection*> open(thread_->connections.begin(), thread_->connections.end());
        for (Connection* const connection : open) connection->Drain(true);
      });
    }
    return choices;
  }

  void Take(const Choice& choice) {
    ++step_;
    event_ = choice.name;
    NoteWaiting();
    choice.act();
    Settle();
  }

  // Workers are silent from now on, and clients stay, so only timers are left.
  void RunOut() {
    event_ = "time passes";
    for (Client& client : clients_) client.stopped = false;
    Settle();
    for (int i = 0; i < kMostTimers; ++i) {
      if (thread_->telemetry.in_flight.load() == 0 && !AnyLinkBusy() && AllResponded()) break;
      ++step_;
      NoteWaiting();
      PassTime();
      Settle();
    }
    CheckClients();
    ++step_;
    event_ = "all leave";
    for (Client& client : clients_) CloseEnd(&client.end);
    Settle();
    for (int i = 0; i < kMostTimers && !thread_->connections.empty(); ++i) {
      ++step_;
      PassTime();
      Settle();
    }
    CheckEnd();
    thread_->upstreams.CloseAll();
    Settle();
    Check(thread_->telemetry.connections.upstream_open.load() == 0, "no connection to a worker is left");
    for (Client& client : clients_) CloseEnd(&client.end);
    for (Link& link : links_) CloseEnd(&link.end);
    thread_.reset();
    Check(LowestDescriptor() == first_descriptor_, "no descriptor is left");
  }

  // Of all that can matter for what follows.
  std::string Fingerprint() const {
    std::string text;
    for (const Client& c : clients_) {
      text += Concat(
          "c", static_cast<int>(c.phase), Bits({c.gone, c.half, c.stopped, c.closed}), c.decode_lost, ":",
          Bits({!c.received.empty(), ResponseOf(c.received).complete}), ";");
    }
    for (const Link& l : links_) {
      text += Concat(
          "l", l.port, static_cast<int>(l.phase),
          Bits({l.router_closed, l.stalled, l.in.empty(), l.out.empty()}), l.served, ":",
          l.request ? requests_[*l.request].Kind() : "", ":", l.script, l.next, ";");
    }
    for (const std::shared_ptr<Worker>& w : workers_) {
      text += Concat(
          "w", w->load.open_requests(), static_cast<int>(w->breaker.state()), w->failed_transfers.load(),
          Bits({thread_->features.Find<PushIdentities>()->Find(w->id) != nullptr}), ";");
    }
    for (const auto& [end, count] : Counts(&StageCounters::claims)) text += Concat(end, count);
    text += Concat(
        "t", thread_->loop.timers().armed(), "p", passed_ms_ / 500, "b", blocks_.size(), "r",
        requests_.size());
    return text;
  }

 private:
  static constexpr int kWorkers = 2;  // of each stage
  static constexpr int kPrefillPort = 8100;
  static constexpr int kDecodePort = 8200;
  static constexpr int kMostTimers = 60;
  static constexpr int64_t kTickMs = TimerWheel::kTickMs;
  static constexpr int64_t kHorizonMs = 65'000;  // of one step in time: more than any limit here

  enum class Phase : uint8_t { kNew, kPart, kSent };
  enum class LinkPhase : uint8_t { kConnecting, kOpen, kFinished, kClosed };

  struct Client {
    int number = 0;
    int end = -1;
    Phase phase = Phase::kNew;
    bool gone = false;     // has left
    bool half = false;     // sends no more
    bool stopped = false;  // reads nothing
    bool closed = false;   // by the router
    std::string received = {};
    int begun_step = 0;  // its first byte came then
    int gone_step = 0;
    int decode_lost = 0;
    std::set<uint16_t> stale = {};  // workers whose reused connections ended
  };

  struct Request {
    int client = -1;
    bool prefill = false;
    bool keeper = false;     // frees blocks
    bool transfers = false;  // decode: with parameters
    std::optional<int> block = {};
    std::string pair = {};  // the transfer's id or room
    bool complete = false;  // the response has been sent
    int status = 0;
    const char* Kind() const { return keeper ? "k" : prefill ? "p" : block ? "b" : transfers ? "t" : "d"; }
  };

  struct Block {
    int client;
    bool freed = false;
    int seen = 0;           // requests at decode workers with it
    bool released = false;  // a request to free it was sent
  };

  // A connection of the router's to a worker, from the worker's side.
  struct Link {
    int end = -1;
    int router_end = -1;
    uint16_t port = 0;
    LinkPhase phase = LinkPhase::kConnecting;
    bool router_closed = false;
    bool accepted = false;
    bool stalled = false;
    int born = 0;    // step
    int served = 0;  // requests
    std::string in = {};
    bool counted = false;  // the request that arrives
    std::optional<size_t> request = {};
    std::string script = {};
    std::vector<std::string> pieces = {};
    size_t next = 0;
    size_t body_from = 0;  // the piece that has the first byte of the body
    std::string out = {};

    bool is_prefill() const { return port < kDecodePort; }
    bool spoke() const { return !script.empty() && next > 0; }
    bool began_body() const { return !script.empty() && next > body_from; }
  };

  // A request at a decode worker that waits for blocks.
  struct Waiting {
    size_t link;
    int served;
    std::string pair;
  };

  struct Response {
    bool complete = false;
    bool bad = false;
    int status = 0;
    std::string body = {};
    size_t size = 0;
  };

  class NoEndpoints final : public OwnEndpoints {
   public:
    Task<AdminReply> Respond(IoThread&, AdminRequest) override { co_return AdminReply{}; }
    Task<std::shared_ptr<const AdminReply>> Elsewhere(
        IoThread&, CancelScope&, std::function<AdminReply()> work) override {
      co_return std::make_shared<const AdminReply>(work());
    }
  };

  static ServerOptions OptionsOf(const Scenario& scenario) {
    ServerOptions options;
    options.max_connections = 100;
    options.health_check_interval_ms = 0;
    options.load_poll_interval_ms = 0;
    options.request_timeout_ms = 50'000;
    options.stream_idle_timeout_ms = 40'000;
    options.client_write_timeout_ms = 35'000;
    options.retry = {.max_attempts = 3, .jitter_factor = 0, .budget = 1};
    options.kv_connector = options.pd.kv_connector = scenario.connector;
    options.pd.orphan = scenario.orphan;
    options.pd.on_prefill_loss = scenario.on_prefill_loss;
    return options;
  }

  static std::string Bits(std::initializer_list<bool> bits) {
    std::string text;
    for (const bool bit : bits) text += bit ? '1' : '0';
    return text;
  }

  static int LowestDescriptor() {
    const int descriptor = ::dup(2);
    ::close(descriptor);
    return descriptor;
  }

  static void CloseEnd(int* end) {
    if (*end >= 0) ::close(std::exchange(*end, -1));
  }

  static std::string NameOf(uint16_t port) {
    return port < kDecodePort ? Concat("P", port - kPrefillPort) : Concat("D", port - kDecodePort);
  }

  void Check(bool holds, const std::string& what) const {
    if (!holds) throw Violation{Concat(what, " (after \"", event_, "\")")};
  }

  bool is_vllm() const { return scenario_.connector != "sglang"; }

  // ---- what may happen

  template <typename Add>
  void AddChoicesOf(size_t index, const Add& add) {
    Client& client = clients_[index];
    const std::string name = Concat("client ", client.number, " ");
    const auto of = [this, index](void (World::*act)(Client&)) {
      return [this, index, act] { (this->*act)(clients_[index]); };
    };
    if (client.phase == Phase::kNew) {
      // Clients come one after the other, in this order.
      if (index > 0 && clients_[index - 1].phase != Phase::kSent) return;
      add(6, name + "sends", of(&World::SendWhole));
      add(2, name + "sends a part", of(&World::SendPart));
      return;
    }
    if (client.gone) return;
    if (client.phase == Phase::kPart && !client.half) add(6, name + "sends the rest", of(&World::SendRest));
    if (client.closed) return;
    add(1, name + "leaves", of(&World::Leave));
    add(1, name + "resets", of(&World::ResetClient));
    if (!client.half) add(1, name + "half-closes", of(&World::HalfClose));
    if (scenario_.long_texts && !client.stopped && client.phase == Phase::kSent)
      add(1, name + "stops reading", of(&World::StopReading));
    if (client.stopped) add(2, name + "reads on", of(&World::ReadOn));
  }

  template <typename Add>
  void AddChoicesOf(const Link& link, size_t index, const Add& add) {
    const std::string name = Concat(NameOf(link.port), " #", index, " ");
    const auto act = [this, index](auto function) {
      return [this, index, function] { function(links_[index]); };
    };
    if (link.router_closed || link.phase == LinkPhase::kClosed) return;
    if (link.phase == LinkPhase::kConnecting) {
      add(6, name + "accepts", act([this](Link& l) { Accept(l, false); }));
      add(1, name + "rejects the connection", act([this](Link& l) { RejectLink(l); }));
      if (scenario_.rare && scenario_.long_texts)
        add(1, name + "accepts and reads nothing", act([this](Link& l) { Accept(l, true); }));
      return;
    }
    if (link.stalled) add(3, name + "reads on", act([](Link& l) { l.stalled = false; }));
    if (link.phase == LinkPhase::kOpen && link.request && link.script.empty()) {
      for (const char* const script : ScriptsFor(requests_[*link.request])) {
        const bool good = std::string_view(script).starts_with("ok");
        add(good ? 6 : 1, Concat(name, "responds ", script),
            act([this, script](Link& l) { Begin(l, script); }));
      }
    }
    if (link.phase == LinkPhase::kOpen && link.next < link.pieces.size()) {
      add(6, name + "goes on", act([this](Link& l) { GoOn(l); }));
      add(6, name + "sends the rest", act([this](Link& l) {
            while (l.next < l.pieces.size()) GoOn(l);
          }));
    }
    if (link.phase == LinkPhase::kOpen) add(1, name + "ends", act([this](Link& l) { EndLink(l, false); }));
    add(1, name + "resets", act([this](Link& l) { EndLink(l, true); }));
  }

  std::vector<const char*> ScriptsFor(const Request& request) const {
    if (request.keeper) return {"ok", "500"};
    if (request.prefill) {
      if (scenario_.connector == "sglang") return {"ok", "ok in parts", "400", "429", "500"};
      return {"ok", "ok in parts", "ok without", "400", "429", "500"};
    }
    if (scenario_.stream)
      return {"ok", "ok in parts", "error event", "error event in parts", "400", "429", "500", "engine dead"};
    return {"ok", "ok in parts", "400", "429", "500", "engine dead"};
  }

  // ---- clients

  std::string BodyOf(const Client& client) const {
    return Concat(
        R"({"model":"m","prompt":")", scenario_.long_texts ? std::string(9'000, 'x') : std::string("x"),
        R"(","max_tokens":9,)", scenario_.stream ? R"("stream":true,)" : "",
        scenario_.merges ? R"("prompt_logprobs":1,)" : "", R"("user":"client-)", client.number, R"("})");
  }

  void Connect(Client& client) {
    const std::array<int, 2> ends = simulated_io::Pair();
    client.end = ends[1];
    Connection::Serve(
        *thread_, Socket(thread_->loop, ends[0]), {.address = "10.0.2.1", .port = 1}, ListenerKind::kPublic,
        pipeline_);
  }

  std::string RequestOf(const Client& client) const {
    const std::string body = BodyOf(client);
    return Concat(
        "POST /v1/completions HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\nContent-Length: ",
        body.size(), "\r\n\r\n", body);
  }

  // Sockets hold less than a long request.
  void SendAll(Client& client, std::string bytes) {
    for (int i = 0; i < 100 && !bytes.empty(); ++i) {
      const ssize_t sent = ::send(client.end, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent > 0) bytes.erase(0, static_cast<size_t>(sent));
      if (sent < 0 && errno != EAGAIN) return;
      Poll();
    }
  }

  void SendWhole(Client& client) {
    Connect(client);
    SendAll(client, RequestOf(client));
    client.phase = Phase::kSent;
    ++whole_;
  }
  void SendPart(Client& client) {
    Connect(client);
    SendAll(client, RequestOf(client).substr(0, 120));
    client.phase = Phase::kPart;
  }
  void SendRest(Client& client) {
    const bool serves = !client.closed && client.received.empty();  // it may have waited for too long
    SendAll(client, RequestOf(client).substr(120));
    client.phase = Phase::kSent;
    if (serves) ++whole_;
  }
  void Gone(Client& client) {
    client.gone = true;
    client.gone_step = step_;
  }
  void Leave(Client& client) {
    CloseEnd(&client.end);
    Gone(client);
  }
  void ResetClient(Client& client) {
    const int router_end = RouterEndOf(client.end);
    if (router_end >= 0) simulated_io::Reset(router_end);
    Leave(client);
  }
  void HalfClose(Client& client) {
    ::shutdown(client.end, SHUT_WR);
    client.half = true;
    client.gone_step = step_;
  }
  void StopReading(Client& client) { client.stopped = true; }
  void ReadOn(Client& client) { client.stopped = false; }

  static int RouterEndOf(int end) {
    const auto& all = simulated_io::Get().descriptors;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].peer == end) return static_cast<int>(i);
    }
    return -1;
  }

  // ---- workers

  void Accept(Link& link, bool stalled) {
    simulated_io::Drain(link.end);
    link.phase = LinkPhase::kOpen;
    link.accepted = true;
    link.stalled = stalled;
  }

  void RejectLink(Link& link) {
    simulated_io::RejectConnect(link.router_end);
    CloseEnd(&link.end);
    link.phase = LinkPhase::kClosed;
  }

  // FIN leaves the other direction open, as a process does that is about to close.
  void EndLink(Link& link, bool reset) {
    if (link.request || !link.in.empty()) NoteLoss(link);
    if (reset) {
      if (!link.router_closed) simulated_io::Reset(link.router_end);
      CloseEnd(&link.end);
      link.phase = LinkPhase::kClosed;
    } else {
      ::shutdown(link.end, SHUT_WR);
      link.phase = LinkPhase::kFinished;
    }
    link.out.clear();
  }

  // A decode worker that ends its connection before the first byte may have died of the request.
  void NoteLoss(const Link& link) {
    if (link.phase != LinkPhase::kOpen || link.router_closed) return;
    const std::optional<int> client = link.request ? requests_[*link.request].client : ClientIn(link.in);
    if (!client || *client < 0) return;
    Client& of = clients_[static_cast<size_t>(*client)];
    if (link.served > 0 && !link.spoke()) {
      of.stale.insert(link.port);
    } else if (!link.is_prefill() && !link.began_body() && (!link.spoke() || link.script.starts_with("ok"))) {
      ++of.decode_lost;
    }
  }

  void Begin(Link& link, const std::string& script) {
    link.script = script;
    link.pieces = PiecesOf(link, script);
    link.next = 0;
    GoOn(link);
    if (!script.ends_with("in parts")) {
      while (link.next < link.pieces.size()) GoOn(link);
    }
  }

  void GoOn(Link& link) {
    Request& request = requests_[*link.request];
    if (link.next == link.body_from) FirstByte(link, request);
    link.out += link.pieces[link.next++];
    if (link.next < link.pieces.size()) return;
    if (link.script == "engine dead" && request.client >= 0)
      ++clients_[static_cast<size_t>(request.client)].decode_lost;
    if (request.prefill && request.block) blocks_.at(*request.block).freed = false;
  }

  void FirstByte(const Link& link, Request& request) {
    if (!request.block || request.prefill) return;
    Block& block = blocks_.at(*request.block);
    // What begins like a good response, and then ends as an error, may have been taken for one.
    const bool fetched = request.status == 200 && link.script != "error event";
    if (fetched || request.status == 400) block.freed = true;
  }

  std::string Head(int status, bool stream, size_t length, std::string_view more = {}) const {
    return Concat(
        "HTTP/1.1 ", status, " S\r\nContent-Type: ", stream ? "text/event-stream" : "application/json",
        "\r\n", stream ? std::string("Transfer-Encoding: chunked") : Concat("Content-Length: ", length),
        "\r\n", more, "\r\n");
  }

  static std::string Chunk(std::string_view text) {
    char size[20];
    std::snprintf(size, sizeof size, "%zx\r\n", text.size());
    return Concat(size, text, "\r\n");
  }

  std::vector<std::string> PiecesOf(Link& link, std::string_view script) {
    Request& request = requests_[*link.request];
    const std::string mark = Concat("kk", *link.request, ";");
    const auto whole = [&](int status, const std::string& body, std::string_view more = {}) {
      request.status = status;
      const std::string head = Head(status, false, body.size(), more);
      link.body_from = 2;
      return std::vector<std::string>{
          head.substr(0, 20), head.substr(20), body.substr(0, body.size() / 2), body.substr(body.size() / 2)};
    };
    if (request.keeper && script == "ok")
      return whole(scenario_.orphan == PdOrphan::kCollect ? 200 : 400, "{}");
    const std::string error = Concat(R"({"error":{"message":")", mark, R"(","code":0}})");
    // Of the engine itself, which frees the blocks; one of its API frees nothing.
    if (script == "400")
      return whole(
          400, Concat(R"({"error":{"message":")", mark, R"(","type":"BadRequestError","code":400}})"));
    if (script == "429") return whole(429, error, "Retry-After: 1\r\n");
    if (script == "500") return whole(500, error);
    if (script == "engine dead") return whole(500, error + " EngineCore encountered an issue");
    if (request.prefill) return whole(200, PrefillBody(request, mark, script));
    request.status = 200;
    if (!scenario_.stream) return whole(200, DecodeBody(mark));
    const std::string head = Head(200, true, 0);
    link.body_from = 2;
    if (script.starts_with("error event")) {
      const std::string event = Concat("data: {\"error\": {\"message\": \"", mark, "\", \"code\": 500}}\n\n");
      const std::string chunk = Chunk(event);
      return {head.substr(0, 20), head.substr(20), chunk.substr(0, 12), chunk.substr(12) + "0\r\n\r\n"};
    }
    const std::string more = scenario_.long_texts ? std::string(20'000, 'y') : std::string("y");
    const std::string first = Chunk(Concat(R"(data: {"choices":[{"index":0,"text":")", mark, "\"}]}\n\n"));
    return {
        head.substr(0, 20),
        head.substr(20) + first.substr(0, 2),
        first.substr(2, 14),
        first.substr(16),
        Chunk(Concat(R"(data: {"choices":[{"index":0,"text":")", mark, more, "\"}]}\n\n")),
        Chunk("data: [DONE]\n\n") + "0\r\n\r\n"};
  }

  std::string PrefillBody(Request& request, const std::string& mark, std::string_view script) {
    std::string parameters = "null";
    if (script != "ok without" && scenario_.connector != "sglang") {
      const int block = static_cast<int>(blocks_.size());
      blocks_.push_back({.client = request.client});
      request.block = block;
      parameters = Concat(
          R"({"remote_engine_id":"e","remote_request_id":"r)", block,
          R"(","remote_host":"10.0.0.1","remote_port":5600,"remote_block_ids":[[)", block, "]]",
          scenario_.connector == "nixl_push" ? R"(,"transfer_mode":"push","tp_size":1})" : "}");
    }
    return Concat(
        R"({"choices":[{"index":0,"text":")", mark,
        R"(","finish_reason":"length","prompt_logprobs":[null]}],)", R"("kv_transfer_params":)", parameters,
        "}");
  }

  std::string DecodeBody(const std::string& mark) const {
    return Concat(
        R"({"choices":[{"index":0,"text":")", mark,
        scenario_.long_texts ? std::string(20'000, 'y') : std::string("y"), R"(","finish_reason":"stop"}]})");
  }

  void Die(const std::shared_ptr<Worker>& worker) {
    dead_.insert(worker->url.port);
    (void)router_->SetHealthy(worker->url.url, false);
    const std::vector<Connection*> open(thread_->connections.begin(), thread_->connections.end());
    for (Connection* const connection : open) connection->WorkerDied(*worker);
  }

  // ---- the loop

  void Poll() {
    while (thread_->loop.context().poll() > 0) {
    }
  }

  // Until the next timer has fired, or something has happened.
  void PassTime() {
    for (int64_t passed = 0; passed < kHorizonMs;) {
      const size_t armed = thread_->loop.timers().armed();
      const uint64_t calls = simulated_io::Get().calls;
      const size_t open = thread_->connections.size();
      const int64_t in_flight = thread_->telemetry.in_flight.load();
      const int64_t tick = std::max(kTickMs, passed / 8);
      simulated_io::Advance(tick * 1'000'000);
      passed += tick;
      passed_ms_ += tick;
      Poll();
      const bool same = armed == thread_->loop.timers().armed() && calls == simulated_io::Get().calls &&
                        open == thread_->connections.size() &&
                        in_flight == thread_->telemetry.in_flight.load();
      if (!same) return;
    }
  }

  void Settle() {
    for (bool more = true; more;) {
      Poll();
      more = false;
      for (const simulated_io::Connecting& connecting : std::exchange(simulated_io::Get().connecting, {})) {
        links_.push_back(
            {.end = connecting.peer,
             .router_end = connecting.descriptor,
             .port = connecting.port,
             .born = step_});
        more = true;
      }
      for (Link& link : links_) more |= Move(link);
      for (Client& client : clients_) more |= Read(client);
    }
    CheckWaiting();
  }

  // Bytes of one connection, in both directions.
  bool Move(Link& link) {
    if (link.end < 0) return false;
    bool moved = false;
    while (!link.out.empty()) {
      const ssize_t sent = ::send(link.end, link.out.data(), link.out.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent <= 0) break;
      link.out.erase(0, static_cast<size_t>(sent));
      moved = true;
    }
    if (link.phase == LinkPhase::kConnecting) {
      pollfd state{.fd = link.end, .events = 0, .revents = 0};
      if (::poll(&state, 1, 0) > 0 && (state.revents & POLLHUP) != 0) NoteClosed(link);
      return moved;
    }
    if (link.stalled) {
      pollfd state{.fd = link.end, .events = 0, .revents = 0};
      if (::poll(&state, 1, 0) > 0 && (state.revents & POLLHUP) != 0) NoteClosed(link);
      return moved;
    }
    std::array<char, 16'384> bytes;
    for (;;) {
      const long got =
          ::syscall(SYS_recvfrom, link.end, bytes.data(), bytes.size(), MSG_DONTWAIT, nullptr, nullptr);
      if (got > 0) {
        link.in.append(bytes.data(), static_cast<size_t>(got));
        moved = true;
        continue;
      }
      if (got == 0 || errno != EAGAIN) NoteClosed(link);
      break;
    }
    TakeRequest(link);
    FinishResponse(link);
    return moved;
  }

  void NoteClosed(Link& link) {
    if (std::exchange(link.router_closed, true)) return;
    closed_now_.push_back(static_cast<size_t>(&link - links_.data()));
    CloseEnd(&link.end);
  }

  // The next request may come once the response has left.
  void FinishResponse(Link& link) {
    if (!link.request || link.script.empty() || link.next < link.pieces.size() || !link.out.empty()) return;
    requests_[*link.request].complete = true;
    link.request.reset();
    link.script.clear();
    link.pieces.clear();
    link.next = 0;
    link.counted = false;
    ++link.served;
  }

  static std::optional<int> ClientIn(std::string_view text) {
    const size_t at = text.find("client-");
    if (at == std::string_view::npos) return std::nullopt;
    return text[at + 7] - '0';
  }

  static std::string Between(std::string_view text, std::string_view from, std::string_view to) {
    const size_t at = text.find(from);
    if (at == std::string_view::npos) return {};
    const size_t begin = at + from.size();
    return std::string(text.substr(begin, text.find(to, begin) - begin));
  }

  void TakeRequest(Link& link) {
    if (link.request || link.in.empty()) return;
    const size_t head_end = link.in.find("\r\n\r\n");
    if (head_end == std::string::npos) return;
    const std::string length = Between(link.in, "ontent-Length: ", "\r\n");
    Check(!length.empty(), "a worker's request has a length");
    const size_t size = head_end + 4 + std::stoul(length);
    if (link.in.size() < size) return;
    Check(link.in.size() == size, "a worker gets its next request after its response");
    const std::string body = link.in.substr(head_end + 4);
    link.in.clear();
    Request request{.client = ClientIn(body).value_or(-1), .prefill = link.is_prefill()};
    const bool names_blocks = body.find("\"remote_engine_id\":\"") != std::string::npos;
    request.keeper =
        !request.prefill && (body.find("\"max_tokens\":-3") != std::string::npos ||
                             (names_blocks && body.find("\"max_tokens\":1,") != std::string::npos));
    request.transfers =
        !request.prefill && (names_blocks || body.find("bootstrap_room") != std::string::npos);
    request.pair = Between(body, "\"transfer_id\":\"", "\"");
    if (request.pair.empty()) request.pair = Between(body, "\"bootstrap_room\":", ",");
    if (!request.pair.empty() && request.pair.back() == '}') request.pair.pop_back();
    const std::string block = Between(body, "\"remote_block_ids\":[[", "]]");
    if (!request.prefill && !block.empty()) request.block = std::stoi(block);
    CheckRequest(link, request);
    link.request = requests_.size();
    requests_.push_back(std::move(request));
  }

  bool Read(Client& client) {
    if (client.end < 0 || client.stopped || client.closed) return false;
    bool read = false;
    std::array<char, 16'384> bytes;
    for (;;) {
      const long got =
          ::syscall(SYS_recvfrom, client.end, bytes.data(), bytes.size(), MSG_DONTWAIT, nullptr, nullptr);
      if (got > 0) {
        if (client.received.empty()) client.begun_step = step_;
        client.received.append(bytes.data(), static_cast<size_t>(got));
        read = true;
        continue;
      }
      if (got == 0 || errno != EAGAIN) client.closed = true;
      break;
    }
    if (read) CheckResponse(client);
    return read;
  }

  // ---- what must hold

  // A request that has just arrived.
  void CheckRequest(const Link& link, const Request& request) {
    if (request.block) {
      Check(
          *request.block < static_cast<int>(blocks_.size()), "a block's number is one that was handed over");
      Block& block = blocks_[static_cast<size_t>(*request.block)];
      if (request.keeper) {
        Check(block.seen == 0, "blocks that a decode worker may have seen are not freed by another request");
        Check(scenario_.orphan != PdOrphan::kCollect || !block.released, "blocks are fetched once");
        block.released = true;
      } else {
        Check(block.client == request.client, "a client's blocks are its own");
        const bool stale = IsStale(request.client, link.port);
        Check(block.seen == 0 || stale, "blocks are sent to one decode worker");
        Check(!block.released, "blocks that were freed are sent to no decode worker");
        ++block.seen;
      }
    }
    if (request.keeper || request.client < 0) return;
    const Client& client = clients_[static_cast<size_t>(request.client)];
    const bool stale = IsStale(request.client, link.port);
    if (!request.pair.empty()) {
      std::vector<uint16_t>& users = pairs_[Concat(request.prefill ? "P" : "D", request.pair)];
      Check(users.empty() || stale, "a transfer has one request in each stage");
      users.push_back(link.port);
    }
    const int since = link.served > 0 ? step_ : link.born;
    Check(
        client.begun_step == 0 || since <= client.begun_step || stale,
        "no attempt after the client's first byte");
    const bool left = client.gone_step != 0 && since > client.gone_step;
    Check(!left || stale, "no attempt after the client's departure");
    if (request.prefill) return;
    Check(
        !request.transfers || client.decode_lost == 0 || !is_vllm(),
        "no parameters after a decode worker was lost");
    Check(
        client.decode_lost < 2, "a request loses two decode workers at most, the second without parameters");
  }

  bool IsStale(int client, uint16_t port) const {
    return client >= 0 && clients_[static_cast<size_t>(client)].stale.contains(port);
  }

  bool WaitsForBlocks(const Link& link) const {
    return !link.is_prefill() && link.phase == LinkPhase::kOpen && !link.router_closed && link.request &&
           !requests_[*link.request].keeper && requests_[*link.request].transfers &&
           (link.script.empty() || (link.script.starts_with("ok") && !link.began_body()));
  }

  void NoteWaiting() {
    closed_now_.clear();
    waiting_.clear();
    for (size_t i = 0; i < links_.size(); ++i) {
      const Link& link = links_[i];
      if (WaitsForBlocks(link)) waiting_.push_back({i, link.served, requests_[*link.request].pair});
    }
  }

  // Engines leak blocks for ever if prefill is aborted while decode waits for it.
  void CheckWaiting() {
    if (scenario_.connector != "nixl_push") return;
    for (const size_t closed : closed_now_) {
      const Link& prefill = links_[closed];
      if (!prefill.is_prefill() || prefill.phase != LinkPhase::kOpen || !prefill.request || prefill.spoke())
        continue;
      for (const Waiting& waiting : waiting_) {
        const Link& decode = links_[waiting.link];
        const bool has_left = decode.phase != LinkPhase::kOpen || decode.spoke() ||
                              decode.served != waiting.served || dead_.contains(decode.port) ||
                              dead_.contains(prefill.port);
        const bool is_timer = event_ == "time passes" || event_ == "all leave" || cut_;
        if (requests_[*prefill.request].pair != waiting.pair || is_timer) continue;
        Check(has_left, "prefill is not closed while decode waits for blocks");
      }
    }
  }

  static Response ResponseOf(std::string_view text) {
    Response response;
    const size_t head_end = text.find("\r\n\r\n");
    if (head_end == std::string_view::npos) return response;
    std::string head(text.substr(0, head_end));
    std::ranges::transform(
        head, head.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
    if (!head.starts_with("http/1.1 ")) return {.bad = true};
    response.status = std::stoi(head.substr(9));
    size_t at = head_end + 4;
    const std::string length = Between(head + "\r\n", "content-length: ", "\r\n");
    if (!length.empty()) {
      const size_t size = std::stoul(length);
      response.body = std::string(text.substr(at, size));
      response.complete = response.body.size() == size;
      response.size = at + size;
      return response;
    }
    if (head.find("transfer-encoding: chunked") == std::string::npos) return {.bad = true};
    for (;;) {
      const size_t line = text.find("\r\n", at);
      if (line == std::string_view::npos) return response;
      const size_t size = std::stoul(std::string(text.substr(at, line - at)), nullptr, 16);
      response.body += text.substr(line + 2, size);
      at = line + 2 + size + 2;
      if (at > text.size()) return response;
      if (size == 0) break;
    }
    response.complete = true;
    response.size = at;
    return response;
  }

  // The requests at workers whose bytes are in this response.
  static std::set<size_t> MarksIn(std::string_view body) {
    std::set<size_t> marks;
    for (size_t at = body.find("kk"); at != std::string_view::npos; at = body.find("kk", at + 1)) {
      const size_t end = body.find(';', at);
      if (end != std::string_view::npos)
        marks.insert(std::stoul(std::string(body.substr(at + 2, end - at - 2))));
    }
    return marks;
  }

  void CheckResponse(const Client& client) const {
    const Response response = ResponseOf(client.received);
    Check(!response.bad, "a client gets HTTP");
    Check(!response.complete || client.received.size() == response.size, "no byte behind a response");
    const std::set<size_t> marks = MarksIn(response.body);
    Check(marks.size() <= 1, "a response is of one worker");
    if (marks.empty()) {
      Check(
          response.status == 0 || response.status >= 400 || !response.complete,
          "a good response is a worker's");
      return;
    }
    const Request& request = requests_.at(*marks.begin());
    Check(request.client == client.number, "a response is of the client's own request");
    Check(response.status == request.status, "a response has its worker's status");
    Check(!request.prefill || response.status / 100 != 2, "a good response is a decode worker's");
  }

  bool AnyLinkBusy() const {
    return std::ranges::any_of(links_, [](const Link& link) {
      const bool is_over = link.router_closed || link.phase == LinkPhase::kClosed;
      return !is_over && (link.phase == LinkPhase::kConnecting || link.request || !link.in.empty());
    });
  }

  bool AllResponded() const {
    return std::ranges::all_of(clients_, [](const Client& client) {
      return client.phase == Phase::kNew || client.gone || client.closed ||
             ResponseOf(client.received).complete;
    });
  }

  void CheckClients() const {
    for (const Client& client : clients_) {
      if (client.phase == Phase::kNew || client.gone || client.half) continue;
      const Response response = ResponseOf(client.received);
      Check(
          client.closed || response.complete,
          Concat("client ", client.number, " gets a response or an abort"));
      if (response.complete) {
        const std::set<size_t> marks = MarksIn(response.body);
        const bool whole = marks.empty() || requests_.at(*marks.begin()).complete || IsSent(*marks.begin());
        Check(whole, "a whole response was sent whole by its worker");
        const bool failed = marks.empty() && (response.status == 502 || response.status == 504);
        if (failed && scenario_.on_prefill_loss == PdOnPrefillLoss::kLocal) CheckDecodeWasTried();
      } else if (!cut_) {
        Check(
            !client.received.empty(),
            Concat("client ", client.number, " gets a response before its connection ends"));
      }
    }
  }

  // REQUIRES: there was one client, and the router's own response is what it got.
  void CheckDecodeWasTried() const {
    const bool tried =
        std::ranges::any_of(links_, [](const Link& link) { return !link.is_prefill() || link.accepted; });
    Check(tried, "decode is tried alone where no prefill worker is reached");
  }

  bool IsSent(size_t request) const {
    return std::ranges::any_of(links_, [request](const Link& link) {
      return link.request == request && !link.script.empty() && link.next == link.pieces.size() &&
             link.out.empty();
    });
  }

  std::map<std::string, uint64_t> Counts(LabeledCounters StageCounters::*which) const {
    std::map<std::string, uint64_t> counts;
    const StageCounters* const pd = thread_->telemetry.shard().stages.counters();
    if (pd == nullptr) return counts;
    (pd->*which).ForEach([&counts](std::string_view name, uint64_t count) {
      counts[std::string(name)] = count;
    });
    return counts;
  }

  void CheckEnd() {
    Check(thread_->connections.empty(), "every client's connection ends");
    Check(thread_->telemetry.in_flight.load() == 0, "no exchange is left");
    Check(!AnyLinkBusy(), "no request at a worker is left");
    for (const std::shared_ptr<Worker>& worker : workers_) {
      const std::string name = NameOf(worker->url.port);
      const WorkerLoad& load = worker->load;
      Check(load.open_requests() == 0 && load.own_waiting() == 0, Concat("no request counts at ", name));
      Check(
          load.own_queued_prefill() == 0 && load.own_expected_output() == 0 && load.own_context() == 0,
          Concat("no token counts at ", name));
    }
    Check(limits_->concurrency.in_use() == 0 && limits_->concurrency.waiting() == 0, "permits are back");
    Check(limits_->body_memory.in_use() == 0 && limits_->body_memory.waiting() == 0, "body memory is back");
    Check(
        thread_->telemetry.connections.upstream_open.load() ==
            thread_->telemetry.connections.upstream_idle.load(),
        "connections are back");
    CheckClaims();
    CheckAttempts();
    uint64_t plans = 0;
    for (const auto& [kind, count] : Counts(&StageCounters::plans)) plans += count;
    Check(plans == whole_, Concat("plans are counted once: ", plans, " of ", whole_));
    // Passes of circuit breakers: one that is open lets a probe through in time.
    simulated_io::Advance(int64_t{3'600'000'000'000});
    for (const std::shared_ptr<Worker>& worker : workers_) {
      (void)worker->breaker.ComeDue(options_.breaker, simulated_io::Get().now_ns);
      Check(
          worker->breaker.TryPass(options_.breaker).has_value(),
          Concat("the breaker's pass is back of ", NameOf(worker->url.port)));
    }
  }

  // What was sent to a worker is an attempt in the record of one request.
  void CheckAttempts() const {
    const auto& seen = *thread_->features.Find<SeenAttempts>();
    Check(seen.fault.empty(), seen.fault);
    for (const std::shared_ptr<Worker>& worker : workers_) {
      const WorkerCounters* const counters = thread_->telemetry.shard().workers.Find(worker->id);
      const WorkerCounters::Pair* const pair = counters != nullptr ? counters->pair.Find() : nullptr;
      const auto found = seen.sent.find(worker->url.port);
      Check(
          (found == seen.sent.end() ? 0 : found->second) == (pair == nullptr ? 0 : pair->requests.count()),
          Concat("records have each attempt at ", NameOf(worker->url.port)));
    }
  }

  void CheckClaims() const {
    if (scenario_.connector == "sglang") return;
    uint64_t ends = 0;
    std::map<std::string, uint64_t> counts = Counts(&StageCounters::claims);
    for (const auto& [end, count] : counts) ends += end == "reused" ? 0 : count;
    Check(ends <= blocks_.size(), "a claim ends once");
    if (scenario_.connector != "nixl") return;
    uint64_t held = 0, handed = 0;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const bool arrived = std::ranges::any_of(requests_, [i](const Request& request) {
        return request.prefill && request.block == static_cast<int>(i) && request.complete;
      });
      if (!arrived) continue;
      ++handed;
      held += blocks_[i].freed ? 0 : 1;
    }
    Check(ends <= handed, "only blocks that were handed over are claimed");
    Check(held <= counts["expired"] + (handed - ends), "blocks that nobody frees are counted as expired");
  }

  const Scenario& scenario_;
  const ServerOptions options_;
  const std::string hop_name_ = "router";
  const KeySets keys_;
  NoEndpoints endpoints_;
  const Pipeline pipeline_{StepsAndSeen(), endpoints_};
  std::shared_ptr<Router> router_;
  std::unique_ptr<TlsFiles> tls_;
  std::unique_ptr<ServerLimits> limits_;
  std::unique_ptr<Snapshot<Settings>> settings_;
  std::unique_ptr<IoThread> thread_;
  std::vector<std::shared_ptr<Worker>> workers_;

  int first_descriptor_ = -1;
  int step_ = 0;
  std::string event_;
  int64_t passed_ms_ = 0;
  bool cut_ = false;
  uint64_t whole_ = 0;  // requests that arrived whole
  std::set<uint16_t> dead_;
  std::vector<Client> clients_;
  std::vector<Link> links_;
  std::vector<Request> requests_;  // at workers
  std::vector<Block> blocks_;
  std::map<std::string, std::vector<uint16_t>> pairs_;
  std::vector<Waiting> waiting_;    // before the step
  std::vector<size_t> closed_now_;  // by the router, in the step
};

}  // namespace vllm_router
