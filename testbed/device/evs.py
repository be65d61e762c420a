"""The EV profiles of a NIC as controllers see them, and the events of their EVs."""

import errno
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from ipaddress import IPv6Address
from typing import Final

from testbed.device.abi import QpProfiles
from testbed.device.process_memory import Memory
from testbed.device.profiles import (
    EV_ATTR,
    EV_BYTES,
    EV_ENTRY,
    EV_FIELD,
    EVENT,
    FORMAT_ATTR,
    MAX_EVS,
    MAX_FIELDS,
    OLD_EVENT,
    UNPOPULATED,
    Ev,
    EvAttr,
    EvField,
    EvFormat,
    EvMode,
    EvProfileEntries,
    EvStates,
    Format,
    ProfileState,
    given,
    keep,
    load,
    port_of,
    read,
    refuse,
    stev,
    store,
    within,
    write,
)
from testbed.device.protocol import Reply, Request
from testbed.device.queues import ProgramCq, ProgramQp
from testbed.emulation.endpoint.base_device import BaseDevice
from testbed.host.plan import ev_entries
from testbed.model.fabric.addressing import (
    carrier_address,
    ev_for_path,
    host_of_nic,
    path_of_ev,
    paths,
)
from testbed.model.fabric.ev_set import EvChoice
from testbed.model.fabric.nodes import Node
from testbed.mrc import EvChanged, Event, EvEntry, EvState, QueuePair
from testbed.mrc.entropy import EvProfile

_STATE, _CUR_STATE, _MODE, _FORMAT, _COUNT, _MIN_ACTIVE, _EVENTS, _EV_OP, _FIELDS_OP = (
    1 << bit for bit in range(9)
)
"""enum mrc_ctl_ev_profile_attr_mask; a format's begins with the same three."""
_FIXED: Final = _MODE | _FORMAT | _COUNT
_FORMAT_OP: Final = 1 << 3
_MODIFY_FIELDS, _QUERY_FIELDS = 0, 1
_REPLACE, _SET_STATE, _QUERY_STATE, _QUERY_ARRAY = range(4)
_ALL_COPIES: Final = 1
_EVENT_STATES: Final = int(EvStates.GOOD | EvStates.ASSUMED_BAD)

Rest = tuple[bytes, int, int]
"""The other EV and the flags of an entry, which a query leaves alone."""


