// TLS by OpenSSL on the descriptor itself: bytes go straight from the kernel into OpenSSL's buffer,
// which exists only while a record is incomplete. So an idle connection holds about 10 KiB; a pair of
// memory BIOs or asio::ssl would hold 80.
//
//   TlsContext    certificates and rules of one side, shared by all its connections; a reload replaces it
//   TlsSession    one connection's state, owned and called by its Socket
//
// Threads may share a context; a session belongs to one loop. Cost of a handshake: 0.3 ms (P-256).
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

// 1.2 or 1.3; earlier versions are broken.
enum class TlsVersion : uint8_t { k12, k13 };

// Cipher suites of TLS 1.2 in OpenSSL's syntax: forward secrecy and authenticated encryption, which
// clients have supported since 2014. All suites of TLS 1.3 have both, and OpenSSL's default is used.
inline constexpr char kDefaultTlsCiphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";

// InvalidArgument names the list element that selects no suite of TLS 1.2; OpenSSL would ignore it
// silently.
Status CheckTlsCiphers(const std::string& ciphers);

class TlsContext {
 public:
  struct ForClients {
    std::string cert_path;       // PEM: the certificate, then the intermediates up to the CA
    std::string key_path;        // PEM, not encrypted
    std::string client_ca_path;  // PEM; empty: clients need no certificate
    TlsVersion least = TlsVersion::k12;
    std::string ciphers = kDefaultTlsCiphers;  // REQUIRES: CheckTlsCiphers() is ok
    bool speaks_http2 = false;                 // HTTP/2 alone (ALPN: h2), as gRPC needs it; else HTTP/1.1
  };
  // FailedPrecondition names the file and its error.
  static StatusOr<std::shared_ptr<const TlsContext>> Make(const ForClients& options);

  struct ForWorkers {
    std::string ca_path;    // PEM; empty: the system CAs
    bool insecure = false;  // accept any certificate for any name
    std::string cert_path;  // sent to workers that request one; empty: none
    std::string key_path;
    TlsVersion least = TlsVersion::k12;
    std::string ciphers = kDefaultTlsCiphers;  // likewise
  };
  static StatusOr<std::shared_ptr<const TlsContext>> Make(const ForWorkers& options);

  // When its own certificate expires, Unix time in seconds; nullopt: it presents none.
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
  const std::unique_ptr<Sessions> sessions_;  // of workers, so that the next handshake is abbreviated
};

class TlsSession {
 public:
  // `host`: a worker's name or address, which its certificate must contain; unused for clients, as is
  // `port`.
  TlsSession(
      std::shared_ptr<const TlsContext> context, int descriptor, const std::string& host, uint16_t port);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // All behave as Socket's calls: they never wait. Until Handshake() is ok() nothing else may be called.
  IoResult Handshake();
  IoResult Read(std::span<char> room);
  // After a result that would block, the same bytes must be offered again: their record may be half
  // sent.
  IoResult Write(std::span<const iovec> pieces);
  // Sends the peer the TLS end, as far as that is possible without waiting.
  void Shutdown();

  // Whether plaintext, or an end, can be read. Decrypts what has arrived to find out.
  bool HasUnread();
  bool HasText();
  // Nothing is left, neither here nor in the kernel, and no end has come.
  bool drained() const;
  bool wants_write() const { return wants_write_; }  // to continue a call that would block
  bool done() const { return done_; }
  bool resumed() const;
  const std::string& why() const { return why_; }  // reason of a failure

 private:
  friend struct TlsBio;
  IoResult Failed(int returned, int error);

  const std::shared_ptr<const TlsContext> context_;
  const int descriptor_;
  const std::string key_;  // of the session that it may resume
  ssl_st* const ssl_;
  size_t retry_length_ = 0;  // of the record that is half sent
  bool drained_ = false;     // the kernel had no more bytes at the last read
  bool wants_write_ = false;
  bool done_ = false;
  bool broken_ = false;
  std::string why_;
};

}  // namespace vllm_router
