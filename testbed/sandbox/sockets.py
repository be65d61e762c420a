"""Names of UNIX sockets in directories with long paths."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
