"""The fabric of a topology in virtual time: its link directions, routes over them, faults."""

from collections.abc import Iterator

from testbed.model.addressing import links_of_path, path_of_ev
from testbed.model.checks import link_named
from testbed.model.topology import Link, Node, Port, Topology
from testbed.mrc import DscpClasses
from testbed.sim.engine import Engine
from testbed.sim.link import LinkDirection, shape_of


class Fabric:
    """Link directions, made when a route first needs them: an unused one costs nothing."""

    def __init__(self, topology: Topology, engine: Engine, seed: int) -> None:
        """Stand idle. `seed` repeats every random choice of every link."""
        self._topology = topology
        self._engine = engine
        self._seed = seed
        self._dscp = DscpClasses()
        self._directions: dict[str, LinkDirection] = {}
        self._links: dict[str, str] = {}

    def direction(self, link: Link, sender: Port) -> LinkDirection:
        """The direction of a link that leaves one of its ports."""
        receiver = link.upper if sender == link.lower else link.lower
        name = f"{sender.node.name}>{receiver.node.name}"
        found = self._directions.get(name)
        if found is None:
            shape = shape_of(self._topology, link, sender)
            found = LinkDirection(name, shape, self._engine, self._dscp, self._seed)
            self._directions[name] = found
            self._links[name] = link.name
        return found

    def both(self, link: str) -> tuple[LinkDirection, LinkDirection]:
        """Both directions of a link, up first.

        Raises:
            KeyError: there is no such link.
        """
        found = link_named(self._topology, link)
        if found is None:
            raise KeyError(link)
        return self.direction(found, found.lower), self.direction(found, found.upper)

    def route(self, src: Node, dst: Node, ev: int) -> tuple[LinkDirection, ...]:
        """The directions that a packet with that EV crosses."""
        path = path_of_ev(self._topology, src, dst, ev)
        links = links_of_path(self._topology, src, dst, path)
        climb = len(links) // 2
        return tuple(
            self.direction(link, link.lower if i < climb else link.upper)
            for i, link in enumerate(links)
        )

    def __iter__(self) -> Iterator[tuple[str, LinkDirection]]:
        """Every direction in use, with its link's name."""
        for name, direction in self._directions.items():
            yield self._links[name], direction

    def set_blackhole(self, link: str, *, on: bool) -> None:
        """Swallow what leaves either port of a link, from now on or no longer."""
        for direction in self.both(link):
            direction.set_blackhole(self._engine.now_ns, on=on)

    def set_cut(self, link: str, *, on: bool) -> None:
        """Take the carrier away at both ends of a link, or bring it back."""
        for direction in self.both(link):
            direction.set_cut(self._engine.now_ns, on=on)

    def set_loss(self, link: str, probability: float) -> None:
        """Lose packets of a link at random, both ways."""
        for direction in self.both(link):
            direction.set_loss(probability)

    def set_corruption(self, link: str, probability: float) -> None:
        """Flip bits of a link's packets at random, both ways."""
        for direction in self.both(link):
            direction.set_corruption(probability)

    def set_rate(self, link: str, rate_bps: int) -> None:
        """Run a link at another rate, both ways."""
        for direction in self.both(link):
            direction.set_rate(rate_bps)
