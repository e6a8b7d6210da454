#include "net/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "base/limits.h"
#include "base/mutex.h"
#include "base/text.h"

namespace vllm_router {

// Socket calls as OpenSSL makes them: without signals, and noting when the kernel has no more bytes.
struct TlsBio {
  static TlsSession* Of(BIO* bio) { return static_cast<TlsSession*>(BIO_get_data(bio)); }

  static int Read(BIO* bio, char* room, int size) {
    TlsSession* session = Of(bio);
    BIO_clear_retry_flags(bio);
    const ssize_t got = ::recv(session->descriptor_, room, static_cast<size_t>(size), MSG_DONTWAIT);
    session->drained_ = got < size;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) BIO_set_retry_read(bio);
    return static_cast<int>(got);
  }

  static int Write(BIO* bio, const char* bytes, int size) {
    BIO_clear_retry_flags(bio);
    const ssize_t sent =
        ::send(Of(bio)->descriptor_, bytes, static_cast<size_t>(size), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) BIO_set_retry_write(bio);
    return static_cast<int>(sent);
  }

  static long Control(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
    return command == BIO_CTRL_FLUSH ? 1 : 0;
  }

  static BIO* Make(TlsSession* session) {
    static BIO_METHOD* const method = [] {
      BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket of a loop");
      BIO_meth_set_read(made, &Read);
      BIO_meth_set_write(made, &Write);
      BIO_meth_set_ctrl(made, &Control);
      return made;
    }();
    BIO* bio = BIO_new(method);
    BIO_set_data(bio, session);
    BIO_set_init(bio, 1);
    return bio;
  }
};

