// Many threads shake hands at once with one pair of contexts, over sockets so small that records go in pieces, and
// every byte arrives. Workers' sessions, which the threads share, are taken up.
#include "net/tls.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>
#include <vector>

#include "base/random.h"
#include "stress.h"

namespace {

using namespace vllm_router;

// A certificate that vouches for itself, and its key.
void WriteCertificate(const std::string& cert_path, const std::string& key_path) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* cert = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
  X509_gmtime_adj(X509_getm_notBefore(cert), 0);
  X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
  X509_set_pubkey(cert, key);
  X509_NAME_add_entry_by_txt(
      X509_get_subject_name(cert), "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("test"), -1, -1,
      0);
  X509_set_issuer_name(cert, X509_get_subject_name(cert));
  X509_sign(cert, key, EVP_sha256());
  std::FILE* file = std::fopen(cert_path.c_str(), "w");
  STRESS_CHECK(PEM_write_X509(file, cert) == 1 && std::fclose(file) == 0);
  file = std::fopen(key_path.c_str(), "w");
  STRESS_CHECK(
      PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr) == 1 && std::fclose(file) == 0);
  X509_free(cert);
  EVP_PKEY_free(key);
}

// What one side has to send, in pieces, and what came to it.
struct Side {
  Side(std::shared_ptr<const TlsContext> context, int descriptor, Random& random)
      : session(std::move(context), descriptor, "localhost", 1),
        random(random),
        sent(1 + random.Below(100'000), '\0') {
    std::generate(sent.begin(), sent.end(), [&] { return static_cast<char>(random.Next()); });
  }

  void Step(size_t expected) {
    if (!session.done()) {
      const IoResult shaken = session.Handshake();
      STRESS_CHECK(shaken.ok() || shaken.would_block());
      return;
    }
    if (written < sent.size()) {
      // What would block is offered again: the same bytes, from wherever and however cut.
      const std::string rest = sent.substr(written);
      const size_t first = random.Below(rest.size() + 1);
      const iovec pieces[] = {
          {const_cast<char*>(rest.data()), first},
          {const_cast<char*>(rest.data()) + first, rest.size() - first}};
      const IoResult result = session.Write(pieces);
      STRESS_CHECK(result.ok() || result.would_block());
      written += static_cast<size_t>(result.bytes);
    }
    if (received.size() < expected) {
      char room[20'000];
      const IoResult result = session.Read({room, 1 + random.Below(sizeof room)});
      STRESS_CHECK(result.ok() || result.would_block());
      received.append(room, static_cast<size_t>(result.bytes));
    }
  }

  TlsSession session;
  Random& random;
  std::string sent;
  size_t written = 0;
  std::string received;
};

bool Converse(
    const std::shared_ptr<const TlsContext>& clients, const std::shared_ptr<const TlsContext>& workers,
    Random& random) {
  int ends[2];
  STRESS_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  const int small = 4096;
  for (const int end : ends) ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  bool resumed = false;
  {
    Side server(clients, ends[0], random);
    Side client(workers, ends[1], random);
    while (server.received.size() < client.sent.size() || client.received.size() < server.sent.size()) {
      client.Step(server.sent.size());
      server.Step(client.sent.size());
    }
    STRESS_CHECK(server.received == client.sent && client.received == server.sent);
    STRESS_CHECK(!server.session.HasUnread() && !client.session.HasUnread());
    client.session.Shutdown();
    STRESS_CHECK(server.session.HasUnread() && !server.session.HasText());
    char byte;
    STRESS_CHECK(server.session.Read({&byte, 1}).eof);
    resumed = client.session.resumed();
  }
  for (const int end : ends) ::close(end);
  return resumed;
}

}  // namespace

int main() {
  constexpr int kThreads = 4;
  constexpr int kConversations = 25;
  char directory[] = "/tmp/stress_tls_XXXXXX";
  STRESS_CHECK(::mkdtemp(directory) != nullptr);
  const std::string cert = std::string(directory) + "/cert.pem";
  const std::string key = std::string(directory) + "/key.pem";
  WriteCertificate(cert, key);
  const auto clients = TlsContext::Make(TlsContext::ForClients{.cert_path = cert, .key_path = key});
  const auto workers = TlsContext::Make(TlsContext::ForWorkers{.insecure = true});
  STRESS_CHECK(clients.ok() && workers.ok());

  std::atomic<int> resumed{0};
  RunTogether(kThreads, [&](int thread) {
    Random random(static_cast<uint64_t>(thread) + 1);
    for (int i = 0; i < kConversations; ++i) resumed += Converse(*clients, *workers, random) ? 1 : 0;
  });
  STRESS_CHECK(resumed > 0);
  ::unlink(cert.c_str());
  ::unlink(key.c_str());
  ::rmdir(directory);
}
