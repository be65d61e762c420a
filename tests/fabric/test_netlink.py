"""Requests in packed buffers: carried out in order, refused by name."""

import errno
from ipaddress import IPv6Address, IPv6Network
from socket import AF_INET6

import pytest
from pyroute2.netlink.rtnl import RTM_GETROUTE

from testbed.emulation.fabric import requests, routes
from testbed.emulation.fabric.layout import missing_addresses
from testbed.emulation.fabric.netlink import (
    SEG6_IPTUN_MODE_ENCAP_RED,
    Netlink,
    NetlinkError,
    NodeNamespaces,
    RouteMessage,
)
from tests.sandbox import in_sandbox

pytestmark = pytest.mark.kernel


def addresses(count: int) -> list[IPv6Address]:
    return [IPv6Address("2001:db8::") + i for i in range(count)]


@pytest.mark.root
@in_sandbox
def test_a_refused_request_is_named_and_the_others_are_carried_out() -> None:
    """With the namespace, what it was about and the kernel's reason."""
    with NodeNamespaces() as namespaces:
        netlink = namespaces.create("here").netlink
        one, two, three = map(requests.new_address, addresses(3))
        with pytest.raises(NetlinkError) as failure:
            netlink.send([one, two, one, three])
        text, missing = str(failure.value), len(missing_addresses(netlink, addresses(3)))
    assert text.startswith("here: add address 2001:db8::: File exists")
    assert missing == 0


@pytest.mark.root
@in_sandbox
def test_the_kernels_own_words_are_passed_on() -> None:
    """Extended acknowledgements say more than an errno."""
    with NodeNamespaces() as namespaces:
        netlink = namespaces.create("here").netlink
        route = routes.Route(IPv6Network("2001:db8::/48"), 77)
        tables = routes.RoutingTables(frozenset((route,)), frozenset(), frozenset())
        with pytest.raises(NetlinkError) as failure:
            netlink.send(routes.install(tables, str))
        assert "add route 2001:db8::/48 dev 77: No such device" in str(failure.value)


@pytest.mark.root
@in_sandbox
def test_thousands_of_requests_go_in_several_buffers() -> None:
    """More than one send takes, and all of them arrive."""
    with NodeNamespaces() as namespaces:
        netlink = namespaces.create("here").netlink
        netlink.send(map(requests.new_address, addresses(6000)))
        assert len(missing_addresses(netlink, addresses(6000))) == 0


@pytest.mark.root
@in_sandbox
def test_more_encapsulations_than_the_kernels_pool_has_room_for_are_all_made() -> None:
    """It takes their caches from memory that it does not wait for: ENOMEM, with gigabytes free."""
    carrier = routes.Encapsulation(SEG6_IPTUN_MODE_ENCAP_RED, (IPv6Address("5f00:0:1000::"),))
    wanted = [
        routes.Route(IPv6Network(address), requests.LOOPBACK, action=carrier)
        for address in addresses(40_000)
    ]
    with NodeNamespaces() as namespaces:
        netlink = namespaces.create("here").netlink
        netlink.send([requests.set_link(requests.LOOPBACK, "lo", up=True)])
        netlink.send(routes.install_route(route, str) for route in wanted)
        table = requests.RT_TABLE_MAIN
        made = netlink.dump_raw(RouteMessage, RTM_GETROUTE, family=AF_INET6, table=table)
        assert sum(1 for _ in made) == len(wanted)


def test_memory_that_never_comes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while without any success; the request is named."""
    request = requests.new_address(IPv6Address("2001:db8::1"))
    error = NetlinkError("here", request.description, errno.ENOMEM)
    monkeypatch.setattr(Netlink, "_refused", lambda _, batch: [(batch[0], error)])
    monkeypatch.setattr("testbed.emulation.fabric.netlink._MOST_REFILL_S", 0.01)
    with (
        Netlink("here") as netlink,
        pytest.raises(NetlinkError, match="add address 2001:db8::1: Cannot allocate memory"),
    ):
        netlink.send([request])


def test_un_routes_keep_flavours_and_counters_through_encoding() -> None:
    """What pyroute2's own class drops without a word."""
    tables = routes.RoutingTables(
        frozenset((routes.Route(IPv6Network("5f00:0:1000::/48"), 7, action=routes.UN),)),
        frozenset(),
        frozenset(),
    )
    (request,) = routes.install(tables, str)
    message = RouteMessage(request.data)
    message.decode()
    encap = message.get_attr("RTA_ENCAP")
    assert encap.get_attr("SEG6_LOCAL_FLAVORS").get_attr("SEG6_LOCAL_FLV_OPERATION") == 16
    assert encap.get_attr("SEG6_LOCAL_COUNTERS").get_attr("SEG6_LOCAL_CNT_PACKETS") == 0
