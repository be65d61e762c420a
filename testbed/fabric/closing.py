"""What holds sockets, descriptors or mappings until it is closed."""

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Has a `close`, and calls it at the end of a `with` block."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything held."""

    def __enter__(self) -> Self:
        """Return the object itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()
