"""The checksum of packets is zlib's, whatever computes it."""

import importlib
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.mrc.wire import crc


@given(st.binary(max_size=5000), st.integers(0, 2**32 - 1))
def test_it_equals_the_checksum_of_zlib(data: bytes, start: int) -> None:
    assert crc.crc32(data, start) == zlib.crc32(data, start)
    assert crc.crc32(memoryview(data), start) == zlib.crc32(data, start)


def test_without_isa_l_zlib_computes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    monkeypatch.delitem(sys.modules, crc.__name__)
    assert importlib.import_module(crc.__name__).crc32 is zlib.crc32
