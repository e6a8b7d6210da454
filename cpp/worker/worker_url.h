// WorkerUrl: where a worker listens and, for a data-parallel engine, which rank of it is meant.
//
//   http://[::1]:8000/prefix@2   ->   host "::1", port 8000, prefix "/prefix", rank 2
//   `-------- base --------'`-'rank
//
// An embedded router may know workers by name, if the program itself connects to them: `ray://<id>` and
// `name://<id>`. The part after the scheme is opaque and compared byte by byte; `@rank` may follow it.
//
// The spelling is kept as it was registered, because ring points are hashes of it. Pure functions; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace vllm_router {

struct WorkerUrl {
  std::string url;       // as registered, with @rank, without a trailing slash; a worker's name everywhere
  std::string base;      // url without @rank: ranks of one host share it
  std::string host;      // without brackets; of a name the part after the scheme
  bool is_name = false;  // ray:// or name://: not connectable, so port, prefix and authority are unset
  bool tls = false;      // https
  uint16_t port = 80;
  std::string prefix;  // path in front of every request target; usually empty
  std::string
      authority;  // value of `Host`: host[:port], bracketed for IPv6, port omitted when it is the scheme's
  std::optional<uint32_t> rank;
  // Whether requests to it carry the workers' key (--api-key). Not part of the text: the code that adds
  // the worker decides.
  bool receives_api_key = false;
};

// InvalidArgument (Unimplemented for schemes that may be supported later) names the URL, the error and
// the remedy. A password in the URL is not repeated in the message.
StatusOr<WorkerUrl> ParseWorkerUrl(std::string_view url);

// InvalidArgument for a name, if an address is needed.
Status RequireAddress(const WorkerUrl& url);

// True if two URLs lead to the same server: the case of the host, ":80" and a trailing slash make no
// difference, but https does. Two names are the same if all their bytes are.
bool SameHost(const WorkerUrl& a, const WorkerUrl& b);

// They are one worker, however it is spelled.
inline bool operator==(const WorkerUrl& a, const WorkerUrl& b) { return SameHost(a, b) && a.rank == b.rank; }

// Equal for the URLs that are SameHost; and for those of the same rank of it.
std::string HostKey(const WorkerUrl& url);
std::string WorkerKey(const WorkerUrl& url);

// The same host, and this rank of it. REQUIRES: it has no rank.
WorkerUrl WithRank(WorkerUrl url, uint32_t rank);

// Why a text is no URL of a worker, without any of it, since it may hold a password: "has a query; …". `status`: of
// ParseWorkerUrl().
std::string MisfitOf(const Status& status);

}  // namespace vllm_router
