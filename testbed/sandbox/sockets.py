"""Options of sockets that Python does not name, and names of UNIX sockets with long paths."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SO_SNDBUFFORCE: Final = 32
SO_RCVBUFFORCE: Final = 33
"""Buffers beyond the system's limit, for root (socket(7))."""

ETH_P_ALL: Final = 3
"""Frames of every protocol (packet(7))."""


@contextmanager
def socket_name(path: Path) -> Iterator[str]:
    """A name for a UNIX socket during a block, however long its path is.

    The kernel takes at most 107 bytes (unix(7)), so the name leads through the descriptor of the
    socket's directory.

    Raises:
        OSError: the directory cannot be opened.
    """
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
