// TLS by OpenSSL, on the descriptor itself: what is read goes straight from the kernel into OpenSSL's buffer, which
// exists only while a record is incomplete. An idle connection so holds 10-odd KiB, where a pair of memory BIOs or
// asio::ssl would hold 80.
//
//   TlsContext    certificates and rules of one side, shared by all its connections; a new one replaces it whole
//   TlsSession    one connection's state, owned by its Socket, which is who calls it
//
// A context may be shared by threads; a session belongs to one loop. Cost of a handshake: 0.3 ms (P-256).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "net/socket.h"

struct ssl_ctx_st;
struct ssl_st;

namespace vllm_router {

// 1.2 or 1.3; earlier ones are broken.
enum class TlsVersion : uint8_t { k12, k13 };

// Cipher suites of TLS 1.2, as OpenSSL writes them: forward secrecy and authenticated encryption, which clients have had
// since 2014. Those of TLS 1.3 are all of that kind and stay OpenSSL's.
inline constexpr char kDefaultTlsCiphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";

// InvalidArgument names the element of the list that chooses no suite of TLS 1.2, which OpenSSL would pass over in silence.
Status CheckTlsCiphers(const std::string& ciphers);

class TlsContext {
 public:
  struct ForClients {
    std::string cert_path;       // PEM: the certificate, then those between it and the authority
    std::string key_path;        // PEM, not encrypted
    std::string client_ca_path;  // PEM; empty: clients need no certificate
    TlsVersion least = TlsVersion::k12;
    std::string ciphers = kDefaultTlsCiphers;  // REQUIRES: CheckTlsCiphers() is ok
  };
  // FailedPrecondition names the file and what is wrong with it.
  static StatusOr<std::shared_ptr<const TlsContext>> Make(const ForClients& options);

  struct ForWorkers {
    std::string ca_path;    // PEM; empty: the system's authorities
    bool insecure = false;  // whatever certificate, for whatever name
    std::string cert_path;  // shown to workers that ask; empty: none
    std::string key_path;
    TlsVersion least = TlsVersion::k12;
    std::string ciphers = kDefaultTlsCiphers;  // likewise
  };
  static StatusOr<std::shared_ptr<const TlsContext>> Make(const ForWorkers& options);

  // When its own certificate ends, Unix time in seconds; nullopt: it shows none.
  std::optional<int64_t> certificate_ends() const;

  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class TlsSession;
  struct Sessions;
  TlsContext(ssl_ctx_st* context, bool to_workers, bool verify);

  ssl_ctx_st* const context_;
  const bool to_workers_;
  const bool verify_;
  const std::unique_ptr<Sessions> sessions_;  // of workers, so that the next handshake is half of one
};

class TlsSession {
 public:
  // `host`: a worker's name or address, which its certificate has to hold; unused for clients, as the port is.
  TlsSession(
      std::shared_ptr<const TlsContext> context, int descriptor, const std::string& host, uint16_t port);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // All as the calls of Socket: they never wait. Until Handshake() is ok() nothing else may be called.
  IoResult Handshake();
  IoResult Read(std::span<char> room);
  // What would block has to be offered again: the record that holds it may be half on its way.
  IoResult Write(std::span<const iovec> pieces);
  // Tells the peer, as far as that goes at once, that no more will come.
  void Shutdown();

  // Whether there is plain text, or an end, to be read. Deciphers what has come, to know.
  bool HasUnread();
  bool HasText();
  // Nothing is left, neither here nor in the kernel, and no end has come.
  bool drained() const;
  bool wants_write() const { return wants_write_; }  // to go on with what would block
  bool done() const { return done_; }
  bool resumed() const;
  const std::string& why() const { return why_; }  // it failed

 private:
  friend struct TlsBio;
  IoResult Failed(int returned, int error);

  const std::shared_ptr<const TlsContext> context_;
  const int descriptor_;
  const std::string key_;  // of the session that it may take up
  ssl_st* const ssl_;
  size_t retry_length_ = 0;  // of the record that is half on its way
  bool drained_ = false;     // the kernel had no more at the last look
  bool wants_write_ = false;
  bool done_ = false;
  bool broken_ = false;
  std::string why_;
};

}  // namespace vllm_router
