"""The slow twin of cpp/routing/pd_machine.h, written from tables: what each event means in each situation.

A situation has a name: `choosing`, `over`, `waiting` (the client has nothing yet), `flowing` (D's response
is on its way to it), `leaving` (the client is served or gone, and kept legs run on).
"""

from dataclasses import dataclass, field

LIVE = {"open", "head", "kept"}

# Event of P: (class, verdict)
P_EVENTS = {
    "p_ok_whole": ("ok", "p_succeeded"),
    "p_ok_without": ("ok", "p_succeeded"),
    "p_too_large": ("ok", None),
    "p_over_budget": ("over_budget", None),
    "p_rejected": ("status", "p_succeeded"),
    "p_busy": ("status", None),
    "p_error": ("status", "p_failed"),
    "p_unreached": ("lost", "p_failed"),
    "p_lost": ("lost", "p_failed"),
    "p_stale": ("stale", None),
    "p_timeout": ("timeout", "p_failed"),
}

DEPARTURES = {"client_gone", "client_too_slow", "drain_deadline", "worker_removed"}

# Failure of D before its first body byte: how the claim ends, what may be given to the client at the end.
D_FAILURES = {
    "d_rejected": ("reject_claim", "respond_d"),
    "d_busy": ("expire_claim", "respond_d"),
    "d_error": ("expire_claim", "respond_d"),
    "d_error_event": ("expire_claim", "respond_d"),
    "d_engine_dead": ("expire_claim", "respond_d"),
    "d_lost": ("expire_claim", "respond_502"),
    "d_timeout": ("expire_claim", "respond_504"),
}


