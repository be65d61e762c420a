"""Your path selector. algorithms.md lists all methods."""


class Selector:
    """Takes all EVs in turn, whatever happens."""

    def __init__(self, evs, seed):
        # Each of evs has ev (its number), plane, path, and active (false for a backup).
        self.evs = [info.ev for info in evs]
        self.turn = 0

    def pick(self, now_ns, flight, avoid):
        """Return the EV for the next packet; `avoid` is the EV on which it was lost before."""
        self.turn = (self.turn + 1) % len(self.evs)
        return self.evs[self.turn]

    def on_state(self, ev, state, *, active, now_ns):
        """The transport tells that an EV entered or left the active set."""
