"""What can go wrong, as a tree. Every message names the thing, the value, the limit and the remedy.

    Exception
    ├── RouterError                    anything that only a router can raise; also a full fleet
    │   ├── NoWorkersError             nobody may be chosen now: no workers, all unhealthy, draining or excluded
    │   ├── WorkerNotFoundError        remove, drain or set_healthy of a URL that is not in the fleet  (a LookupError too)
    │   └── WorkerExistsError          add_worker of a URL that is in the fleet already                (a ValueError too)
    ├── ValueError                     a value out of its range, a bad URL, an unknown policy
    └── TypeError                      an unknown option, an argument of the wrong type

    Warning
    └── UserWarning
        └── UnusedOptionWarning        a known option that the chosen policy does not read
"""


class RouterError(Exception):
    """Base of every exception that only a router can raise."""


class NoWorkersError(RouterError):
    """No worker may be chosen now. The message says how many there are and why not; no load was reserved."""


class WorkerNotFoundError(RouterError, LookupError):
    """The URL is not in the fleet. The message names the nearest one that is."""


class WorkerExistsError(RouterError, ValueError):
    """The URL is in the fleet already."""


class UnusedOptionWarning(UserWarning):
    """The option is known, and the chosen policy does not read it."""
