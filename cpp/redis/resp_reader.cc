#include "redis/resp_reader.h"

#include <hiredis/hiredis.h>

#include <algorithm>
#include <charconv>
#include <new>
#include <optional>

#include "base/text.h"

namespace vllm_router {
namespace {

// As hiredis reads numbers: no plus, no leading zeros, no minus zero.
std::optional<int64_t> ReadNumber(std::string_view text) {
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  if (digits.empty() || digits.front() < '0' || digits.front() > '9') return std::nullopt;
  if (digits.front() == '0' && text != "0") return std::nullopt;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

RespReader::RespReader(size_t max_reply_bytes)
    : max_reply_bytes_(max_reply_bytes), reader_(redisReaderCreate()) {
  if (reader_ == nullptr) throw std::bad_alloc();
}

void RespReader::Free::operator()(redisReader* reader) const { redisReaderFree(reader); }

Status RespReader::Feed(std::string_view bytes, std::vector<RedisReply>* replies) {
  if (!status_.ok()) return status_;
  size_t complete = 0;
  const size_t good = Scan(bytes, &complete);
  if (good > 0 && redisReaderFeed(reader_.get(), bytes.data(), good) != REDIS_OK) throw std::bad_alloc();
  for (size_t i = 0; i < complete; ++i) {
    void* reply = nullptr;
    if (redisReaderGetReply(reader_.get(), &reply) != REDIS_OK || reply == nullptr) {
      Fail("sent what is not RESP2");
      break;
    }
    replies->emplace_back(static_cast<redisReply*>(reply));
  }
  return status_;
}

void RespReader::FailTooLarge(size_t most, std::string_view unit) {
  status_ = absl::ResourceExhaustedError(Concat("sent a reply of more than ", most, " ", unit));
}

size_t RespReader::Scan(std::string_view bytes, size_t* complete) {
  size_t at = 0;
  while (at < bytes.size() && status_.ok()) {
    if (in_text_ && text_left_ > 2) {
      const size_t skipped = std::min(text_left_ - 2, bytes.size() - at);
      text_left_ -= skipped;
      reply_bytes_ += skipped;
      at += skipped;
      continue;
    }
    TakeByte(bytes[at], complete);
    if (status_.ok()) ++at;
  }
  return at;
}

void RespReader::TakeByte(char c, size_t* complete) {
  if (++reply_bytes_ > max_reply_bytes_) return FailTooLarge(max_reply_bytes_, "bytes");
  if (in_text_) {
    if (c != (text_left_ == 2 ? '\r' : '\n')) return Fail("sent a text without a line end behind it");
    if (--text_left_ > 0) return;
    in_text_ = false;
    return EndValue(complete);
  }
  if (line_bytes_ == 0 && std::string_view("+-:$*").find(c) == std::string_view::npos)
    return Fail("sent what is not RESP2");
  if (c == '\n' && carriage_return_) return EndLine(complete);
  if (line_bytes_ < line_.size()) line_[line_bytes_] = c;
  carriage_return_ = c == '\r';
  if (++line_bytes_ > kMaxLineBytes) Fail(Concat("sent a line of more than ", kMaxLineBytes, " bytes"));
}

void RespReader::EndLine(size_t* complete) {
  const size_t bytes = line_bytes_ - 1;  // without CR
  const char type = line_.front();
  line_bytes_ = 0;
  carriage_return_ = false;
  if (type == '+' || type == '-') return EndValue(complete);
  const std::optional<int64_t> number =
      bytes <= line_.size() ? ReadNumber({line_.data() + 1, bytes - 1}) : std::nullopt;
  if (!number) return Fail("sent a number that is none");
  if (type == ':') return EndValue(complete);
  if (*number < -1) return Fail("sent a length below -1");
  if (*number == -1 || (*number == 0 && type == '*')) return EndValue(complete);
  const auto length = static_cast<uint64_t>(*number);
  if (type == '$') {
    if (length > max_reply_bytes_ || reply_bytes_ + length + 2 > max_reply_bytes_)
      return FailTooLarge(max_reply_bytes_, "bytes");
    in_text_ = true;
    text_left_ = length + 2;
    return;
  }
  if (length > kMaxElements - elements_) return FailTooLarge(kMaxElements, "elements");
  if (depth_ == kMaxDepth)
    return Fail(Concat("sent a reply of more than ", kMaxDepth, " arrays in one another"));
  elements_ += length;
  missing_[depth_++] = length;
}

void RespReader::EndValue(size_t* complete) {
  while (depth_ > 0 && --missing_[depth_ - 1] == 0) --depth_;
  if (depth_ > 0) return;
  ++*complete;
  reply_bytes_ = 0;
  elements_ = 0;
}

}  // namespace vllm_router
