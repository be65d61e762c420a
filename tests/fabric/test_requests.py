"""Messages filled in are those that pyroute2 would have encoded."""

from ipaddress import IPv6Address, IPv6Network
from typing import Any

import pytest

from testbed.emulation.fabric import requests
from testbed.emulation.fabric.netlink import (
    AddressMessage,
    LinkMessage,
    NeighbourMessage,
    Request,
    RouteMessage,
)
from testbed.emulation.fabric.requests import Interface, Template

FIRST = Interface("p0_t0_0-u1", 1001, "02:00:00:00:10:01", 7)
SECOND = Interface("p0_t1_1-d0", 2002, "02:00:00:00:20:02", 1234)


def decoded(message: type[Any], request: Request) -> Any:
    found = message(request.data)
    found.decode()
    return found


def test_a_form_is_filled_in_where_its_blanks_were() -> None:
    form = Template(b"<AA|bb|C>", b"AA", b"C")
    assert form.filled(b"12", b"3") == b"<12|bb|3>"
    assert form.filled(b"bb", b"C") == b"<bb|bb|C>"


@pytest.mark.parametrize("data", [b"<bb>", b"<AA|AA>"])
def test_a_blank_that_is_not_there_once_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="occurs"):
        Template(data, b"AA")


@pytest.mark.parametrize("values", [(b"1",), (b"123",), (), (b"12", b"12")])
def test_what_does_not_fit_is_refused(values: tuple[bytes, ...]) -> None:
    with pytest.raises(ValueError, match=r"fit|argument"):
        Template(b"<AA>", b"AA").filled(*values)


@pytest.mark.parametrize(("first", "second"), [(FIRST, SECOND), (SECOND, FIRST)])
def test_a_veth_pair_has_its_own_ends(first: Interface, second: Interface) -> None:
    message = decoded(LinkMessage, requests.new_veth(first, second, 4500))
    peer = message.get_nested("IFLA_LINKINFO", "IFLA_INFO_DATA", "VETH_INFO_PEER")
    assert message.get_nested("IFLA_LINKINFO", "IFLA_INFO_KIND") == "veth"
    for end, expected in ((message, first), (peer, second)):
        assert end["index"] == expected.ifindex
        assert end.get_attr("IFLA_IFNAME") == expected.name
        assert end.get_attr("IFLA_ADDRESS") == expected.mac
        assert end.get_attr("IFLA_NET_NS_FD") == expected.netns
        assert end.get_attr("IFLA_MTU") == 4500


def test_a_link_is_set_up_or_down() -> None:
    for ifindex, up in ((5, True), (70_000, False), (6, True)):
        message = decoded(LinkMessage, requests.set_link(ifindex, "x", up=up))
        assert (message["index"], message["flags"]) == (ifindex, int(up))
        assert message["change"] == requests.IFF_UP | requests.IFF_MULTICAST


def test_an_address_is_both_local_and_peer() -> None:
    for text, ifindex in (("fd4d:5243::10", 1), ("fd4d:5243:1::11", 9)):
        message = decoded(AddressMessage, requests.new_address(IPv6Address(text), ifindex))
        assert message["index"] == ifindex
        assert message.get_attr("IFA_LOCAL") == message.get_attr("IFA_ADDRESS") == text


def test_a_neighbour_has_its_own_mac() -> None:
    for ifindex, mac in ((3, "02:00:00:00:00:03"), (4, "02:00:00:00:00:04")):
        request = requests.new_neighbour(IPv6Address("fe80::1"), ifindex, mac)
        message = decoded(NeighbourMessage, request)
        assert (message["ifindex"], message.get_attr("NDA_LLADDR")) == (ifindex, mac)
        assert message.get_attr("NDA_DST") == "fe80::1"


def test_routes_of_one_form_differ_in_destination_and_interface() -> None:
    template = requests.route_template(48, [("RTA_GATEWAY", "fe80::1")])
    for prefix, oif in (("5f00:0:1000::/48", 11), ("5f00:0:2001::/48", 12)):
        request = requests.new_route(IPv6Network(prefix), oif, template, prefix)
        message = decoded(RouteMessage, request)
        assert f"{message.get_attr('RTA_DST')}/{message['dst_len']}" == prefix
        assert message.get_attr("RTA_OIF") == oif
        assert message.get_attr("RTA_GATEWAY") == "fe80::1"
        assert request.description == f"add route {prefix}"
