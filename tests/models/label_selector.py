"""A label selector as the API server reads it: terms, separated by commas, each looked at by itself."""

from __future__ import annotations

import re
from collections.abc import Mapping


def terms_of(selector: str) -> list[str]:
    """Its terms; the commas between parentheses are of one term."""
    return [term.strip() for term in re.split(r",(?![^(]*\))", selector) if term.strip()]


def term_matches(term: str, labels: Mapping[str, str]) -> bool:
    """Whether labels have what one term says."""
    if within := re.fullmatch(r"(\S+)\s+(in|notin)\s*\((.*)\)", term):
        key, how, values = within.groups()
        found = key in labels and labels[key] in [value.strip() for value in values.split(",")]
        return found if how == "in" else not found
    if "!=" in term:
        key, value = (part.strip() for part in term.split("!="))
        return labels.get(key) != value
    if "=" in term:
        key, value = (part.strip() for part in term.replace("==", "=").split("="))
        return labels.get(key) == value
    if term.startswith("!"):
        return term[1:].strip() not in labels
    return term in labels


def matches(selector: str, labels: Mapping[str, str]) -> bool:
    """Whether labels have what all terms say."""
    return all(term_matches(term, labels) for term in terms_of(selector))
