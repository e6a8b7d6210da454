// Everything that grows has a limit; this file names them. A limit that an operator may want to change
// is a flag instead (python/vllm_router/settings/table.py). These are the fixed ones, each with the reason
// for its size.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vllm_router {

// HTTP heads. 64 KiB is four times what the common servers accept; real clients send under 2 KiB.
inline constexpr size_t kMaxHeadBytes = 64 * 1024;
inline constexpr size_t kMaxHeadFields = 100;
inline constexpr size_t kMaxTargetBytes = 8 * 1024;
inline constexpr size_t kMaxFieldNameBytes = 256;
inline constexpr size_t kMaxConnectionTokens = 16;
// 1xx heads a worker may send before its final one: one every two seconds of the default
// --request-timeout-secs.
inline constexpr int kMaxInformationalHeads = 1000;
inline constexpr int kMaxLeadingEmptyLines = 2;  // CRLFs that old clients send after a body

// Chunked framing. An extension or trailer this long means that the bytes are not HTTP.
inline constexpr size_t kMaxChunkExtensionBytes = 256;
inline constexpr size_t kMaxTrailerBytes = 8 * 1024;

// Relaying. A buffer starts small, since most of a stream's life is small events, and grows when a read
// fills it.
inline constexpr size_t kRelayBufferFirst = 4 * 1024;
inline constexpr size_t kRelayBufferMost = 64 * 1024;
inline constexpr size_t kFairnessBytes = 64 * 1024;       // moved per wake-up before others get a turn
inline constexpr size_t kMaxPipelinedBytes = 16 * 1024;   // read ahead of the current request
inline constexpr size_t kSmallBodyBytes = 64 * 1024;      // read whole even when the policy does not need it
inline constexpr size_t kPushedEventsBytes = 256 * 1024;  // of KV events in a request; at most 45 ms
// Window over which a request body's rate is averaged (--client-min-body-rate); networks recover from a
// loss in less.
inline constexpr int64_t kBodyRateWindowMs = 30'000;
inline constexpr size_t kReplayBodyBytes =
    1024 * 1024;  // a streamed body up to this length is kept for a retry
// Longer bodies are routed on their first part and forwarded while the rest arrives. The parser needs
// four times as much memory, which stays below 32 MiB per thread.
inline constexpr size_t kRoutedBodyBytes = 8 * 1024 * 1024;
// Of a body, how much is read to find its model where that decides.
inline constexpr size_t kNamedBodyBytes = 64 * 1024 * 1024;
inline constexpr size_t kLingerBytes =
    256 * 1024;  // discarded after an early response, so that it is not reset
inline constexpr int kLingerSeconds = 2;
inline constexpr size_t kStreamTailBytes = 2 * 1024;      // end of a body kept for `usage`
inline constexpr size_t kUsageBytes = 1024;               // `usage` that lies before that end
inline constexpr size_t kMaxSseEventBytes = 1024 * 1024;  // of a stream that the router itself reads
inline constexpr int kMaxAcceptsPerWakeup = 64;

// Retries. Ten per second are allowed beside the share of the requests, as in Finagle: small fleets and
// quiet hours have too few requests for a share, and ten more per second harm no engine. A worker's
// Retry-After is waited for up to two seconds, since clients can wait as well. For up to ten seconds
// other workers are preferred, since the value is a guess. A request that one worker held for half a
// minute is not sent to the next.
inline constexpr uint64_t kMinRetriesPerSecond = 10;
inline constexpr int64_t kMaxRetryAfterMs = 2'000;
inline constexpr int64_t kMaxRetryAfterBackoffNs = 10'000'000'000;
inline constexpr int64_t kRetryTimeoutWithinNs = 30'000'000'000;
inline constexpr size_t kDrainedResponseBytes =
    64 * 1024;  // of a failed attempt, so that its connection can be kept

// A saved index, read and written whole: 400 million blocks of a tracker, more than an index holds by
// default.
inline constexpr uint64_t kMaxIndexFileBytes = 4ull * 1024 * 1024 * 1024;

// Requests and clients that are remembered because workers died (routing/request_quarantine.h): about
// 0.6 KiB each.
inline constexpr size_t kMaxSuspectedRequests = 10'000;
inline constexpr size_t kMaxSuspectedClients = 10'000;

// Connections beyond --max-connections that are reserved for the admin and metrics ports, so that
// clients that fill the limit cannot keep an operator out: enough for a handful of scrapers and
// operators.
inline constexpr int64_t kReservedAdminConnections = 16;

// Outlier detection, as Envoy's. A worker whose 5xx had no second opinion is to blame if more than half
// of its responses are 5xx and its share of 5xx is more than twice the others' share. Breakers open for
// 5xx on at most half of the workers: the others must bear their load, and if more than half seem
// broken, the requests are the likelier cause.
inline constexpr int64_t kOutlierSharePercent = 50;
inline constexpr int kOutlierFactor = 2;
inline constexpr uint64_t kMaxEjectedPercent = 50;

