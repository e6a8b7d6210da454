"""The slow truth of cpp/holdout/effect_estimate.h: every term from all earlier conversations at once."""

import math

import numpy as np


def terms(share, strata, held_out, values):
    """psi of each conversation; arrays of the same length n.

    Args:
        share: Q, the share that is held out.
        strata: Of each conversation, a whole number.
        held_out: True where the conversation is held out.
        values: Its outcome.

    Returns:
        The terms, float64[n].
    """
    made = np.zeros(len(values))
    m1_of = np.zeros(len(values))
    for i in range(len(values)):
        policy = values[:i][~held_out[:i]]
        own = values[:i][~held_out[:i] & (strata[:i] == strata[i])]
        m1 = own.mean() if len(own) else policy.mean() if len(policy) else 0.0
        residuals = values[:i][held_out[:i]] - m1_of[:i][held_out[:i]]
        m0 = m1 + (residuals.mean() if len(residuals) else 0.0)
        m1_of[i] = m1
        weighed = -(values[i] - m0) / share if held_out[i] else (values[i] - m1) / (1 - share)
        made[i] = m1 - m0 + weighed
    return made


def half_width(count, sd, rho_squared, alpha):
    scaled = count * rho_squared + 1
    return sd * math.sqrt(2 * scaled / (count**2 * rho_squared) * math.log(math.sqrt(scaled) / alpha))


def interval(share, psi, alpha, tightest_at=500):
    at = tightest_at / share
    rho_squared = (-2 * math.log(alpha) + math.log(-2 * math.log(alpha) + 1)) / at
    half = half_width(len(psi), psi.std(), rho_squared, alpha)
    return psi.mean() - half, psi.mean() + half


def log_beta(a, b):
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def failure_ratios(share, policy, held_out, alpha, steps=20_000):
    """The ratios of the confidence set on a grid of log odds: (lowest, highest)."""
    b = 1 / share - 1
    mixture = log_beta(1 + held_out, b + policy) - log_beta(1, b)
    odds = np.exp(np.linspace(-30, 30, steps))
    q = odds / (1 + odds)
    within = mixture - held_out * np.log(q) - policy * np.log1p(-q) < math.log(1 / alpha)
    ratios = (odds * (1 - share) / share)[within]
    return ratios.min(), ratios.max()
