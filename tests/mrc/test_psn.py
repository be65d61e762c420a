from hypothesis import given
from hypothesis import strategies as st

from testbed.mrc.wire.kinds import MSN_MASK, unwrap_msn, unwrap_psn, wrap_psn


@given(near=st.integers(0, 1 << 40), distance=st.integers(-(1 << 23), (1 << 23) - 1))
def test_psn_unwraps_to_the_nearest(near: int, distance: int) -> None:
    assert unwrap_psn(wrap_psn(near + distance), near) == near + distance


@given(near=st.integers(0, 1 << 40), distance=st.integers(-(1 << 15), (1 << 15) - 1))
def test_msn_unwraps_to_the_nearest(near: int, distance: int) -> None:
    assert unwrap_msn((near + distance) & MSN_MASK, near) == near + distance


@given(psn=st.integers(0, (1 << 24) - 1), near=st.integers(-1, 1 << 40))
def test_unwrapping_keeps_the_psn(psn: int, near: int) -> None:
    seq = unwrap_psn(psn, near)
    assert wrap_psn(seq) == psn
    assert abs(seq - near) <= 1 << 23
