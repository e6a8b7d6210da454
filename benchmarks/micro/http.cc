// What heads, chunks and tails cost. The request head is the OpenAI Python client's (586 bytes, 17 fields), the response
// head uvicorn's (286 bytes, 8 fields), each in 64 variants so that the branch predictor cannot learn one by heart.
// `checksum` adds up what was parsed or written: it may change only when the result does.
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "base/limits.h"
#include "http/chunked.h"
#include "http/head_parser.h"
#include "http/head_writer.h"
#include "http/stream_tail.h"

namespace vllm_router {
namespace {

constexpr size_t kVariants = 64;

std::string Hex(uint64_t value) {
  std::string out;
  for (int i = 0; i < 16; ++i, value *= 0x9e3779b97f4a7c15u) out += "0123456789abcdef"[value >> 60];
  return out;
}

std::array<std::string, kVariants> RequestHeads() {
  std::array<std::string, kVariants> heads;
  for (size_t i = 0; i < kVariants; ++i) {
    heads[i] =
        "POST /v1/chat/completions HTTP/1.1\r\n"
        "Host: 127.0.0.1:30000\r\n"
        "Accept-Encoding: gzip, deflate, br, zstd\r\n"
        "Connection: keep-alive\r\n"
        "Accept: application/json\r\n"
        "Content-Type: application/json\r\n"
        "User-Agent: AsyncOpenAI/Python 1.51.0rc1\r\n"
        "X-Stainless-Lang: python\r\n"
        "X-Stainless-Package-Version: 1.51.0\r\n"
        "X-Stainless-OS: Linux\r\n"
        "X-Stainless-Arch: x64\r\n"
        "X-Stainless-Runtime: CPython\r\n"
        "X-Stainless-Runtime-Version: 3.11.2\r\n"
        "Authorization: Bearer sk-" +
        Hex(i + 1) + Hex(i + 101) +
        "\r\n"
        "X-Stainless-Async: false\r\n"
        "x-stainless-retry-count: 0\r\n"
        "X-Session-Id: " +
        Hex(i + 1001) + Hex(i + 1) +
        "\r\n"
        "Content-Length: " +
        std::to_string(1000 + 13 * i) + "\r\n\r\n";
  }
  return heads;
}

std::array<std::string, kVariants> ResponseHeads() {
  std::array<std::string, kVariants> heads;
  for (size_t i = 0; i < kVariants; ++i) {
    heads[i] =
        "HTTP/1.1 200 OK\r\n"
        "date: Mon, 04 Nov 2024 10:" +
        std::to_string(10 + i % 50) +
        ":00 GMT\r\n"
        "server: uvicorn\r\n"
        "cache-control: no-cache\r\n"
        "x-request-id: " +
        Hex(i + 1) + Hex(i + 7) +
        "\r\n"
        "x-accel-buffering: no\r\n"
        "access-control-allow-origin: *\r\n"
        "content-type: text/event-stream; charset=utf-8\r\n"
        "transfer-encoding: chunked\r\n\r\n";
  }
  return heads;
}

void BM_RequestHead(benchmark::State& state) {
  const auto heads = RequestHeads();
  RequestHeadParser parser;
  size_t i = 0;
  uint64_t checksum = 0;
  for (auto _ : state) {
    parser.Reset();
    const ParseState done = parser.Feed(heads[i++ % kVariants]);
    benchmark::DoNotOptimize(done);
    checksum = parser.head().fields.size() + parser.head().size;
  }
  state.counters["checksum"] = static_cast<double>(checksum);
}
BENCHMARK(BM_RequestHead);

void BM_ResponseHead(benchmark::State& state) {
  const auto heads = ResponseHeads();
  ResponseHeadParser parser;
  size_t i = 0;
  uint64_t checksum = 0;
  for (auto _ : state) {
    parser.Reset(false);
    const ParseState done = parser.Feed(heads[i++ % kVariants]);
    benchmark::DoNotOptimize(done);
    checksum = parser.head().fields.size() + parser.head().size;
  }
  state.counters["checksum"] = static_cast<double>(checksum);
}
BENCHMARK(BM_ResponseHead);

// For comparison: Beast's own parser, which copies each field into a container of its own.
void BM_BeastRequestParser(benchmark::State& state) {
  const auto heads = RequestHeads();
  size_t i = 0;
  for (auto _ : state) {
    boost::beast::http::request_parser<boost::beast::http::string_body> parser;
    boost::beast::error_code ec;
    const std::string& head = heads[i++ % kVariants];
    benchmark::DoNotOptimize(parser.put(boost::asio::const_buffer(head.data(), head.size()), ec));
  }
}
BENCHMARK(BM_BeastRequestParser);

void BM_RequestHeadByteByByte(benchmark::State& state) {
  std::string head = "GET / HTTP/1.1\r\nHost: a\r\n";
  while (head.size() < 61 * 1024 - 700)
    head += "X-Long-Field-" + Hex(head.size()) + ": " + std::string(600, 'v') + "\r\n";
  head += "\r\n";
  RequestHeadParser parser;
  for (auto _ : state) {
    parser.Reset();
    ParseState parse = ParseState::kNeedMore;
    for (size_t size = 1; size <= head.size(); ++size)
      parse = parser.Feed(std::string_view(head).substr(0, size));
    if (parse != ParseState::kDone) state.SkipWithError("the head was not accepted");
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * head.size()));
}
BENCHMARK(BM_RequestHeadByteByByte)->Unit(benchmark::kMicrosecond);

void BM_WriteUpstreamHead(benchmark::State& state) {
  const auto heads = RequestHeads();
  std::vector<RequestHeadParser> parsers(kVariants);
  for (size_t i = 0; i < kVariants; ++i) parsers[i].Feed(heads[i]);
  const UpstreamHeadParts parts{
      .authority = "10.0.0.17:8000",
      .hop_name = "vllm-router-0f3ac2d4415be697",
      .client_address = "192.168.17.23",
      .forwarded_proto = "http",
      .request_id_name = "x-request-id",
      .request_id = "b1946ac92492d2347c6235b4d2611184",
      .framing = BodyFraming::kLength,
      .content_length = 1234};
  std::string out;
  size_t i = 0;
  for (auto _ : state) {
    out.clear();
    WriteUpstreamHead(parsers[i++ % kVariants].head(), parts, &out);
    benchmark::DoNotOptimize(out.data());
  }
  state.counters["checksum"] = static_cast<double>(out.size());
}
BENCHMARK(BM_WriteUpstreamHead);

void BM_WriteClientHead(benchmark::State& state) {
  const auto heads = ResponseHeads();
  std::vector<ResponseHeadParser> parsers(kVariants);
  for (size_t i = 0; i < kVariants; ++i) parsers[i].Feed(heads[i]);
  const ClientHeadParts parts{
      .request_id = "b1946ac92492d2347c6235b4d2611184", .framing = BodyFraming::kChunked};
  std::string out;
  size_t i = 0;
  for (auto _ : state) {
    out.clear();
    WriteClientHead(parsers[i++ % kVariants].head(), parts, &out);
    benchmark::DoNotOptimize(out.data());
  }
  state.counters["checksum"] = static_cast<double>(out.size());
}
BENCHMARK(BM_WriteClientHead);

// ns per chunk of `bytes` bytes, read in pieces of `read` bytes.
void BM_ChunkedScanner(benchmark::State& state) {
  const size_t bytes = static_cast<size_t>(state.range(0));
  const size_t read = static_cast<size_t>(state.range(1));
  std::string body;
  size_t chunks = 0;
  while (body.size() < 1'000'000) {
    WriteChunkSize(bytes, &body);
    body += std::string(bytes, 'x') + "\r\n";
    ++chunks;
  }
  uint64_t data = 0;
  for (auto _ : state) {
    ChunkedScanner scanner;
    data = 0;
    for (size_t at = 0; at < body.size(); at += read) {
      std::string_view piece = std::string_view(body).substr(at, read);
      for (;;) {
        const ChunkedScanner::Step step = scanner.Feed(piece);
        data += step.data.size();
        piece.remove_prefix(step.used);
        if (step.event != ChunkedScanner::Event::kData) break;
      }
    }
  }
  state.counters["checksum"] = static_cast<double>(data);
  state.counters["per_chunk"] = benchmark::Counter(
      static_cast<double>(chunks * state.iterations()),
      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_ChunkedScanner)
    ->ArgNames({"bytes", "read"})
    ->Args({215, 222})
    ->Args({215, 16384})
    ->Args({16384, 16384})
    ->Args({65536, 65536});

void BM_StreamTailAdd(benchmark::State& state) {
  const std::string event(static_cast<size_t>(state.range(0)), 'x');
  StreamTail tail;
  for (auto _ : state) tail.Add(event);
}
BENCHMARK(BM_StreamTailAdd)->Arg(215)->Arg(16384);

void BM_StreamTailSummarizeEvents(benchmark::State& state) {
  StreamTail tail;
  for (int i = 0; i < 100; ++i) {
    tail.Add(
        "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\","
        "\"choices\":[{\"index\":0,\"delta\":{\"content\":\" "
        "word\"},\"finish_reason\":null}],\"usage\":null}\n\n");
  }
  tail.Add(
      "data: {\"id\":\"chatcmpl-1\",\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"total_tokens\":200,"
      "\"completion_tokens\":100,\"prompt_tokens_details\":{\"cached_tokens\":64}}}\n\n");
  tail.Add("data: [DONE]\n\n");
  uint64_t checksum = 0;
  for (auto _ : state) checksum = tail.Summarize().cached_tokens.value_or(0);
  state.counters["checksum"] = static_cast<double>(checksum);
}
BENCHMARK(BM_StreamTailSummarizeEvents);

void BM_StreamTailSummarizeJson(benchmark::State& state) {
  StreamTail tail;
  std::string content(static_cast<size_t>(state.range(0)), 'x');
  for (size_t i = 0; i + 2 < content.size(); i += 60) content[i] = '\\', content[i + 1] = '"';
  tail.Add(
      "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"choices\":[{\"index\":0,\"message\":{\"role\":"
      "\"assistant\",\"content\":\"" +
      content +
      "\"},\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":100,\"total_tokens\":"
      "200,"
      "\"completion_tokens\":100,\"prompt_tokens_details\":{\"cached_tokens\":64}},\"prompt_logprobs\":"
      "null}");
  uint64_t checksum = 0;
  for (auto _ : state) checksum = tail.Summarize().cached_tokens.value_or(0);
  state.counters["checksum"] = static_cast<double>(checksum);
}
BENCHMARK(BM_StreamTailSummarizeJson)->Arg(200)->Arg(5000);

}  // namespace
}  // namespace vllm_router
