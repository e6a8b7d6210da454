#include "holdout/effect_estimate.h"

#include <algorithm>
#include <cmath>

namespace vllm_router {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Standard deviations that an effect has to be away, times the square root of the conversations held out: 3.04 for the
// interval of alpha 0.05 where it is narrowest, and 0.84 for 4 of 5 cases.
constexpr double kFoundAt = 3.88;
constexpr double kMostNeeded = 1e9;

// std::lgamma writes a global variable.
double LogGamma(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}

double LogBeta(double a, double b) { return LogGamma(a) + LogGamma(b) - LogGamma(a + b); }

// 0 ln 0 = 0.
double TimesLog(double count, double x) { return count == 0 ? 0 : count * std::log(x); }

}  // namespace

double TightestRhoSquared(double terms, double alpha) {
  const double twice = -2 * std::log(alpha);
  return (twice + std::log(twice + 1)) / terms;
}

double ConfidenceHalfWidth(double terms, double sd, double rho_squared, double alpha) {
  if (terms <= 0) return kInfinity;
  const double scaled = terms * rho_squared + 1;
  return sd * std::sqrt(2 * scaled / (terms * terms * rho_squared) * std::log(std::sqrt(scaled) / alpha));
}

EffectEstimate::EffectEstimate(double share) : share_(share) {}

void EffectEstimate::Add(size_t stratum, bool is_held_out, double value) {
  const Mean& known = strata_[stratum].count != 0 ? strata_[stratum] : policy_;
  const double m1 = known.mean;
  const double m0 = m1 + residuals_.mean;
  const double weighed = is_held_out ? -(value - m0) / share_ : (value - m1) / (1 - share_);
  const double term = m1 - m0 + weighed;
  const double before = terms_.mean;
  terms_.Add(term);
  squares_ += (term - before) * (term - terms_.mean);
  if (is_held_out) {
    held_out_.Add(value);
    residuals_.Add(value - m1);
  } else {
    policy_.Add(value);
    strata_[stratum].Add(value);
  }
}

double EffectEstimate::sd() const {
  return terms_.count == 0 ? 0 : std::sqrt(squares_ / static_cast<double>(terms_.count));
}

std::optional<Interval> EffectEstimate::At(double alpha) const {
  if (held_out_.count < kFirstLook) return std::nullopt;
  const double rho_squared = TightestRhoSquared(static_cast<double>(kTightestAt) / share_, alpha);
  const double half = ConfidenceHalfWidth(static_cast<double>(terms_.count), sd(), rho_squared, alpha);
  return Interval{terms_.mean - half, terms_.mean + half};
}

std::optional<uint64_t> EffectEstimate::HeldOutNeeded() const {
  const double away = std::abs(terms_.mean);
  if (away == 0) return std::nullopt;
  const double root = kFoundAt * sd() / away;
  // A term of a held-out conversation stands for 1 / share of them.
  const double needed = std::ceil(root * root * share_);
  if (!(needed < kMostNeeded)) return std::nullopt;
  return static_cast<uint64_t>(std::max(0.0, needed - static_cast<double>(held_out_.count)));
}

double FailureRatio::RatioOf(double q) const {
  return q >= 1 ? kInfinity : q * (1 - share_) / ((1 - q) * share_);
}

std::optional<double> FailureRatio::ratio() const {
  const uint64_t all = policy_ + held_out_;
  if (all == 0) return std::nullopt;
  return RatioOf(static_cast<double>(held_out_) / static_cast<double>(all));
}

Interval FailureRatio::At(double alpha) const {
  const auto held = static_cast<double>(held_out_);
  const auto other = static_cast<double>(policy_);
  if (held + other == 0) return {0, kInfinity};
  const double b = 1 / share_ - 1;
  const double mixture = LogBeta(1 + held, b + other) - LogBeta(1, b);
  const double limit = -std::log(alpha);
  const auto is_within = [&](double q) {
    return mixture - TimesLog(held, q) - TimesLog(other, 1 - q) < limit;
  };
  // The set is an interval around the share among the failed, where the likelihood is largest.
  const double middle = held / (held + other);
  const auto end = [&](double outside) {
    double inside = middle;
    constexpr int kSteps = 60;
    for (int i = 0; i < kSteps; ++i) {
      const double q = (inside + outside) / 2;
      (is_within(q) ? inside : outside) = q;
    }
    return inside;
  };
  return {held_out_ == 0 ? 0 : RatioOf(end(0)), policy_ == 0 ? kInfinity : RatioOf(end(1))};
}

}  // namespace vllm_router
