"""What can go wrong, as a tree. Every message names the thing, the value, the limit and the remedy.

Exception
├── RouterError                   what only a router can raise; also a fleet that is full
│   ├── NoWorkersError            no worker may be chosen: none, all unhealthy, draining or excluded
│   ├── WorkerNotFoundError       the URL is not in the fleet; also a LookupError
│   ├── ModelNotFoundError        no worker has listed the model; also a LookupError
│   ├── WorkerExistsError         the URL is in the fleet already; also a ValueError
│   ├── TicketFinishedError       the ticket was to be moved and is finished; also a ValueError
│   └── IndexFileError            a saved index is damaged or of another kind or version; also a ValueError
├── ValueError                    a value out of its range, a bad URL, an unknown policy
└── TypeError                     an unknown option, an argument of the wrong type

UserWarning
└── UnusedOptionWarning           an option that is known, and that the chosen policy does not read
"""

import re

# Where each count of NoWorkersError is in its message (cpp/routing/router.cc, NobodyEligible).
_COUNTS = {
    "workers": r" has (\d+) workers?\b",
    "unhealthy": r"\b(\d+) unhealthy\b",
    "draining": r"\b(\d+) draining\b",
    "not_ready": r"\b(\d+) not ready\b",
    "unpaired": r"\b(\d+) that cannot be paired yet\b",
    "open_breakers": r"\b(\d+) with an open circuit breaker\b",
    "in_doubt": r"\b(\d+) in doubt\b",
    "of_other_models": r"\b(\d+) that do not serve the model\b",
    "excluded": r"\b(\d+) excluded\b",
    "at_capacity": r"\ball (\d+) that are eligible have \d+ open requests\b",
}


class RouterError(Exception):
    """Base of every exception that only a router can raise."""


class NoWorkersError(RouterError):
    """No worker may be chosen now. The message counts workers by the reason; no load was reserved.

    So do the attributes, each 0 where the message has no such count: `workers` of the fleet or the stage, and
    of those `unhealthy`, `draining`, `not_ready`, `unpaired` (they cannot be paired yet), `open_breakers`,
    `in_doubt`, `of_other_models`, `excluded` (by `exclude`) and `at_capacity` (they have as many open
    requests as `max_worker_requests`).
    """

    workers: int
    unhealthy: int
    draining: int
    not_ready: int
    unpaired: int
    open_breakers: int
    in_doubt: int
    of_other_models: int
    excluded: int
    at_capacity: int

    def __getattr__(self, name: str) -> int:
        """A count, read from the message when it is asked for."""
        pattern = _COUNTS.get(name)
        if pattern is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        found = re.search(pattern, str(self))
        return int(found[1]) if found else 0


class WorkerNotFoundError(RouterError, LookupError):
    """The URL is not in the fleet. The message names the nearest one that is."""


class ModelNotFoundError(RouterError, LookupError):
    """No worker has listed this model, and those there are list others, which the message names."""


class WorkerExistsError(RouterError, ValueError):
    """The URL is in the fleet already."""


class TicketFinishedError(RouterError, ValueError):
    """The ticket is finished: its load has been returned, so there is nothing to move."""


class IndexFileError(RouterError, ValueError):
    """A saved index, or a pickle of one, cannot be used. The message names the file and what is wrong."""


class UnusedOptionWarning(UserWarning):
    """The option is known, and the chosen policy does not read it."""