// File descriptors reserved for everything but requests: listeners, idle connections of clients and
// workers, logs, Python's own.
inline constexpr uint64_t kReservedFiles = 512;

// Logs of requests: bytes that a thread may collect between two flushes (0.1 s of 90,000 lines per
// second), and bytes of one text.
inline constexpr size_t kMaxAccessLogBytes = 4 * 1024 * 1024;
inline constexpr size_t kMaxLoggedTextBytes = 1024;
// Log lines are handed to the writing thread in pieces of this size: 160 requests, and it fits a core's
// cache.
inline constexpr size_t kLogPieceBytes = 64 * 1024;

// API keys. A file of them is read again within a second, so it is not large. A key
// is at most 1 KiB; a head line could carry more.
inline constexpr size_t kMaxApiKeys = 10'000;
inline constexpr size_t kMaxApiKeyBytes = 1024;
inline constexpr size_t kMaxKeyFileBytes = 1024 * 1024;
// Keys that an external service validates (--api-key-validation-urls): verdicts remembered, concurrent
// validation requests, requests that wait.
inline constexpr size_t kMaxKeyValidities = 10'000;
inline constexpr size_t kMaxConcurrentValidations = 64;
inline constexpr size_t kMaxKeyWaiters = 10'000;
inline constexpr size_t kMaxKeyWaitersPerAddress = 1'250;  // without a key known as valid

// Responses of the router's own endpoints that need data from workers are shared by all clients. One is
// made anew after a second. While that takes longer than a client notices, the last one is served if it
// is at most a minute old. A wait for one is bounded.
inline constexpr int64_t kReplyFreshNs = 1'000'000'000;
inline constexpr int64_t kReplyPatienceNs = 250'000'000;
inline constexpr int64_t kReplyUsableNs = 60'000'000'000;
inline constexpr int64_t kReplyWaitNs = 30'000'000'000;

// Requests that go to all workers (proxy/exchange/fan_out.h): how many run at once, how many workers
// each contacts at once, and how much of each response is kept.
inline constexpr size_t kMaxFanOuts = 16;
inline constexpr size_t kMaxFanOutAtOnce = 64;
inline constexpr size_t kMaxFanOutResponseBytes = 64 * 1024;
inline constexpr size_t kMaxFanOutNames = 20;  // workers that failed, as named in the log

// Which workers hold stored responses (proxy/thread/response_owners.h): how many are remembered, and for
// how long after the last use; how many searches run at once, how long each waits, and how much of a
// response is read for its id.
inline constexpr size_t kMaxResponseOwners = 100'000;
inline constexpr int64_t kResponseOwnerNs = 3'600'000'000'000;
inline constexpr size_t kMaxResponseLookups = 16;
inline constexpr int64_t kResponseLookupMs = 5'000;
inline constexpr size_t kResponseIdBytes = 4096;

// Weights are kept in thousandths so that policies compare loads in integers.
inline constexpr uint32_t kWeightOne = 1000;
inline constexpr uint32_t kMinWeight = 10;       // 0.01
inline constexpr uint32_t kMaxWeight = 100'000;  // 100

// A worker that has recovered starts with a tenth of its share of the load (--slow-start-secs).
inline constexpr uint32_t kSlowStartFirst = 100;

// Concurrent health checks, so that those of a large fleet do not come in one burst of connections.
inline constexpr int kMaxHealthChecks = 128;

// Memory for the token ids that workers returned for texts, in all: 16 million tokens, or some 15,000
// conversations whose first turns have a thousand. The second limit is on tokenize calls that wait at
// one worker, per thread.
inline constexpr size_t kTokenCacheBytes = 64 * 1024 * 1024;
inline constexpr uint32_t kMaxTokenizeCalls = 4;
// Of those, calls in the background, which no request waits for; more are dropped.
inline constexpr uint32_t kMaxBackgroundTokenizeCalls = 2;
// Between two tries to learn where a model's template prints tools.
inline constexpr int64_t kToolOrderRetryNs = 60'000'000'000;

// Results of a shared pool's pages that are kept for a moment, of all threads: 8 MiB. Queries of a pool that no
// request waits for; more are dropped.
inline constexpr size_t kMaxPageResults = 65'536;
inline constexpr uint32_t kMaxPoolRequests = 64;  // to the master at once, each with a connection
inline constexpr size_t kMaxPoolReply = 512 * 1024;
inline constexpr uint32_t kMaxBackgroundPoolQueries = 64;

// Tokens of a block. Engines use 8 to 128, some hybrids a thousand.
inline constexpr uint32_t kMaxBlockSize = 65'536;

// Requests whose prompts may be taken back from what their workers are believed to hold. A prompt beyond
// this limit is believed at once.
inline constexpr size_t kMaxClaims = 16'384;
inline constexpr size_t kMaxWorkers = 4096;  // ids are dense, and per-worker arrays are sized by them

}  // namespace vllm_router
