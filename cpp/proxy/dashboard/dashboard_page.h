// The page of GET /dashboard: one file that was embedded at build time (cmake/embed_page.py), and the fields that guard it.
// It has no data: a key is asked for by the page, and sent with the request for events. Pure.
#pragma once

#include <span>

#include "base/header_field.h"
#include "proxy/api/admin_reply.h"

namespace vllm_router {

// Compressed if the client's Accept-Encoding has gzip. `request`: fields of its head.
AdminReply DashboardPage(std::span<const HeaderField> request);

}  // namespace vllm_router
