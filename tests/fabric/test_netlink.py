"""Requests in packed buffers: carried out in order, refused by name."""

from ipaddress import IPv6Address, IPv6Network

import pytest

from testbed.fabric import routes
from testbed.fabric.addresses import missing_addresses
from testbed.fabric.netlink import requests
from testbed.fabric.netlink.messages import RouteMessage
from testbed.fabric.netlink.namespaces import NodeNamespaces
from testbed.fabric.netlink.socket import NetlinkError
from tests.sandbox import run_in_sandbox

pytestmark = pytest.mark.kernel


def addresses(count: int) -> list[IPv6Address]:
    """So many addresses."""
    return [IPv6Address("2001:db8::") + i for i in range(count)]


@pytest.mark.root
def test_a_refused_request_is_named_and_the_others_are_carried_out() -> None:
    """With the namespace, what it was about and the kernel's reason."""

    def act() -> tuple[str, int]:
        with NodeNamespaces() as namespaces:
            netlink = namespaces.create("here").netlink
            one, two, three = map(requests.new_address, addresses(3))
            with pytest.raises(NetlinkError) as failure:
                netlink.send([one, two, one, three])
            return str(failure.value), len(missing_addresses(netlink, addresses(3)))

    text, missing = run_in_sandbox(act)
    assert text.startswith("here: add address 2001:db8::: File exists")
    assert missing == 0


@pytest.mark.root
def test_the_kernels_own_words_are_passed_on() -> None:
    """Extended acknowledgements say more than an errno."""

    def act() -> str:
        with NodeNamespaces() as namespaces:
            netlink = namespaces.create("here").netlink
            route = routes.Route(IPv6Network("2001:db8::/48"), 77)
            tables = routes.RoutingTables(frozenset((route,)), frozenset(), frozenset())
            with pytest.raises(NetlinkError) as failure:
                netlink.send(routes.install(tables, str))
            return str(failure.value)

    assert "add route 2001:db8::/48 dev 77: No such device" in run_in_sandbox(act)


@pytest.mark.root
def test_thousands_of_requests_go_in_several_buffers() -> None:
    """More than one send takes, and all of them arrive."""

    def act() -> int:
        with NodeNamespaces() as namespaces:
            netlink = namespaces.create("here").netlink
            netlink.send(map(requests.new_address, addresses(6000)))
            return len(missing_addresses(netlink, addresses(6000)))

    assert run_in_sandbox(act) == 0


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
