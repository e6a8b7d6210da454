// StageLeg: one of the two requests that a prefill worker and a decode worker get, from its choice to its end. Its task runs
// the UpstreamRequest, reads what has to be read before the next step, and reports one event (or two: decode's head and
// its first byte), as its last act:
//
//   prefill   the whole response                      -> kPOkWhole, kPOkWithout, kPTooLarge, kPRejected …
//   decode    2xx: the head and the first body byte   -> kDHead and kDFirstByte, or kDErrorEvent
//             else: the whole response                -> kDRejected, kDBusy, kDError, kDEngineDead
//
// A closed leg reports nothing any more. Legs stay where they are until their exchange has ended, since their tasks use
// them. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "disaggregation/kv_connector.h"
#include "disaggregation/pd_machine.h"
#include "disaggregation/prefill_response.h"
#include "proxy/exchange/upstream_request.h"
#include "proxy/exchange/worker_choice.h"
#include "proxy/telemetry/request_info.h"
#include "proxy/thread/body_claim.h"
#include "routing/body_patch.h"

namespace vllm_router {

class PdExchange;
struct Settings;

class StageLeg {
 public:
  // What it sends: the client's message with another id and an edited copy of the body. The patch and the copy view the
  // body and, for decode, the prefill worker's response.
  struct Setup {
    UpstreamRequest::Message message;
    std::string id;
    BodyPatch patch;
    const BodyMap* body = nullptr;
    const KvConnector* connector = nullptr;
    std::span<const BodyInsertion> insertions = {};
    size_t max_bytes = 0;  // of the prefill worker's response
    // A response of prefill without parameters counts as its failure: decode could do nothing without them.
    bool must_hand_over = false;
    bool has_parameters = false;
    // Decode's response gets a part of prefill's, so it is read whole if it is not long. Prefill's response is kept
    // whole, or its usage alone.
    bool may_merge = false;
    bool keeps_usage = false;
  };

  // What its worker has responded.
  struct Result {
    int status = 0;
    std::optional<int64_t> retry_after_ms = {};
    Outcome outcome{.end = Outcome::End::kClientGone};
    // Prefill, of a 2xx response.
    PrefillResponse prefill = {};
    std::string usage = {};  // as UsageOf(); empty if there is none
    bool withheld = false;   // it lacks the parameters that decode needs
    bool broke_off = false;  // it had begun well
    // Decode.
    bool is_whole = false;     // it has been read, and is not to be relayed from its connection
    bool error_event = false;  // its stream begins with an error of the server
    bool frees_prefill =
        false;  // its engine has rejected the request, and so told prefill to free the blocks
  };

  // `info` records what happens to the request.
  StageLeg(PdExchange& owner, IoThread& thread, RequestInfo& info, Stage stage);
  StageLeg(const StageLeg&) = delete;
  StageLeg& operator=(const StageLeg&) = delete;

  // Once. `fresh`: not on a connection that was used before.
  void Start(
      const Settings& settings, ServerErrors& errors, Setup setup, WorkerChoice::Selected selected,
      bool fresh);
  // Its connection ends, and it reports nothing more.
  void Close();

  UpstreamRequest& request() { return *request_; }
  const UpstreamRequest& request() const { return *request_; }
  const std::shared_ptr<Worker>& worker() const { return request_->worker(); }
  const RequestInfo& info() const { return info_; }
  Stage stage() const { return stage_; }
  bool closed() const { return closed_; }
  bool runs() const { return runs_; }  // its task; the response may still be relayed afterwards
  bool has_parameters() const { return setup_.has_parameters; }

  const Result& result() const { return result_; }
  // Without its framing: prefill's 2xx response, or decode's that is whole.
  const std::string& body() const { return whole_.body; }
  // As they came, of a response that is not 2xx; empty if they could not be kept.
  std::string TakeBytes() { return std::move(whole_.bytes); }
  // The load, as the result says. REQUIRES: it was not returned before.
  void ReturnLoad();

 private:
  Task<void> Run(bool fresh);
  Task<PdEvent> RunPrefill(bool fresh);
  Task<PdEvent> RunDecode(bool fresh);
  PdEvent FailedPrefill() const;
  PdEvent FailedDecode() const;
  PdEvent OnPrefillResponse(UpstreamResponse::Rest rest);
  PdEvent OnPrefillSuccess(UpstreamResponse::Rest rest);
  PdResponseClass OnError(UpstreamResponse::Rest rest);
  void KeepParameters();
  PdEvent OnWithheld();
  Task<PdEvent> ReadDecodeError();
  Task<bool> BeginsWithError();
  bool IsToBeMerged();
  static void OnSending(void* leg);

  PdExchange& owner_;
  IoThread& thread_;
  RequestInfo& info_;
  const Stage stage_;
  Setup setup_;
  SplicedBody copy_;
  std::optional<UpstreamRequest> request_;
  UpstreamResponse::Whole whole_;
  BodyClaim memory_;  // for that
  Result result_;
  bool counted_ = false;  // as sent
  bool closed_ = false;
  bool runs_ = false;
};

}  // namespace vllm_router
