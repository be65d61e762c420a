"""The checksum of packets is zlib's, whatever computes it."""

import subprocess
import sys
import zlib

from hypothesis import given
from hypothesis import strategies as st

from testbed.mrc.wire import crc


@given(st.binary(max_size=5000), st.integers(0, 2**32 - 1))
def test_it_equals_the_checksum_of_zlib(data: bytes, start: int) -> None:
    assert crc.crc32(data, start) == zlib.crc32(data, start)
    assert crc.crc32(memoryview(data), start) == zlib.crc32(data, start)


def test_without_isa_l_zlib_computes_it() -> None:
    """In a process of its own: a module built as C is not loaded a second time."""
    code = (
        "import sys, zlib\n"
        "sys.modules['isal.isal_zlib'] = None\n"
        f"from {crc.__name__} import crc32\n"
        "assert crc32 is zlib.crc32\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