namespace {

constexpr size_t kRecordBytes = 16 * 1024;  // maximum of a record
constexpr size_t kRecordsPerWrite = 4;
constexpr std::array<unsigned char, 9> kHttp11 = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
constexpr std::array<unsigned char, 3> kHttp2 = {2, 'h', '2'};

// Returns OpenSSL's newest error and clears all of them.
std::string TakeError() {
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  if (error == 0) return {};
  const char* reason = ERR_reason_error_string(error);
  return reason != nullptr ? reason : Concat("error ", static_cast<uint64_t>(error));
}

// Why OpenSSL rejected a file: the system's error if there is one, which OpenSSL's own hides.
std::string WhyNot(const std::string& path) {
  const std::string reason = TakeError();
  if (std::FILE* file = std::fopen(path.c_str(), "re")) {
    std::fclose(file);
    return reason.empty() ? "it is not PEM" : reason;
  }
  return std::strerror(errno);
}

Status BadFile(std::string_view what, const std::string& path) {
  return absl::FailedPreconditionError(Concat(
      what, " ", path, " cannot be used: ", WhyNot(path),
      "; give a PEM file that this process may read (a key without a password)"));
}

// Without this, OpenSSL would prompt for a password at the terminal and block.
int NoPassword(char* /*room*/, int /*size*/, int /*writing*/, void* /*context*/) { return 0; }

template <const auto& kSpoken>
int ChooseProtocol(
    SSL* /*ssl*/, const unsigned char** chosen, unsigned char* size, const unsigned char* offered,
    unsigned int offered_size, void* /*context*/) {
  unsigned char* found = nullptr;
  const int result = SSL_select_next_proto(
      &found, size, kSpoken.data(), static_cast<unsigned int>(kSpoken.size()), offered, offered_size);
  *chosen = found;
  return result == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

using ContextOwner = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

ContextOwner NewContext(const SSL_METHOD* method, TlsVersion least, const std::string& ciphers) {
  ERR_clear_error();
  ContextOwner context(SSL_CTX_new(method), &SSL_CTX_free);
  SSL_CTX_set_min_proto_version(context.get(), least == TlsVersion::k13 ? TLS1_3_VERSION : TLS1_2_VERSION);
  SSL_CTX_set_cipher_list(context.get(), ciphers.c_str());
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // Buffers exist only while in use. Writes are whole records, and a retry may pass another address.
  SSL_CTX_set_mode(
      context.get(),
      SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(context.get(), 1);
  SSL_CTX_set_default_passwd_cb(context.get(), &NoPassword);
  return context;
}

Status UseCertificate(SSL_CTX* context, const std::string& cert_path, const std::string& key_path) {
  if (SSL_CTX_use_certificate_chain_file(context, cert_path.c_str()) != 1) {
    return BadFile("the certificate", cert_path);
  }
  if (SSL_CTX_use_PrivateKey_file(context, key_path.c_str(), SSL_FILETYPE_PEM) == 1) return absl::OkStatus();
  if (ERR_GET_REASON(ERR_peek_last_error()) != X509_R_KEY_VALUES_MISMATCH) {
    return BadFile("the private key", key_path);
  }
  ERR_clear_error();
  return absl::FailedPreconditionError(Concat(
      "the private key ", key_path, " does not match the certificate ", cert_path,
      "; give a certificate and its own key"));
}

bool ChoosesSuites(const std::string& ciphers) {
  ContextOwner scratch(SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
  const bool some = SSL_CTX_set_cipher_list(scratch.get(), ciphers.c_str()) == 1;
  ERR_clear_error();
  return some;
}

bool IsAddress(const std::string& host) { return ParseAddress(host).has_value(); }

}  // namespace

// Checked element by element, except those that remove or reorder suites: an unknown suite is fine
// there.
Status CheckTlsCiphers(const std::string& ciphers) {
  const auto bad = [](std::string_view what) {
    return absl::InvalidArgumentError(Concat(
        "tls_ciphers: ", JsonQuoted(what),
        " selects no cipher suite of TLS 1.2 that OpenSSL knows (those of TLS 1.3 cannot be selected); "
        "`openssl ciphers -v -tls1_2` lists them, and the default is ",
        kDefaultTlsCiphers));
  };
  constexpr std::string_view kSeparators = ": ,";
  for (size_t at = 0; at < ciphers.size();) {
    const size_t end = std::min(ciphers.find_first_of(kSeparators, at), ciphers.size());
    const std::string element = ciphers.substr(at, end - at);
    at = end + 1;
    const bool adds = !element.empty() && std::string_view("!-+@").find(element[0]) == std::string_view::npos;
    if (adds && !ChoosesSuites(element)) return bad(element);
  }
  return ChoosesSuites(ciphers) ? absl::OkStatus() : bad(ciphers);
}

// The last session of each worker, for its next connection to resume.
struct TlsContext::Sessions {
  Mutex mutex;  // leaf
  std::unordered_map<std::string, SSL_SESSION*> last ABSL_GUARDED_BY(mutex);

  ~Sessions() {
    for (const auto& [host, session] : last) SSL_SESSION_free(session);
  }

  // OpenSSL calls this when a worker issues a session ticket. Takes the session over, or returns 0.
  static int Keep(SSL* ssl, SSL_SESSION* session) {
    const auto* key = static_cast<const std::string*>(SSL_get_app_data(ssl));
    auto* sessions = static_cast<Sessions*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
    MutexLock lock(sessions->mutex);
    if (sessions->last.size() >= kMaxWorkers && !sessions->last.contains(*key)) return 0;
    SSL_SESSION_free(std::exchange(sessions->last[*key], session));
    return 1;
  }

  void TakeUp(const std::string& key, SSL* ssl) {
    MutexLock lock(mutex);
    const auto found = last.find(key);
    if (found != last.end()) SSL_set_session(ssl, found->second);
  }
};

StatusOr<std::shared_ptr<const TlsContext>> TlsContext::Make(const ForClients& options) {
  ContextOwner context = NewContext(TLS_server_method(), options.least, options.ciphers);
  ROUTER_RETURN_IF_ERROR(UseCertificate(context.get(), options.cert_path, options.key_path));
  // Clients keep their resumption state in their tickets, so nothing is kept here.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 1);
  constexpr unsigned char kName[] = "vllm-router";
  SSL_CTX_set_session_id_context(context.get(), kName, sizeof kName - 1);
  SSL_CTX_set_alpn_select_cb(
      context.get(), options.speaks_http2 ? &ChooseProtocol<kHttp2> : &ChooseProtocol<kHttp11>, nullptr);
  if (!options.client_ca_path.empty()) {
    STACK_OF(X509_NAME)* names = SSL_load_client_CA_file(options.client_ca_path.c_str());
    if (names == nullptr || SSL_CTX_load_verify_file(context.get(), options.client_ca_path.c_str()) != 1) {
      sk_X509_NAME_pop_free(names, X509_NAME_free);
      return BadFile("the CA bundle for clients", options.client_ca_path);
    }
    SSL_CTX_set_client_CA_list(context.get(), names);
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  return std::shared_ptr<const TlsContext>(
      new TlsContext(context.release(), false, !options.client_ca_path.empty()));
}

StatusOr<std::shared_ptr<const TlsContext>> TlsContext::Make(const ForWorkers& options) {
  ContextOwner context = NewContext(TLS_client_method(), options.least, options.ciphers);
  if (!options.cert_path.empty()) {
    ROUTER_RETURN_IF_ERROR(UseCertificate(context.get(), options.cert_path, options.key_path));
  }
  if (!options.insecure) {
    if (options.ca_path.empty()) {
      SSL_CTX_set_default_verify_paths(context.get());
      ERR_clear_error();
    } else if (SSL_CTX_load_verify_file(context.get(), options.ca_path.c_str()) != 1) {
      return BadFile("the CA bundle", options.ca_path);
    }
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  }
  SSL_CTX_set_alpn_protos(context.get(), kHttp11.data(), static_cast<unsigned int>(kHttp11.size()));
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
  SSL_CTX_sess_set_new_cb(context.get(), &Sessions::Keep);
  return std::shared_ptr<const TlsContext>(new TlsContext(context.release(), true, !options.insecure));
}

TlsContext::TlsContext(ssl_ctx_st* context, bool to_workers, bool verify)
    : context_(context),
      to_workers_(to_workers),
      verify_(verify),
      sessions_(to_workers ? std::make_unique<Sessions>() : nullptr) {
  SSL_CTX_set_app_data(context_, sessions_.get());
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

std::optional<int64_t> TlsContext::certificate_ends() const {
  const X509* own = SSL_CTX_get0_certificate(context_);
  std::tm ends{};
  if (own == nullptr || ASN1_TIME_to_tm(X509_get0_notAfter(own), &ends) != 1) return std::nullopt;
  return ::timegm(&ends);
}

TlsSession::TlsSession(
    std::shared_ptr<const TlsContext> context, int descriptor, const std::string& host, uint16_t port)
    : context_(std::move(context)),
      descriptor_(descriptor),
      key_(Concat(host, ":", port)),
      ssl_(SSL_new(context_->context_)) {
  BIO* bio = TlsBio::Make(this);
  SSL_set_bio(ssl_, bio, bio);
  if (!context_->to_workers_) {
    SSL_set_accept_state(ssl_);
    return;
  }
  SSL_set_connect_state(ssl_);
  SSL_set_app_data(ssl_, const_cast<std::string*>(&key_));
  if (!IsAddress(host)) SSL_set_tlsext_host_name(ssl_, host.c_str());
  if (context_->verify_) {
    X509_VERIFY_PARAM* rules = SSL_get0_param(ssl_);
    X509_VERIFY_PARAM_set_hostflags(rules, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (IsAddress(host)) {
      X509_VERIFY_PARAM_set1_ip_asc(rules, host.c_str());
    } else {
      X509_VERIFY_PARAM_set1_host(rules, host.c_str(), host.size());
    }
  }
  context_->sessions_->TakeUp(key_, ssl_);
}

TlsSession::~TlsSession() { SSL_free(ssl_); }

IoResult TlsSession::Failed(int returned, int error) {
  wants_write_ = false;
  switch (SSL_get_error(ssl_, returned)) {
    case SSL_ERROR_WANT_WRITE:
      wants_write_ = true;
      return {.error = EAGAIN};
    case SSL_ERROR_WANT_READ:
      return {.error = EAGAIN};
    case SSL_ERROR_ZERO_RETURN:
      return {.eof = true};
    case SSL_ERROR_SYSCALL:
      broken_ = true;
      why_ = error != 0 ? std::strerror(error) : "the connection ended";
      ERR_clear_error();
      return {.error = error != 0 ? error : ECONNRESET};
    default:
      // An end without TLS's close_notify is an error as well: any machine on the path could have made
      // it.
      broken_ = true;
      why_ = TakeError();
      if (const long verdict = SSL_get_verify_result(ssl_); verdict != X509_V_OK && !done_) {
        why_ += Concat(" (", X509_verify_cert_error_string(verdict), ")");
      }
      return {.error = done_ ? ECONNRESET : EPROTO};
  }
}

IoResult TlsSession::Handshake() {
  ERR_clear_error();
  errno = 0;
  const int returned = SSL_do_handshake(ssl_);
  if (returned != 1) {
    IoResult result = Failed(returned, errno);
    if (result.eof) result = {.error = EPROTO};
    return result;
  }
  done_ = true;
  return {};
}

IoResult TlsSession::Read(std::span<char> room) {
  size_t total = 0;
  while (total < room.size()) {
    ERR_clear_error();
    errno = 0;
    const size_t maximum = std::min<size_t>(room.size() - total, 1 << 30);
    const int got = SSL_read(ssl_, room.data() + total, static_cast<int>(maximum));
    if (got <= 0) {
      const IoResult failed = Failed(got, errno);
      if (total > 0) break;  // the next call reports it again
      return failed;
    }
    total += static_cast<size_t>(got);
    if (drained()) break;
  }
  return {.bytes = static_cast<int64_t>(total)};
}

IoResult TlsSession::Write(std::span<const iovec> pieces) {
  thread_local std::array<char, kRecordBytes> scratch;
  int64_t total = 0;
  size_t piece = 0;
  size_t at = 0;  // offset in the piece
  for (size_t record = 0; record < kRecordsPerWrite; ++record) {
    while (piece < pieces.size() && at == pieces[piece].iov_len) {
      ++piece;
      at = 0;
    }
    if (piece == pieces.size()) break;
    const size_t maximum = retry_length_ != 0 ? retry_length_ : kRecordBytes;
    const char* bytes = static_cast<const char*>(pieces[piece].iov_base) + at;
    size_t size = std::min(maximum, pieces[piece].iov_len - at);
    if (size < maximum && piece + 1 < pieces.size()) {  // several small pieces make one record
      std::memcpy(scratch.data(), bytes, size);
      for (size_t next = piece + 1; next < pieces.size() && size < maximum; ++next) {
        const size_t more = std::min(maximum - size, pieces[next].iov_len);
        if (more != 0) std::memcpy(scratch.data() + size, pieces[next].iov_base, more);
        size += more;
      }
      bytes = scratch.data();
    }
    if (size < retry_length_)
      return {.error = EPIPE};  // the caller no longer has the rest of a started record
    ERR_clear_error();
    errno = 0;
    const int written = SSL_write(ssl_, bytes, static_cast<int>(size));
    if (written <= 0) {
      const IoResult failed = Failed(written, errno);
      if (failed.would_block()) retry_length_ = size;
      return total > 0 ? IoResult{.bytes = total} : failed;
    }
    retry_length_ = 0;
    total += written;
    for (auto left = static_cast<size_t>(written); left > 0;) {
      const size_t step = std::min(left, pieces[piece].iov_len - at);
      at += step;
      left -= step;
      if (at == pieces[piece].iov_len && left > 0) {
        ++piece;
        at = 0;
      }
    }
  }
  return {.bytes = total};
}

void TlsSession::Shutdown() {
  if (!done_ || broken_ || retry_length_ != 0) return;
  ERR_clear_error();
  SSL_shutdown(ssl_);
  ERR_clear_error();
}

bool TlsSession::HasUnread() {
  char byte;
  ERR_clear_error();
  errno = 0;
  const int got = SSL_peek(ssl_, &byte, 1);
  return got > 0 || !Failed(got, errno).would_block();
}

bool TlsSession::HasText() {
  char byte;
  ERR_clear_error();
  errno = 0;
  const int got = SSL_peek(ssl_, &byte, 1);
  if (got <= 0) Failed(got, errno);
  return got > 0;
}

// An end that was met behind some plaintext is still to be reported.
bool TlsSession::drained() const {
  const bool ended = broken_ || (SSL_get_shutdown(ssl_) & SSL_RECEIVED_SHUTDOWN) != 0;
  return drained_ && !ended && SSL_has_pending(ssl_) == 0;
}

bool TlsSession::resumed() const { return SSL_session_reused(ssl_) == 1; }

}  // namespace vllm_router
