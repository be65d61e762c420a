"""A path selector: planes in turn, and in each plane its active EVs in turn."""


class Selector:
    def __init__(self, evs, seed):
        self.plane_of = {info.ev: info.plane for info in evs}
        self.active = {info.plane: [] for info in evs}
        for info in evs:
            if info.active:
                self.active[info.plane].append(info.ev)
        self.planes = sorted(self.active)

    def pick(self, now_ns, flight, avoid):
        for _ in self.planes:
            plane = self.planes.pop(0)
            self.planes.append(plane)
            evs = self.active[plane]
            if evs:
                evs.append(evs.pop(0))
                if evs[-1] == avoid and len(evs) > 1:
                    evs.append(evs.pop(0))
                return evs[-1]
        return None

    def on_state(self, ev, state, *, active, now_ns):
        evs = self.active[self.plane_of[ev]]
        if not active and ev in evs:
            evs.remove(ev)
        elif active and ev not in evs:
            evs.append(ev)
