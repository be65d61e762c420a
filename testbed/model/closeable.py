"""Objects that hold sockets, descriptors or mappings until they are closed."""

from abc import ABC, abstractmethod
from typing import Self


class Closeable(ABC):
    """An object with a `close` method, which a `with` block calls at its end."""

    @abstractmethod
    def close(self) -> None:
        """Release everything that the object holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
