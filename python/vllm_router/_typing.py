"""Types that the stub of the extension needs and that have no other home."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray


class HasArray(Protocol):
    """What numpy makes an array of, such as a pandas Series."""

    def __array__(self) -> NDArray[Any]: ...
