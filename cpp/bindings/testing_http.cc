#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "http/body_reader.h"
#include "http/chunked.h"
#include "http/dechunk.h"
#include "http/dot_segments.h"
#include "http/head_parser.h"
#include "http/head_writer.h"
#include "http/query.h"
#include "http/redirect.h"
#include "http/sse_reader.h"
#include "http/stream_tail.h"
#include "http/via.h"
#include "http/websocket_protocols.h"

namespace vllm_router {

namespace py = pybind11;

namespace {

// Where to cut an input into pieces: ends of the pieces but the last, ascending.
using CutPlaces = std::vector<size_t>;
using Fields = std::vector<std::pair<std::string, std::string>>;

py::bytes Bytes(std::string_view text) { return py::bytes(text.data(), text.size()); }

const char* FramingName(BodyFraming framing) {
  switch (framing) {
    case BodyFraming::kNone:
      return "none";
    case BodyFraming::kLength:
      return "length";
    case BodyFraming::kChunked:
      return "chunked";
    case BodyFraming::kUntilClose:
      return "until_close";
  }
  return "";
}

BodyFraming FramingFrom(const std::string& name) {
  for (const BodyFraming framing :
       {BodyFraming::kNone, BodyFraming::kLength, BodyFraming::kChunked, BodyFraming::kUntilClose}) {
    if (name == FramingName(framing)) return framing;
  }
  throw py::value_error("framing is none, length, chunked or until_close, not " + name);
}

// Feeds ever longer prefixes of `data`. With `move`, each is a new copy that ends where its allocation
// ends, so that AddressSanitizer sees a byte read too far and a view kept from the buffer before.
template <typename Parser>
std::pair<ParseState, std::string> FeedPieces(
    Parser* parser, const std::string& data, CutPlaces cuts, bool move) {
  cuts.push_back(data.size());
  std::string buffer = move ? std::string() : data;
  ParseState state = ParseState::kNeedMore;
  for (const size_t cut : cuts) {
    if (move) buffer = std::string(data, 0, cut);
    state = parser->Feed(std::string_view(buffer).substr(0, cut));
    if (state != ParseState::kNeedMore) break;
  }
  return {state, std::move(buffer)};
}

template <typename Head>
void SetCommon(const Head& head, py::dict* result) {
  py::list fields;
  for (const HeaderField& field : head.fields)
    fields.append(py::make_tuple(Bytes(field.name), Bytes(field.value)));
  py::list tokens;
  for (const std::string_view token : head.connection_tokens) tokens.append(Bytes(token));
  py::dict& r = *result;
  r["fields"] = fields;
  r["connection_tokens"] = tokens;
  r["minor_version"] = head.minor_version;
  r["framing"] = FramingName(head.framing);
  r["content_length"] = head.content_length;
  r["keep_alive"] = head.keep_alive;
  r["size"] = head.size;
}

template <typename Parser>
py::dict StateDict(ParseState state, const Parser& parser) {
  py::dict r;
  r["state"] = state == ParseState::kDone ? "done" : state == ParseState::kBad ? "bad" : "need_more";
  if (state == ParseState::kBad) {
    r["status"] = parser.error().status;
    r["rule"] = std::string(parser.error().rule);
    r["message"] = std::string(parser.error().message);
  }
  return r;
}

py::dict ParseRequest(RequestHeadParser& parser, const std::string& data, const CutPlaces& cuts, bool move) {
  parser.Reset();
  const auto [state, buffer] = FeedPieces(&parser, data, cuts, move);
  py::dict r = StateDict(state, parser);
  if (state != ParseState::kDone) return r;
  const RequestHead& head = parser.head();
  SetCommon(head, &r);
  r["method"] = Bytes(head.method);
  r["target"] = Bytes(head.target);
  r["path"] = Bytes(head.path);
  r["query"] = Bytes(head.query);
  r["authority"] = Bytes(head.authority);
  r["expects_continue"] = head.expects_continue;
  r["websocket"] = head.websocket;
  py::list via;
  for (const std::string_view value : head.via) via.append(Bytes(value));
  r["via"] = via;
  return r;
}

py::dict ParseResponse(
    ResponseHeadParser& parser, const std::string& data, bool to_head, const CutPlaces& cuts, bool move,
    bool to_upgrade) {
  parser.Reset(to_head, to_upgrade);
  const auto [state, buffer] = FeedPieces(&parser, data, cuts, move);
  py::dict r = StateDict(state, parser);
  if (state != ParseState::kDone) return r;
  const ResponseHead& head = parser.head();
  SetCommon(head, &r);
  r["status"] = head.status;
  r["reason"] = Bytes(head.reason);
  r["event_stream"] = head.event_stream;
  return r;
}

MessageKind KindFrom(bool response) { return response ? MessageKind::kResponse : MessageKind::kRequest; }

const char* const kEventNames[] = {"need_more", "data", "end", "bad"};

// Feeds a reader piece by piece until the input is used up, the body has ended, or it is rejected.
template <typename Reader>
py::dict ReadPieces(Reader* reader, const std::string& data, CutPlaces cuts) {
  cuts.push_back(data.size());
  using Event = typename Reader::Event;
  std::string body;
  std::vector<size_t> edges;  // offsets in `data` where a step ended at a chunk edge
  Event event = Event::kNeedMore;
  size_t used = 0;
  for (const size_t cut : cuts) {
    std::string piece(data, used, cut - used);
    std::string_view rest = piece;
    do {
      const auto step = reader->Feed(rest);
      event = step.event;
      used += step.used;
      rest.remove_prefix(step.used);
      body += step.data;
      if constexpr (std::is_same_v<Reader, ChunkedScanner>) {
        if (reader->at_chunk_edge()) edges.push_back(used);
      }
    } while (event == Event::kData);
    if (event != Event::kNeedMore) break;
  }
  py::dict r;
  r["event"] = kEventNames[static_cast<int>(event)];
  r["used"] = used;
  r["body"] = Bytes(body);
  r["ended"] = reader->ended();
  r["error"] = std::string(reader->error());
  r["edges"] = edges;
  return r;
}

std::vector<HeaderField> Views(const Fields& fields) {
  std::vector<HeaderField> views;
  for (const auto& [name, value] : fields) views.push_back({name, value});
  return views;
}

template <typename Parser>
void MustParse(Parser* parser, const std::string& data) {
  if (parser->Feed(data) != ParseState::kDone) throw py::value_error("not an acceptable head");
}

}  // namespace

void BindTestingHttp(py::module_& testing) {
  py::class_<RequestHeadParser>(testing, "RequestHeadParser")
      .def(py::init())
      .def("parse", &ParseRequest, py::arg("data"), py::arg("cuts") = CutPlaces(), py::arg("move") = true);
  py::class_<ResponseHeadParser>(testing, "ResponseHeadParser")
      .def(py::init())
      .def(
          "parse", &ParseResponse, py::arg("data"), py::arg("to_head") = false, py::arg("cuts") = CutPlaces(),
          py::arg("move") = true, py::arg("to_upgrade") = false);

  testing.def(
      "scan_chunked",
      [](const std::string& data, const CutPlaces& cuts, bool response) {
        ChunkedScanner scanner(KindFrom(response));
        return ReadPieces(&scanner, data, cuts);
      },
      py::arg("data"), py::arg("cuts") = CutPlaces(), py::arg("response") = false);
  testing.def(
      "read_body",
      [](const std::string& framing, uint64_t content_length, const std::string& data, const CutPlaces& cuts,
         bool response) {
        BodyReader reader(FramingFrom(framing), content_length, KindFrom(response));
        py::dict r;
        const bool empty = reader.ended();
        r = ReadPieces(&reader, data, cuts);
        r["ended_from_the_start"] = empty;
        r["left"] = reader.left();
        r["proper_end_of_connection"] = reader.EndOfConnection();
        return r;
      },
      py::arg("framing"), py::arg("content_length"), py::arg("data"), py::arg("cuts") = CutPlaces(),
      py::arg("response") = false);

  testing.def(
      "dechunk",
      [](const std::string& framing, uint64_t content_length, const std::vector<std::string>& reads) {
        BodyReader reader(FramingFrom(framing), content_length, MessageKind::kResponse);
        py::list results;
        for (const std::string& read : reads) {
          std::string bytes = read;
          const Dechunked part = Dechunk(reader, bytes);
          results.append(py::make_tuple(Bytes(part.data), part.used, part.bad));
        }
        return results;
      },
      py::arg("framing"), py::arg("content_length"), py::arg("reads"));

  testing.def(
      "write_upstream_head",
      [](const std::string& request, const std::string& prefix, const std::string& authority,
         bool preserve_host, const std::string& hop_name, const std::string& client_address,
         const std::string& forwarded_proto, bool trust_forwarded, const std::string& request_id_name,
         const std::string& request_id, std::optional<uint32_t> rank, const std::string& authorization,
         bool drop_authorization, bool websocket, const std::string& framing, uint64_t content_length,
         const std::string& before, bool hide_ids, const std::vector<std::string>& id_names,
         const std::string& traceparent, bool drop_tracestate) {
        RequestHeadParser parser;
        MustParse(&parser, request);
        std::string out = before;
        WriteUpstreamHead(
            parser.head(),
            {.prefix = prefix,
             .authority = authority,
             .preserve_host = preserve_host,
             .hop_name = hop_name,
             .client_address = client_address,
             .forwarded_proto = forwarded_proto,
             .trust_forwarded = trust_forwarded,
             .request_id_name = request_id_name,
             .hide_ids = hide_ids,
             .id_names = id_names,
             .request_id = request_id,
             .data_parallel_rank = rank,
             .drop_rank = hide_ids,
             .traceparent = traceparent,
             .drop_tracestate = drop_tracestate,
             .authorization = authorization,
             .drop_authorization = drop_authorization,
             .websocket = websocket,
             .framing = FramingFrom(framing),
             .content_length = content_length},
            &out);
        return Bytes(out);
      },
      py::arg("request"), py::kw_only(), py::arg("prefix") = "", py::arg("authority") = "worker:8000",
      py::arg("preserve_host") = false, py::arg("hop_name") = "", py::arg("client_address") = "",
      py::arg("forwarded_proto") = "", py::arg("trust_forwarded") = true, py::arg("request_id_name") = "",
      py::arg("request_id") = "", py::arg("data_parallel_rank") = std::nullopt, py::arg("authorization") = "",
      py::arg("drop_authorization") = false, py::arg("websocket") = false, py::arg("framing") = "none",
      py::arg("content_length") = 0, py::arg("before") = "", py::arg("hide_ids") = false,
      py::arg("id_names") = std::vector<std::string>(), py::arg("traceparent") = "",
      py::arg("drop_tracestate") = false);
  testing.def("resolve_dot_segments", [](const std::string& path) -> std::optional<py::bytes> {
    std::string resolved;
    switch (ResolveDotSegments(path, &resolved)) {
      case DotSegments::kNone:
        return Bytes(path);
      case DotSegments::kInside:
        return Bytes(resolved);
      default:
        return std::nullopt;
    }
  });
  testing.def(
      "read_via",
      [](const std::vector<std::string>& values, const std::string& own_name) {
        const std::vector<std::string_view> views(values.begin(), values.end());
        const Hops hops = ReadVia(views, own_name);
        return py::make_tuple(hops.own, hops.routers);
      },
      py::arg("values"), py::arg("own_name"));
  testing.attr("MAX_ROUTER_HOPS") = kMaxRouterHops;
  testing.def("hop_name", &HopName);
  testing.def(
      "write_client_head",
      [](const std::string& response, bool to_head, const std::string& request_id, const std::string& framing,
         uint64_t content_length, bool close, bool keep_alive_10, bool websocket, const Fields& extra) {
        ResponseHeadParser parser;
        parser.Reset(to_head, websocket);
        MustParse(&parser, response);
        const std::vector<HeaderField> views = Views(extra);
        std::string out;
        WriteClientHead(
            parser.head(),
            {.request_id = request_id,
             .framing = FramingFrom(framing),
             .content_length = content_length,
             .close = close,
             .keep_alive_10 = keep_alive_10,
             .websocket = websocket,
             .extra = views},
            &out);
        return Bytes(out);
      },
      py::arg("response"), py::kw_only(), py::arg("to_head") = false, py::arg("request_id") = "",
      py::arg("framing") = "none", py::arg("content_length") = 0, py::arg("close") = false,
      py::arg("keep_alive_10") = false, py::arg("websocket") = false, py::arg("extra") = Fields());
  testing.def(
      "write_own_response",
      [](int status, const std::string& content_type, const std::string& request_id, const Fields& extra,
         const std::string& body, bool close, bool to_head) {
        const std::vector<HeaderField> views = Views(extra);
        std::string out;
        WriteOwnResponse(
            {.status = status,
             .content_type = content_type,
             .request_id = request_id,
             .extra = views,
             .body = body,
             .close = close,
             .to_head = to_head},
            &out);
        return Bytes(out);
      },
      py::kw_only(), py::arg("status") = 200, py::arg("content_type") = "application/json",
      py::arg("request_id") = "", py::arg("extra") = Fields(), py::arg("body") = "", py::arg("close") = false,
      py::arg("to_head") = false);
  testing.def("reason_phrase", [](int status) { return std::string(ReasonPhrase(status)); });
  testing.def("write_chunk_size", [](uint64_t size) {
    std::string out;
    WriteChunkSize(size, &out);
    return Bytes(out);
  });

  testing.def("estimate_events", [](const std::vector<std::string>& pieces) {
    StreamTail tail;
    uint64_t bytes = 0;
    for (const std::string& piece : pieces) {
      tail.Add(piece);
      bytes += piece.size();
    }
    return tail.EstimateEvents(bytes);
  });
  testing.def("tail_aborted", [](const std::vector<std::string>& pieces, const std::string& form) {
    StreamTail tail;
    for (const std::string& piece : pieces) tail.Add(piece);
    const ResponseForm read = form == "choices"   ? ResponseForm::kChoices
                              : form == "message" ? ResponseForm::kMessage
                                                  : ResponseForm::kResponse;
    return tail.Summarize(read).aborted;
  });
  testing.def("key_of_protocols", [](const std::string& value) -> std::optional<std::string> {
    const std::optional<std::string_view> key = KeyOfProtocols(value);
    return key.has_value() ? std::optional<std::string>(*key) : std::nullopt;
  });
  testing.def("protocols_without_keys", [](const std::string& value) { return WithoutKeys(value); });
  testing.def(
      "router_location",
      [](const std::string& location, const std::string& authority, const std::string& prefix, bool tls,
         const std::string& client_host, const std::string& router_scheme,
         const std::string& router_authority) {
        return RouterLocation(
            location, {.worker_authority = authority,
                       .worker_prefix = prefix,
                       .worker_tls = tls,
                       .client_host = client_host,
                       .scheme = router_scheme,
                       .authority = router_authority});
      },
      py::arg("location"), py::kw_only(), py::arg("authority") = "gpu-0:8000", py::arg("prefix") = "",
      py::arg("tls") = false, py::arg("client_host") = "", py::arg("scheme") = "https",
      py::arg("router") = "llm.example");
  testing.def("called_as", [](const std::string& request, bool tls, bool trust_forwarded) {
    RequestHeadParser parser;
    MustParse(&parser, request);
    const CalledAs called = ReadCalledAs(parser.head(), tls, trust_forwarded);
    return py::make_tuple(called.scheme, called.authority);
  });
  testing.def("tail_ends_with_event", [](const std::vector<std::string>& pieces) {
    StreamTail tail;
    for (const std::string& piece : pieces) tail.Add(piece);
    return tail.EndsWithEvent();
  });
  testing.def("tail_ends_with_last_event", [](const std::vector<std::string>& pieces) {
    StreamTail tail;
    for (const std::string& piece : pieces) tail.Add(piece);
    return tail.EndsWithLastEvent();
  });
  testing.def("percent_encoded", [](const std::string& text) { return PercentEncoded(text); });
  testing.def("find_query_parameter", [](const std::string& query, const std::string& name) {
    const std::optional<QueryParameter> found = FindQueryParameter(query, name);
    return found ? py::object(py::make_tuple(Bytes(found->value), found->spelled)) : py::none();
  });
  // What reading the pieces tells: events as (type, data), "too long" at the end if they are; the last id; retry.
  testing.def(
      "read_sse",
      [](const std::vector<py::bytes>& pieces, size_t max_event_bytes) {
        SseReader reader(max_event_bytes);
        py::list events;
        SseReader::Step step = SseReader::Step::kNeedMore;
        for (const py::bytes& piece : pieces) {
          std::string_view bytes(piece);
          while ((step = reader.Next(&bytes)) == SseReader::Step::kEvent)
            events.append(py::make_tuple(Bytes(reader.type()), Bytes(reader.data())));
        }
        if (step == SseReader::Step::kTooLong) events.append("too long");
        return py::make_tuple(events, reader.last_id(), reader.retry_ms());
      },
      py::arg("pieces"), py::arg("max_event_bytes") = 1 << 20);
  testing.def("summarize_tail", [](const std::vector<std::string>& pieces) {
    StreamTail tail;
    // State of an earlier response must not show.
    tail.Add(std::string(5000, 'x'));
    tail.Reset();
    for (const std::string& piece : pieces) tail.Add(piece);
    const StreamSummary summary = tail.Summarize();
    py::dict r;
    r["done"] = summary.done;
    r["error"] = summary.error;
    r["server_error"] = summary.server_error;
    r["prompt_tokens"] = summary.prompt_tokens;
    r["completion_tokens"] = summary.completion_tokens;
    r["cached_tokens"] = summary.cached_tokens;
    return r;
  });
}

}  // namespace vllm_router
