#include "redis/redis_reply.h"

#include <hiredis/hiredis.h>

#include "base/check.h"

namespace vllm_router {

RedisValue::Kind RedisValue::kind() const {
  switch (reply_->type) {
    case REDIS_REPLY_STRING:
      return Kind::kText;
    case REDIS_REPLY_STATUS:
      return Kind::kStatus;
    case REDIS_REPLY_ERROR:
      return Kind::kError;
    case REDIS_REPLY_INTEGER:
      return Kind::kInteger;
    case REDIS_REPLY_ARRAY:
      return Kind::kArray;
    default:
      return Kind::kNil;
  }
}

std::string_view RedisValue::text() const {
  const Kind own = kind();
  if (own != Kind::kText && own != Kind::kStatus && own != Kind::kError) return {};
  return {reply_->str, static_cast<size_t>(reply_->len)};
}

int64_t RedisValue::integer() const { return kind() == Kind::kInteger ? reply_->integer : 0; }

size_t RedisValue::size() const { return kind() == Kind::kArray ? reply_->elements : 0; }

RedisValue RedisValue::operator[](size_t at) const {
  ROUTER_CHECK(at < size(), "an array has so many elements");
  return RedisValue(reply_->element[at]);
}

std::string_view RedisValue::FirstError() const {
  if (is_error()) return text();
  for (size_t i = 0; i < size(); ++i) {
    if ((*this)[i].is_error()) return (*this)[i].text();
  }
  return {};
}

void RedisReply::Free::operator()(redisReply* reply) const { freeReplyObject(reply); }

}  // namespace vllm_router
