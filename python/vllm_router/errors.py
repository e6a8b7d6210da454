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


class RouterError(Exception):
    """Base of every exception that only a router can raise."""


class NoWorkersError(RouterError):
    """No worker may be chosen now. The message counts workers by the reason; no load was reserved."""


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