class EventQueue:
    """EV events that a program has not polled yet; its completion queue tells of them."""

    def __init__(self, cq: ProgramCq, depth: int) -> None:
        self._cq = cq
        self._depth = depth
        self._events = deque[tuple[int, Ev, int, EvStates]]()
        self._dropped = 0

    def push(self, profile: int, ev: Ev, state: EvStates) -> None:
        """Add an event, or count it as dropped if there is no room."""
        if len(self._events) >= self._depth:
            self._dropped += 1
            return
        self._events.append((profile, ev, self._dropped, state))
        self._dropped = 0
        self._cq.tell()

    def poll(self, memory: Memory, request: Request) -> Reply:
        """Hand events to the program.

        Raises:
            OSError: they have another size, or cannot be written.
        """
        size, data = request.mask, b""
        if size not in (OLD_EVENT.size, EVENT.size):
            refuse(errno.EINVAL, f"events of {size} bytes")
        taken = [*self._events][: min(request.length // size, MAX_EVS)]
        for profile, ev, dropped, state in taken:
            new = size == EVENT.size
            values = profile, *ev, dropped
            data += EVENT.pack(*values, state) if new else OLD_EVENT.pack(*values)
        write(memory, request.address, data)
        for _ in taken:
            self._events.popleft()
        return Reply(handle=len(taken))


class EvProfiles:
    """The EV formats and EV profiles of a NIC. Profile 0 is the NIC's own choice.

    Attributes:
        device: the NIC while a program has it open.
        queues: where events go.
    """

    device: BaseDevice

    def __init__(self, qps: Callable[[], Iterable[ProgramQp]]) -> None:
        self._qps = qps
        self._formats: dict[int, EvFormat] = {}
        self._automatic = EvProfileEntries(ProfileState.ONLINE)
        self._evs: dict[int, EvProfileEntries] = {}
        self._bad: dict[tuple[int, int], set[QueuePair]] = {}
        self._denied_any = False
        self._carriers: dict[Node, dict[bytes, int]] = {}
        self.queues: list[EventQueue] = []

    @property
    def used(self) -> int:
        """The EVs of all profiles."""
        return sum(len(profile.evs) for profile in self._evs.values())

    def get(self, number: int) -> EvProfileEntries:
        """An EV profile; one that nothing is known of is in INIT."""
        return self._evs.get(number, EvProfileEntries()) if number else self._automatic

    # --- what queue pairs use -----------------------------------------------------------------

    def evs_to(self, profiles: QpProfiles, automatic: tuple[EvEntry, ...]) -> EvProfile:
        """The EVs of a queue pair to its peer; `automatic` are those that the NIC would choose.

        Raises:
            ValueError: none leads there.
        """
        number, peer = profiles.ev, profiles.peer
        profile = self.get(number)
        if profile.mode is EvMode.AUTO:
            return self._judged(automatic, profile.min_active)
        dst = host_of_nic(self.device.topology, IPv6Address(peer))
        found = (self.number_of(ev, profile.format.mode, dst) for ev in profile.evs) if dst else ()
        values = dict.fromkeys(value for value in found if value is not None)
        if dst is None or not values:
            raise ValueError(f"no EV of profile {number} leads to {IPv6Address(peer)}")
        return self._judged(self.entries(values, dst), profile.min_active)

    def _judged(self, entries: tuple[EvEntry, ...], min_active: int) -> EvProfile:
        """EVs that are judged as the NIC judges all; so many of them stay in use."""
        made = self.device.ev_profile(entries)
        return replace(made, ev_min_active=min(min_active or made.ev_min_active, len(entries)))

    def entries(self, values: Iterable[int], dst: Node) -> tuple[EvEntry, ...]:
        """The entries of an EV profile to a host, all of them active."""
        topology, host = self.device.topology, self.device.host
        ways = ((ev, path_of_ev(topology, host, dst, ev)) for ev in values)
        return ev_entries([EvChoice(ev, path, active=True) for ev, path in ways])

    def number_of(self, ev: Ev, mode: Format, dst: Node) -> int | None:
        """The 32 bits by which a queue pair to a host knows an EV; None if it leads elsewhere.

        An SRv6 EV is a path's carrier address, with or without the part that names the destination.
        """
        if mode is Format.STEV:
            return stev(ev.value)
        known = self._carriers.get(dst)
        if known is None:
            topology, host = self.device.topology, self.device.host
            known = self._carriers[dst] = {}
            for path in paths(topology, host, dst):
                whole = carrier_address(topology, host, dst, path).packed
                own = whole[: 6 if path.t1 is None else 8].ljust(16, b"\0")
                known[whole] = known[own] = ev_for_path(path)
        return known.get(ev.value[:16])

    def connected(self, qp: ProgramQp, now_ns: int) -> None:
        """Deny a new queue pair what its profile denies."""
        core = qp.verbs.core
        assert core is not None  # noqa: S101 - it has learnt its peer
        for ev in self.get(qp.profiles.ev).denied:
            for value in self._values(core, qp.profiles.ev, ev):
                self.device.order_ev(core, value, deny=True, now_ns=now_ns)

    def _users(self, number: int) -> list[QueuePair]:
        found = (qp.verbs.core for qp in self._qps() if qp.profiles.ev == number)
        return [core for core in found if core is not None]

    def _peer(self, core: QueuePair) -> Node:
        dst = host_of_nic(self.device.topology, IPv6Address(core.config.peer_address))
        assert dst is not None  # noqa: S101 - it has EVs to it
        return dst

    def _values(self, core: QueuePair, number: int, ev: Ev) -> list[int]:
        """The number by which a queue pair knows an EV; none if it does not have it."""
        value = self.number_of(ev, self.get(number).format.mode, self._peer(core))
        return [value] if value is not None and value in core.ev_states() else []

    # --- formats ------------------------------------------------------------------------------

    def modify_format(self, memory: Memory, request: Request, _now_ns: int) -> Reply:
        """mrc_ctl_modify_ev_fmt_profile."""
        mask, number = request.mask, request.cookie
        state, current, mode, op, address, count, _ = load(memory, request, FORMAT_ATTR)
        widths = None
        if mask & _FORMAT_OP:
            if op != _MODIFY_FIELDS:
                refuse(errno.EINVAL, f"format operation {op}")
            widths = [*read(memory, address, within(count, MAX_FIELDS))]
        profile = deepcopy(self._formats.get(number, EvFormat()))
        if mask & _STATE and state < profile.state:
            users = (each for each in self._evs.values() if each.format_id == number)
            if any(each.state is ProfileState.ONLINE for each in users):
                refuse(errno.EBUSY, f"an EV profile of format {number} is ONLINE")
        state, current = given(mask & _STATE, state), given(mask & _CUR_STATE, current)
        profile.modify(state, current, given(mask & _MODE, mode), widths)
        keep(self._formats, number, profile)
        return Reply()

    def query_format(self, memory: Memory, request: Request, _now_ns: int) -> Reply:
        """mrc_ctl_query_ev_fmt_profile."""
        profile = self._formats.get(request.cookie, EvFormat())
        _, _, _, op, address, count, vendor = load(memory, request, FORMAT_ATTR)
        fields, short = profile.widths, False
        if request.mask & _FORMAT_OP:
            if op != _QUERY_FIELDS:
                refuse(errno.EINVAL, f"format operation {op}")
            short, count = count < len(fields), len(fields)
            write(memory, address, b"" if short else bytes(fields))
        values = profile.state, profile.state, profile.mode, op, address, count
        store(memory, request, FORMAT_ATTR, *values, vendor)
        if short:
            refuse(errno.E2BIG, f"{count} fields")
        return Reply()

    def _online_format(self, number: int) -> EvFormat:
        found = self._formats.get(number)
        if found is None or found.state is not ProfileState.ONLINE:
            refuse(errno.EINVAL, f"EV format {number} is not ONLINE")
        return found

    # --- profiles: changes --------------------------------------------------------------------

    def modify(self, memory: Memory, request: Request, now_ns: int) -> Reply:
        """mrc_ctl_modify_ev_profile."""
        mask, number, attr = request.mask, request.cookie, EvAttr.load(memory, request)
        if mask & _EV_OP and mask & _FIELDS_OP:
            refuse(errno.EINVAL, "operations on EVs and on fields in one call")
        state, current = given(mask & _STATE, attr.state), given(mask & _CUR_STATE, attr.current)
        step = self.get(number).check_step(state, current)
        profile = self._prepared(memory, number, attr, mask, step)
        if mask & _EV_OP:
            self._operate(memory, number, profile, attr, now_ns)
        if step is ProfileState.ONLINE:
            self._put_online(number, profile)
        if step is ProfileState.INIT:
            del self._evs[number]
        return Reply()

    def _prepared(
        self, memory: Memory, number: int, attr: EvAttr, mask: int, step: ProfileState | None
    ) -> EvProfileEntries:
        """The profile with everything but operations on its EVs done; what is refused is not."""
        if not number:
            if mask & ~(_EVENTS | _EV_OP):
                refuse(errno.EINVAL, "profile 0 is the NIC's own")
            _limit(self._automatic, attr, mask)
            return self._automatic
        profile = deepcopy(self.get(number))
        if step is not None and profile.state is ProfileState.ONLINE and self._users(number):
            refuse(errno.EBUSY, f"queue pairs use EV profile {number}")
        _require_changeable(profile, mask, step)
        if profile.state is ProfileState.INIT or mask & _FIXED:
            self._configure(profile, attr, mask)
        _limit(profile, attr, mask)
        if step is ProfileState.OFFLINE:
            profile.state = step
        if mask & _FIELDS_OP:
            if attr.fields_op != _MODIFY_FIELDS or profile.state is not ProfileState.OFFLINE:
                refuse(errno.EINVAL, f"operation {attr.fields_op} on the fields of a profile")
            size = within(attr.field_count, MAX_FIELDS) * EV_FIELD.size
            fields = EV_FIELD.iter_unpack(read(memory, attr.fields, size))
            profile.set_fields(tuple(EvField(*each) for each in fields))
        keep(self._evs, number, profile)
        return profile

    def _configure(self, profile: EvProfileEntries, attr: EvAttr, mask: int) -> None:
        """Take what a profile must have to be OFFLINE."""
        if not mask & _MODE or attr.mode not in (*EvMode,):
            refuse(errno.EINVAL, "an EV profile needs its mode, to be OFFLINE")
        profile.mode, profile.evs = EvMode(attr.mode), []
        profile.denied.clear()
        if profile.mode is EvMode.AUTO:
            return
        if not mask & _FORMAT or not mask & _COUNT:
            refuse(errno.EINVAL, "an EV profile needs format and count, to be OFFLINE")
        profile.format_id = attr.format_id
        profile.format = self._online_format(attr.format_id)
        profile.evs = [UNPOPULATED] * within(attr.count, MAX_EVS, least=1)

    def _put_online(self, number: int, profile: EvProfileEntries) -> None:
        if profile.mode is not EvMode.AUTO:
            profile.format = self._online_format(profile.format_id)
        if profile.mode is EvMode.GENERATED:
            profile.generate(number, self.device.topology.planes, len(profile.evs))
            profile.min_active = min(profile.min_active, len(profile.evs))
        elif UNPOPULATED in profile.evs:
            refuse(errno.EINVAL, "not all EVs are populated")
        profile.state = ProfileState.ONLINE

    def _operate(
        self, memory: Memory, number: int, profile: EvProfileEntries, attr: EvAttr, now_ns: int
    ) -> None:
        """Replace EVs, or set their states; it stops at the first that is refused."""
        size = within(attr.entry_count, MAX_EVS) * EV_ENTRY.size
        entries = EV_ENTRY.iter_unpack(read(memory, attr.entries, size))
        for value, port, new_value, new_port, state, flags in entries:
            ev, new = Ev(value, port), Ev(new_value, new_port)
            if attr.op == _REPLACE:
                self._replace(number, profile, ev, new, bool(flags & _ALL_COPIES), now_ns)
                self._set_state(number, profile, new, state or EvStates.GOOD, now_ns)
            elif attr.op == _SET_STATE:
                self._set_state(number, profile, ev, state, now_ns)
            else:
                refuse(errno.EINVAL, f"operation {attr.op} on EVs")

    def _replace(
        self,
        number: int,
        profile: EvProfileEntries,
        ev: Ev,
        new: Ev,
        every: bool,
        now_ns: int,
    ) -> None:
        if profile.mode is not EvMode.EXPLICIT:
            refuse(errno.EINVAL, "only EVs of an explicit profile are replaced")
        if ev not in profile.evs:
            refuse(errno.ENOENT, f"no EV {ev.value.hex()} of port {ev.port}")
        leads = port_of(new.value, profile.format.mode, self.device.topology.planes)
        if new.port != leads or any(new.value[profile.format.bits // 8 :]):
            refuse(errno.EINVAL, f"EV {new.value.hex()} leads to port {leads}, not {new.port}")
        if profile.state is ProfileState.ONLINE and new.port != ev.port:
            refuse(errno.EINVAL, "of a profile in use only an EV of the same port takes its place")
        copies = [i for i, each in enumerate(profile.evs) if each == ev]
        for i in copies if every else copies[:1]:
            profile.evs[i] = new
        if ev in profile.evs:
            return
        profile.denied.discard(ev)
        for core in self._users(number):
            dst, known = self._peer(core), core.ev_states()
            value = self.number_of(new, profile.format.mode, dst)
            for old_value in self._values(core, number, ev):
                if value is not None and value not in known:
                    path = path_of_ev(self.device.topology, self.device.host, dst, value)
                    new_choice = EvChoice(value, path, active=True)
                    self.device.replace_ev(core, old_value, new_choice, now_ns)

    def _set_state(
        self, number: int, profile: EvProfileEntries, ev: Ev, state: int, now_ns: int
    ) -> None:
        if state not in (EvStates.GOOD, EvStates.DENIED):
            refuse(errno.EINVAL, f"EV state {state}")
        users = [core for core in self._users(number) if self._values(core, number, ev)]
        if ev not in profile.evs and (profile.mode is not EvMode.AUTO or not users):
            refuse(errno.ENOENT, f"no EV {ev.value.hex()} of port {ev.port}")
        deny = state == EvStates.DENIED
        if deny:
            self._require_others(number, profile, ev, users)
        (profile.denied.add if deny else profile.denied.discard)(ev)
        self._denied_any |= deny
        for core in users:
            for value in self._values(core, number, ev):
                self.device.order_ev(core, value, deny=deny, now_ns=now_ns)

    def _require_others(
        self, number: int, profile: EvProfileEntries, ev: Ev, users: Iterable[QueuePair]
    ) -> None:
        """Refuse to deny the last EV of a profile, or of a queue pair."""
        if profile.evs and profile.denied.issuperset({*profile.evs} - {ev}):
            refuse(errno.EINVAL, "this is the last EV of the profile that is not denied")
        for core in users:
            values = self._values(core, number, ev)
            others = (each for each in core.evs() if each.ev not in values)
            if all(each.state is EvState.DENIED for each in others):
                refuse(errno.EINVAL, "this is the last EV of a queue pair that is not denied")

    # --- profiles: queries --------------------------------------------------------------------

    def query(self, memory: Memory, request: Request, _now_ns: int) -> Reply:
        """mrc_ctl_query_ev_profile."""
        mask, number, attr = request.mask, request.cookie, EvAttr.load(memory, request)
        if mask & _EV_OP and mask & _FIELDS_OP:
            refuse(errno.EINVAL, "operations on EVs and on fields in one call")
        profile, short = self.get(number), ""
        evs = self._all_evs(number, profile)
        entry_count, field_count = attr.entry_count, attr.field_count
        if mask & _EV_OP:
            short = self._query_entries(memory, number, profile, attr, evs)
            entry_count = len(evs) if attr.op == _QUERY_ARRAY else entry_count
        if mask & _FIELDS_OP:
            if attr.fields_op != _QUERY_FIELDS:
                refuse(errno.EINVAL, f"operation {attr.fields_op} on fields")
            if field_count < len(profile.fields):
                short = f"{len(profile.fields)} fields"
            else:
                write(memory, attr.fields, b"".join(EV_FIELD.pack(*f) for f in profile.fields))
            field_count = len(profile.fields)
        store(
            memory,
            request,
            EV_ATTR,
            *(profile.state, profile.state, profile.mode, profile.format_id, len(evs)),
            *(profile.min_active, profile.event_mask, attr.op, attr.entries, entry_count),
            *(attr.fields_op, attr.fields, field_count, attr.vendor),
        )
        if short:
            refuse(errno.E2BIG, short)
        return Reply()

    def _query_entries(
        self,
        memory: Memory,
        number: int,
        profile: EvProfileEntries,
        attr: EvAttr,
        evs: Sequence[Ev],
    ) -> str:
        """Answer a query of EVs; returns what the array is too short for."""
        asked = list[tuple[Ev, Rest]]()
        if attr.op == _QUERY_ARRAY:
            if attr.entry_count < len(evs):
                return f"{len(evs)} EVs"
            asked += [(ev, (*UNPOPULATED, 0)) for ev in evs]
        elif attr.op == _QUERY_STATE:
            size = within(attr.entry_count, MAX_EVS) * EV_ENTRY.size
            for value, port, *new, _, flags in EV_ENTRY.iter_unpack(
                read(memory, attr.entries, size)
            ):
                asked.append((Ev(value, port), (*new, flags)))
            unknown = {ev for ev, _ in asked} - {*evs}
            if unknown:
                refuse(errno.ENOENT, f"{len(unknown)} of the EVs are not in the profile")
        else:
            refuse(errno.EINVAL, f"operation {attr.op} on EVs")
        states = self._states(number, profile)
        packed = (_entry(ev, states.get(ev), rest) for ev, rest in asked)
        write(memory, attr.entries, b"".join(packed))
        return ""

    def _all_evs(self, number: int, profile: EvProfileEntries) -> list[Ev]:
        """The EVs of a profile; those of the NIC's own choice are those of its queue pairs."""
        if profile.mode is not EvMode.AUTO:
            return profile.evs
        values = {each.ev: each.plane for core in self._users(number) for each in core.evs()}
        return [_as_stev(value, plane) for value, plane in sorted(values.items())]

    def _states(self, number: int, profile: EvProfileEntries) -> dict[Ev, EvStates]:
        """The states of EVs: DENIED if any queue pair has it so, else ASSUMED_BAD if any has."""
        found = dict.fromkeys(profile.denied, EvStates.DENIED)
        for core in self._users(number):
            names = self._names(core, profile)
            for each in core.evs():
                ev = names.get(each.ev, _as_stev(each.ev, each.plane))
                if each.state is EvState.DENIED:
                    found[ev] = EvStates.DENIED
                elif each.state is EvState.ASSUMED_BAD:
                    found.setdefault(ev, EvStates.ASSUMED_BAD)
        return found

    def _names(self, core: QueuePair, profile: EvProfileEntries) -> dict[int, Ev]:
        """How the controller names the EVs of a queue pair, where it is not by their 32 bits."""
        if profile.mode is EvMode.AUTO or profile.format.mode is Format.STEV:
            return {}
        dst = self._peer(core)
        pairs = ((self.number_of(ev, Format.SRV6, dst), ev) for ev in profile.evs)
        return {value: ev for value, ev in pairs if value is not None}

    # --- events -------------------------------------------------------------------------------

    def observe(self, events: Sequence[tuple[QueuePair, list[Event]]]) -> None:
        """Make EV events of what happens to queue pairs."""
        if not self.queues and not self._denied_any:
            return
        for core, of_core in events:
            for event in of_core:
                if isinstance(event, EvChanged):
                    self._changed(core, event)

    def _changed(self, core: QueuePair, event: EvChanged) -> None:
        """An EV of a profile is bad while it is so for any queue pair that uses it."""
        number = next((qp.profiles.ev for qp in self._qps() if qp.verbs.core is core), None)
        if number is None:
            return  # a queue pair that only probes
        profile = self.get(number)
        ev = self._names(core, profile).get(event.ev, _as_stev(event.ev, event.plane))
        if event.old is EvState.DENIED:  # allowed, by whomever
            profile.denied.discard(ev)
        was, is_bad = (state is EvState.ASSUMED_BAD for state in (event.old, event.new))
        if was is is_bad:
            return
        crowd = self._bad.setdefault((number, event.ev), set())
        crowd.intersection_update(self._users(number))
        before = bool(crowd)
        (crowd.add if is_bad else crowd.discard)(core)
        state = EvStates.ASSUMED_BAD if is_bad else EvStates.GOOD
        if bool(crowd) is before or event.new is EvState.DENIED or not profile.event_mask & state:
            return
        for queue in self.queues:
            queue.push(number, ev, state)


def _require_changeable(profile: EvProfileEntries, mask: int, step: ProfileState | None) -> None:
    """Refuse changes that the state of a profile does not allow."""
    if profile.state is ProfileState.INIT and step is None:
        refuse(errno.EINVAL, "the profile is INIT")
    if profile.state is ProfileState.ONLINE and mask & (_FIXED | _MIN_ACTIVE):
        refuse(errno.EINVAL, "the profile is ONLINE")
    if profile.state is ProfileState.OFFLINE and mask & _FIXED not in (0, _FIXED):
        refuse(errno.EINVAL, "mode, format and count change together")


def _limit(profile: EvProfileEntries, attr: EvAttr, mask: int) -> None:
    if mask & _MIN_ACTIVE:
        profile.min_active = within(attr.min_active, len(profile.evs) or MAX_EVS)
    if mask & _EVENTS:
        if attr.event_mask & ~_EVENT_STATES:
            refuse(errno.EINVAL, f"an event mask of {attr.event_mask:#x}")
        profile.event_mask = attr.event_mask


def _as_stev(value: int, plane: int) -> Ev:
    return Ev(value.to_bytes(4, "little").ljust(EV_BYTES, b"\0"), plane + 1)


def _entry(ev: Ev, state: EvStates | None, rest: Rest) -> bytes:
    if state is None:
        state = EvStates.UNKNOWN if ev == UNPOPULATED else EvStates.GOOD
    new_value, new_port, flags = rest
    signed = int.from_bytes(int(state).to_bytes(4, "little"), "little", signed=True)
    return EV_ENTRY.pack(*ev, new_value, new_port, signed, flags)