@dataclass
class PdMachine:
    cancel_prefill: str = "auto"
    situation: str = "choosing"
    order: str = "serial"
    rebindable: bool = False
    never_alone: bool = False
    p: str = "idle"
    d: str = "idle"
    client: str = "wait"
    out: set[str] = field(default_factory=set)  # tickets that are out: "p", "d"
    holds_claim: bool = False
    parameters: bool = False
    sent: bool = False
    reopened: set[str] = field(default_factory=set)
    lost: bool = False
    transfer_failed: bool = False
    local: bool = False
    at_the_end: str = "respond_503"
    retry: tuple = ("pair", False, False, False, True)
    done: set[str] = field(default_factory=set)

    @property
    def choosing(self):
        return self.situation == "choosing"

    @property
    def over(self):
        return self.situation == "over"

    @property
    def responded(self):
        return self.situation in ("leaving", "over")

    def step(self, event, **facts):
        self.done = set()
        if self.over:
            return self.done
        if event == "planned":
            self._plan(
                facts.get("kind", "pair"),
                facts.get("order", "serial"),
                facts.get("rebindable", False),
                facts.get("decode_can_prefill", True),
            )
        elif event in P_EVENTS:
            if self.p in LIVE:
                self._of_p(event, facts)
        elif event.startswith("d_"):
            if self.d in LIVE:
                self._of_d(event, facts)
        elif event in DEPARTURES:
            self._depart(event, facts.get("p_readable", False))
        elif event == "no_other_pair":
            self._no_other_pair(self.p == "failed" and facts.get("p_failed", False))
        else:
            getattr(self, f"_{event}")()
        if self.situation == "leaving" and self.p not in LIVE and self.d not in LIVE:
            self.situation = "over"
            self.done.add("end")
        return self.done

    # ---- choosing

    def _plan(self, kind, order, rebindable, decode_can_prefill):
        assert self.choosing
        self.never_alone = order == "sglang" or not decode_can_prefill
        assert not (self.never_alone and kind in ("local", "bypass"))
        self.situation = "waiting"
        self.order, self.rebindable = order, rebindable
        self.p = self.d = "idle"
        self.parameters = self.sent = False
        self.reopened = set()
        self.out = {"d"}
        if kind == "decode_only":
            self.done.add("reuse_claim")
            self._open_d(True)
            return
        self._end_claim("orphan_claim")
        if kind in ("local", "bypass"):
            self.local = kind == "local"
            self._open_d(False)
            return
        self.out = {"p", "d"}
        self.p = "open"
        self.done.add("open_p")
        if order != "serial":
            self._open_d(True)

    def _no_other_pair(self, p_unreached):
        if not self.choosing:
            return
        if (self.transfer_failed or p_unreached) and not self.local and not self.never_alone:
            self.local = True
            self.retry = ("local", False, False, False, True)
            self.done.add("retry")
        else:
            self._conclude()

    def _no_retry(self):
        if self.choosing:
            self._conclude()

    # ---- P

    def _of_p(self, event, facts):
        kind, verdict = P_EVENTS[event]
        kept = self.p == "kept"
        if kind == "stale":
            if not kept and "p" not in self.reopened:
                self.reopened.add("p")
                self.done.add("reopen_p")
                return
            kind, verdict, facts = "lost", "p_failed", {}
        if kind == "timeout" and kept:
            return
        if kind == "over_budget" and self.situation != "waiting":
            kind, event = "ok", "p_too_large"
        if verdict and not kept:
            self.done.add(verdict)
        if kind == "over_budget":
            self._stop_p(d_is_closed_by_us=self.sent)
            self._stop_d("closed")
            self.done.add("respond_503")
            self.situation = "leaving"
        elif kind == "ok":
            self._p_ok(event)
        elif kind == "status":
            self._p_status(event)
        else:
            self._p_without_response(kind, facts)

    def _p_ok(self, event):
        self._p_ends("ok")
        if self.order != "sglang" and event == "p_ok_whole":
            self.done.add("learn_identity")
        if self.order != "serial":
            return
        if event == "p_too_large":
            self.p = "closed"
            self.done.add("close_p")
        if event == "p_ok_whole":
            self.holds_claim = True
            self.done.add("make_claim")
        if self.situation == "waiting":
            self._open_d(self.holds_claim)
        else:
            self._end_claim("orphan_claim")

    def _p_status(self, event):
        self._p_ends("failed")
        self._stop_d("closed")
        if self.situation == "flowing":
            self._abort()
        elif self.situation == "waiting":
            self.at_the_end = "respond_p"
            if event == "p_rejected":
                self._conclude()
            else:
                self._again(exclude_p=True)

    def _p_without_response(self, kind, facts):
        if kind == "lost":
            self._p_ends("failed")
        else:
            self._stop_p(d_is_closed_by_us=self.situation == "waiting" and self.sent)
        if self.situation != "waiting":
            return
        self._stop_d("closed")
        own = "respond_504" if kind == "timeout" or facts.get("timed_out") else "respond_502"
        self._remember(own)
        if kind == "timeout" and not facts.get("early"):
            self._conclude()
        else:
            self._again(exclude_p=True)

    # ---- D

    def _of_d(self, event, facts):
        if event == "d_sent":
            self.sent = self.sent or self.d == "open"
            return
        if event == "d_head":
            if self.d == "open":
                self.d, self.sent = "head", True
            return
        if event == "d_ineligible":
            if self.d == "open" and not self.sent:
                self._d_never_sent(False, None)
            return
        if event == "d_stale":
            if self.d == "open" and "d" not in self.reopened:
                self.reopened.add("d")
                self.done.add("reopen_d")
                return
            event = "d_lost"
        if event == "d_unreached":
            own = "respond_504" if facts.get("timed_out") else "respond_502"
            if not self.sent and self.d == "open":
                self._d_never_sent(True, own)
            else:
                self._d_fails("d_lost", facts, own)
            return
        if event == "d_timeout" and self.d != "kept" and not self.sent:
            self.done.add("close_d")
            self._d_never_sent(True, "respond_504")
            return
        if event == "d_done":
            self._d_done(facts)
        elif event == "d_first_byte":
            if self.situation != "flowing":
                self._d_first_byte()
        else:
            self._d_fails(event, facts)

    def _d_first_byte(self):
        self.sent = True
        self._end_claim("redeem_claim")
        if self.situation == "waiting":
            self._commit()
            self.d = "head"
        else:
            self._stop_d("closed")

    def _d_done(self, facts):
        self._end_claim("redeem_claim")
        kept = self.d == "kept"
        self._d_ends("done")
        if kept:
            return
        if self.situation == "waiting":
            self._commit()
        self.done |= {"d_failed" if facts.get("server_error") else "d_succeeded", "complete"}
        self.situation = "leaving"
        if self.p == "open":
            self.p = "kept"
            self.done.add("keep_p")

    def _d_never_sent(self, unreached, own):
        if unreached:
            self.done.add("d_failed")
            self._remember(own)
        self._d_ends("failed")
        self._stop_p(d_is_closed_by_us=False)
        if self.holds_claim and self.rebindable:
            self._again(kind="decode_only", exclude_d=True, counted=unreached)
        else:
            self._end_claim("orphan_claim")
            self._again(exclude_d=True, prefer_p=True, counted=unreached)

    def _d_fails(self, event, facts, own=None):
        claim_end, at_the_end = D_FAILURES[event]
        if self.situation == "flowing":
            if event in ("d_lost", "d_timeout"):
                self.done.add("d_failed")
                self._stop_p(d_is_closed_by_us=False)
                if event == "d_lost":
                    self._d_ends("failed")
                else:
                    self._stop_d("closed")
                self._abort()
            return
        if self.d == "kept":
            if event != "d_timeout":
                self._end_claim(claim_end)
                self._d_ends("failed")
            return
        self._end_claim(claim_end)
        self._verdicts(event, facts)
        self._stop_p(d_is_closed_by_us=event == "d_timeout")
        if event == "d_timeout":
            self._stop_d("closed")
        else:
            self._d_ends("failed")
        self._remember(own or at_the_end)
        self._what_next(event, facts)

    def _verdicts(self, event, facts):
        """A transfer that failed counts for neither, or for P if P fails as well."""
        transfer = self.parameters and event in ("d_error", "d_error_event", "d_timeout")
        if event == "d_rejected":
            self.done.add("d_succeeded")
        elif transfer and facts.get("p_failed"):
            self.done.add("p_failed")
        elif event != "d_busy" and not transfer:
            self.done.add("d_failed")

    def _what_next(self, event, facts):
        with_parameters = self.parameters
        if event == "d_rejected":
            self._conclude()
        elif event == "d_busy":
            self._again(exclude_d=True, prefer_p=True)
        elif event in ("d_lost", "d_engine_dead"):
            second = self.lost
            self.lost = True
            if second or self.never_alone:
                self._conclude()
            else:
                self.local = True
                self._again(exclude_p=True, exclude_d=True)
        else:
            self.transfer_failed = self.transfer_failed or with_parameters
            if event == "d_timeout" and not facts.get("early"):
                self._conclude()
            else:
                self._again(exclude_p=with_parameters, exclude_d=True, prefer_p=not with_parameters)

    # ---- the client, times

    def _depart(self, event, p_readable):
        if self.situation == "leaving" or (self.choosing and event == "worker_removed"):
            return
        waited = self.situation == "waiting"
        if event == "worker_removed" and waited:
            self.done.add("respond_503")
        elif event != "client_gone":
            self.done.add("abort_client")
        self.situation, self.client = "leaving", "gone"
        if self.p == "open" and self.order == "serial" and p_readable:
            self.p = "kept"
            self.done.add("keep_p")
        else:
            self._stop_p(d_is_closed_by_us=self.sent)
        keeps = waited and self.d in LIVE and self.sent and self.parameters and self.order != "sglang"
        if keeps:
            self.d = "kept"
            self.done.add("keep_d")
        else:
            self._stop_d("closed")
            self._end_claim("orphan_claim")

    def _handoff_late(self):
        if not self.holds_claim or self.sent or self.responded:
            return
        self._end_claim("expire_claim")
        if self.choosing:
            self.retry = (self._next(), *self.retry[1:])
        else:
            self._stop_d("closed")
            self._again(exclude_d=True, prefer_p=True)

    def _grace_over(self):
        if self.d == "kept":
            self._end_claim("expire_claim")
            self._stop_d("closed")

    def _keep_over(self):
        if self.p == "kept":
            self.done.add("close_p")
            self._p_ends("closed")
        self._grace_over()

    # ---- words of the tables

    def _open_d(self, with_parameters):
        self.d = "open"
        self.parameters = with_parameters
        self.done.add("open_d_with" if with_parameters else "open_d_without")

    def _p_ends(self, how):
        if self.p in LIVE:
            self.p = how
        if "p" in self.out:
            self.done.add("release_p")
        self.out -= {"p"}

    def _d_ends(self, how):
        if self.d in LIVE:
            self.d = how
        if "d" in self.out:
            self.done.add("release_d")
        self.out -= {"d"}

    def _stop_d(self, how):
        if self.d in LIVE:
            self.done.add("close_d")
        self._d_ends(how)

    def _stop_p(self, d_is_closed_by_us):
        """vLLM's blocks at D may stay held if D and P are closed together."""
        if self.p != "open":
            return
        both = d_is_closed_by_us and self.order == "concurrent"
        if self.cancel_prefill == "never" or (self.cancel_prefill == "auto" and both):
            self.p = "kept"
            self.done.add("keep_p")
        else:
            self.done.add("close_p")
            self._p_ends("closed")

    def _end_claim(self, how):
        if self.holds_claim:
            self.done.add(how)
        self.holds_claim = False

    def _commit(self):
        self.client = "begun"
        self.situation = "flowing"
        self.done |= {"commit", "relay"}

    def _abort(self):
        self.done.add("abort_client")
        self.situation = "leaving"

    def _remember(self, response):
        own = response in ("respond_502", "respond_504")
        if not (own and self.at_the_end in ("respond_p", "respond_d")):
            self.at_the_end = response

    def _next(self):
        return "local" if self.local else "pair"

    def _again(self, kind=None, exclude_p=False, exclude_d=False, prefer_p=False, counted=True):
        if self.p == "kept":
            self._conclude()
            return
        self.situation = "choosing"
        self.retry = (kind or self._next(), exclude_p, exclude_d, prefer_p, counted)
        self.done.add("retry")

    def _conclude(self):
        self._end_claim("orphan_claim")
        self.done.add(self.at_the_end)
        self.situation = "leaving"
