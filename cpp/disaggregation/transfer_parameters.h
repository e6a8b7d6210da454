// What the kv_transfer_params of vLLM's connectors have in common: what every prefill and decode worker is told, and
// the looks at an object that a prefill worker sent. There a member counts only if the object has it once, since
// parsers differ in which of several they take.
//
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "routing/body_map.h"

namespace vllm_router {

inline constexpr std::string_view kTransferParameters = "kv_transfer_params";

inline constexpr std::string_view kPrefillMembers = R"("do_remote_decode":true,"do_remote_prefill":false)";
inline constexpr std::string_view kDecodeMembers = R"("do_remote_decode":false,"do_remote_prefill":true)";
// What NIXL's prefill workers are told, exactly these six, as the reference router sends them.
inline constexpr std::string_view kNixlPrefillMembers =
    R"("do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,)"
    R"("remote_host":null,"remote_port":null)";

// nullptr: there is none, or several.
const BodyMap::Member* OnlyMember(const BodyMap& object, std::string_view name);

// A string that is not "".
bool HasText(const BodyMap& object, std::string_view name);
// A number of 1 to 65535.
bool HasPort(const BodyMap& object, std::string_view name);
// Lists of numbers, at any depth, with at least one number.
bool HasBlocks(const BodyMap& object, std::string_view name);

// nullopt unless HasText() and what it means has at most `limit` bytes.
std::optional<std::string> TextIn(const BodyMap& object, std::string_view name, size_t limit);
// A whole number of 1 to `most`.
std::optional<uint32_t> CountIn(const BodyMap& object, std::string_view name, uint32_t most);

}  // namespace vllm_router
