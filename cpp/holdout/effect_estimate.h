// What a policy changes, with intervals that hold at every look at once: whoever watches a page all day and stops when an
// interval leaves zero is wrong in at most a share alpha of all cases.
//
// EffectEstimate: of a mean. Each conversation adds one term, in which Q is the share that is held out, x its stratum (known
// before the arm acts), and m0 and m1 use earlier conversations alone:
//
//   psi = m1(x) - m0(x) + [policy] (Y - m1(x)) / (1 - Q) - [held out] (Y - m0(x)) / Q
//   m1(x)  mean of Y of earlier conversations of the policy in x (in all strata if there is none in x)
//   m0(x)  m1(x) + mean of Y - m1 over earlier held-out conversations
//
// Given the past each term's expectation is the effect, policy minus held out, whatever m0 and m1 are; good ones make it
// vary less. The interval is the asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas,
// "Time-uniform central limit theory and asymptotic confidence sequences" (Annals of Statistics, 2024):
//
//   mean +- sd sqrt(2 (t r + 1) / (t^2 r) ln(sqrt(t r + 1) / alpha))        t terms, r = rho^2, fixed before the data
//
// FailureRatio: of rates of rare failures. Of k failed conversations S were held out; a failed one was held out with
// probability q = Q h / (Q h + (1 - Q) p), of the rates h and p. With B the beta function, a = 1 and b = 1/Q - 1
//
//   { q : ln B(a + S, b + k - S) - ln B(a, b) - S ln q - (k - S) ln(1 - q) < ln(1 / alpha) }
//
// contains q at every k with probability 1 - alpha or more, at any sample size (the mixture is a martingale, and Ville's
// inequality bounds its maximum). The ratio is h / p = q (1 - Q) / ((1 - q) Q).
//
// Memory: two numbers per stratum. An interval of FailureRatio takes some hundred logarithms.
// Pure; no clock. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

namespace vllm_router {

struct Interval {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

// rho^2 with which the interval of `alpha` is narrowest at `terms` (to 0.01 %).
double TightestRhoSquared(double terms, double alpha);
// Half the width of the interval after `terms` with standard deviation `sd`. Infinite without terms.
double ConfidenceHalfWidth(double terms, double sd, double rho_squared, double alpha);

class EffectEstimate {
 public:
  static constexpr size_t kStrata = 64;
  static constexpr uint64_t kFirstLook = 100;   // held-out conversations before there is an interval
  static constexpr uint64_t kTightestAt = 500;  // held-out conversations with which it is narrowest

  // `share`: of conversations that are held out, 0 < share < 1.
  explicit EffectEstimate(double share);

  // REQUIRES: stratum < kStrata.
  void Add(size_t stratum, bool is_held_out, double value);

  uint64_t policy() const { return policy_.count; }
  uint64_t held_out() const { return held_out_.count; }
  // Plain means of the arms, for people. REQUIRES: a conversation in that arm.
  double policy_mean() const { return policy_.mean; }
  double held_out_mean() const { return held_out_.mean; }
  // Of the terms: policy minus held out.
  double effect() const { return terms_.mean; }
  double sd() const;
  // nullopt: too few are held out.
  std::optional<Interval> At(double alpha) const;
  // How many more have to be held out until an effect as large as the estimate would be found in 4 of 5 cases at alpha 0.05;
  // nullopt: it is zero, or more than a billion.
  std::optional<uint64_t> HeldOutNeeded() const;

 private:
  struct Mean {
    uint64_t count = 0;
    double mean = 0;
    void Add(double value) { mean += (value - mean) / static_cast<double>(++count); }
  };

  const double share_;
  std::array<Mean, kStrata> strata_;  // of the policy
  Mean policy_;
  Mean held_out_;
  Mean residuals_;  // of the held out, from m1
  Mean terms_;
  double squares_ = 0;  // of the terms' deviations from their mean
};

class FailureRatio {
 public:
  explicit FailureRatio(double share) : share_(share) {}

  void Add(bool is_held_out) { ++(is_held_out ? held_out_ : policy_); }

  uint64_t policy() const { return policy_; }
  uint64_t held_out() const { return held_out_; }
  // Of the held-out's rate to the policy's. nullopt: nothing has failed; infinite: only held-out conversations have.
  std::optional<double> ratio() const;
  Interval At(double alpha) const;

 private:
  double RatioOf(double q) const;

  const double share_;
  uint64_t policy_ = 0;
  uint64_t held_out_ = 0;
};

}  // namespace vllm_router
