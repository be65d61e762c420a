"""Each figure's runs, made up: as the paper observed them, and with one thing wrong at a time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

from testbed.runs.result import Result

from .made_up_claims import (
    ecmp_runs,
    lossy_nic_runs,
    planes_runs,
    probes_runs,
    remap_runs,
    transceiver_runs,
)
from .made_up_figures import (
    ALL_REDUCE,
    ALL_TO_ALL,
    ablation_runs,
    arrivals_runs,
    collectives_runs,
    fabric_flaps_runs,
    failover_runs,
    flows_over_time_runs,
    incast_runs,
    incast_without_dcqcn_runs,
    lossy_ev_runs,
    many_hosts_runs,
    many_to_many_runs,
    permutation_runs,
    same_ev_runs,
    send_receive_runs,
    silent_t1_runs,
    t1_death_runs,
    transceiver_flaps_runs,
    unknown_dead_paths_runs,
    writes_runs,
)

Runs = dict[str, Result]


@dataclass(frozen=True)
class Case:
    """A figure's runs, made up.

    Attributes:
        runs: makes them as the paper observed them, but for its arguments.
        wrong: a pattern of the checks that fail, and the arguments with which they do.
    """

    runs: Callable[..., Runs]
    wrong: tuple[tuple[str, Mapping[str, Any]], ...]


STALLS = ("interruption", {"stall": 6.0})
FOLLOWS = (("least of any step", {"during": 0.8}), ("after healing", {"after": 0.8}))
AS_GOOD = {"roce-16": 0.91}
CASES: Mapping[str, Case] = {
    "5.2.1": Case(
        writes_runs,
        (
            ("one way, T0-local$", {"local_us": 6.0}),
            ("one way, cross-T1$", {"cross_us": 5.0}),
            ("complete, T0-local$", {"local_half_us": 6.0}),
            ("complete, cross-T1$", {"cross_half_us": 8.0}),
            ("bandwidth", {"gbps": 700}),
        ),
    ),
    "4": Case(
        unknown_dead_paths_runs,
        (
            ("worst QP", {"first": 5}),
            ("afterwards", {"later": 20}),
            ("worst QP|per time afterwards", {"first": 0}),
        ),
    ),
    "5": Case(
        fabric_flaps_runs,
        (
            ("lost to each flap", {"step_s": 3.0}),
            ("payload", {"lost": 4096}),
            ("in error", {"errors": 1}),
        ),
    ),
    "6-7": Case(
        transceiver_flaps_runs,
        (
            ("during the flaps", {"during_s": 2.0}),
            ("during the flaps", {"during_s": 1.0}),
            ("right after", {"after_s": 1.5}),
            ("payload", {"lost": 4096}),
            ("in error", {"errors": 1}),
        ),
    ),
    "8": Case(
        silent_t1_runs,
        (
            STALLS,
            ("throughput", {"during": 0.9}),
            ("share of the QPs", {"affected": 3}),
            ("share of the QPs", {"affected": 14}),
            ("loses, the median", {"losses": 6}),
            ("after the reboot", {"later": 2}),
        ),
    ),
    "9a": Case(
        flows_over_time_runs("nic-links-one-by-one", during=0.97, after=0.99, loses=1 / 8),
        (STALLS, ("remaining links", {"during": 0.85}), ("links are back", {"after": 0.9})),
    ),
    "9b": Case(
        flows_over_time_runs("nic-links-half", during=0.5, after=0.99),
        (
            STALLS,
            ("while half", {"during": 0.3}),
            ("while half", {"during": 0.8}),
            ("are back", {"after": 0.9}),
        ),
    ),
    "9c": Case(
        flows_over_time_runs("twenty-links-down", during=0.98, after=1.0),
        (STALLS, ("first failure", {"during": 0.9})),
    ),
    "9d": Case(
        flows_over_time_runs("fabric-links-flap", during=0.98, after=1.0),
        (STALLS, ("first failure", {"during": 0.9})),
    ),
    "10": Case(
        flows_over_time_runs("t0-down", during=0.875, after=1.0),
        (
            ("without the T0", {"during": 0.75}),
            ("without the T0", {"during": 1.0}),
            ("is back", {"after": 0.875}),
        ),
    ),
    "11": Case(
        flows_over_time_runs("t1-down", during=1.0, after=1.0),
        (("without the T1", {"during": 0.97}), ("is back", {"after": 0.97})),
    ),
    "12-13": Case(
        lossy_ev_runs,
        (
            ("until the EV is out", {"out_rtts": 6.0}),
            ("active then", {"backup": False}),
            ("line rate", {"rate": 0.94}),
        ),
    ),
    "14": Case(
        same_ev_runs,
        (
            ("second flow is forced", {"forced": 0.66}),
            ("share of line rate, the slower of the two", {"slower": 0.9}),
            ("without ECN skip", {"unskipped": 0.95}),
            ("EV that both have", {"both_have": 0.5}),
        ),
    ),
    "15": Case(send_receive_runs, (("rate of a host", {"share": 0.85}),)),
    "16": Case(
        partial(collectives_runs, "16", ALL_REDUCE),
        (
            ("MRC over RoCE", {**AS_GOOD, "roce-8": 0.85}),
            ("16 QPs over 1 QP", {"roce-16": 0.44}),
            ("16 QPs over 8", {"roce-8": 0.5}),
            ("1 QP, of MRC's", {"roce-1": 0.7, "roce-16": 0.8, "roce-8": 0.75}),
            (
                "MRC at 0.1% loss, of its rate",
                {"mrc-loss-0.001": 0.7, "16m-mrc-loss-0.001": 0.7},
            ),
            ("what large buffers keep", {"mrc-loss-0.001": 0.89}),
            ("MRC at 1%", {"mrc-loss-0.01": 0.7}),
            ("MRC at 1%", {"mrc-loss-0.01": 0.1}),
            *((f"RoCE, {qps} QPs?, at 1%", {f"roce-{qps}-loss-0.01": 0.3}) for qps in (1, 2, 4)),
            ("RoCE, 8 QPs, at 1%", {"roce-8-loss-0.01": 0.3}),
            ("RoCE, 16 QPs, at 1%", {"roce-16-loss-0.01": 0.25, "roce-1-loss-0.01": 0.0}),
        ),
    ),
    "17": Case(
        partial(collectives_runs, "17", ALL_TO_ALL),
        (
            (r"best RoCE, \d+ MiB", {"roce-2": 0.85}),
            ("large buffers over", {"4m-mrc": 0.99}),
            ("16 QPs over 1 QP", {"roce-16": 0.4}),
            ("2 QPs over 16", {"roce-2": 0.5}),
            ("16 QPs at 0.1%", {"16m-roce-16-loss-0.001": 0.4}),
            ("RoCE at 0.1%", {"roce-4-loss-0.001": 0.5}),
            ("MRC at 0.1%", {"mrc-loss-0.001": 0.5}),
        ),
    ),
    "18": Case(
        incast_runs,
        (
            ("MRC's victim", {"mrc": 0.8}),
            ("MRC's smallest share", {"smallest": ((0, 0.1),)}),
            ("RoCE's smallest share", {"uneven": ((0, 0.1),)}),
            ("with 1 QP", {"one": 1.0, "later": 1.0}),
            ("at its lowest", {"lowest": 0.6}),
            ("mean with 8 QPs", {"later": 0.6}),
        ),
    ),
    "19a": Case(
        flows_over_time_runs("uplinks-fail", during=0.99, after=1.0),
        (
            ("least of any step", {"during": 0.95}),
            ("after healing", {"after": 0.95}),
        ),
    ),
    "19b": Case(flows_over_time_runs("thin-uplinks", during=0.95, after=0.98, loses=0.25), FOLLOWS),
    "19c": Case(
        flows_over_time_runs("thin-uplinks-together", during=0.95, after=0.98, loses=0.5), FOLLOWS
    ),
    "unequal-links": Case(
        flows_over_time_runs(
            "unequal-links", "unequal-links-nscc", during=0.95, after=0.98, loses=0.1875
        ),
        FOLLOWS,
    ),
    "20": Case(
        permutation_runs,
        (
            ("in Gb/s", {"mrc-1": (0.96, 1.0)}),
            ("MRC's slowest host, 8 QPs", {"mrc-8": (0.96, 1.0)}),
            (
                "slowest host, PFC",
                {"pfc-1": (0.6, 0.95), "pfc-8": (0.65, 1.0), "dcqcn-8": (0.9, 1.0)},
            ),
            ("fastest host, PFC", {"pfc-1": (0.5, 0.7)}),
            ("8 QPs over 1", {"pfc-8": (0.8, 1.0), "dcqcn-8": (0.9, 1.0)}),
            ("8 QPs over 1", {"pfc-8": (0.2, 1.0)}),
            ("DCQCN over PFC", {"dcqcn-8": (0.3, 1.0)}),
        ),
    ),
    "21": Case(
        incast_without_dcqcn_runs,
        (
            ("MRC's victim", {"mrc": 0.8}),
            ("smallest share", {"smallest": ((0, 0.1),)}),
            ("PFC only, 1 QP", {"one": 0.5}),
            ("PFC only, 8 QPs", {"many": 0.5}),
        ),
    ),
    "22": Case(
        arrivals_runs,
        (
            ("below 10 flows", {"few_bdp": 1.5}),
            ("queue from 10 flows on", {"many_bdp": 0.6}),
            (
                "rate from 10 flows on",
                {"default": 0.9, "aggressive": 0.81, "most_aggressive": 0.72},
            ),
            ("an empty queue", {"empty": 0.0}),
            ("^aggressive: rate", {"aggressive": 0.97}),
            ("most aggressive: rate", {"most_aggressive": 0.9}),
        ),
    ),
    "text-planes": Case(
        planes_runs,
        (
            ("half its rate: throughput", {"half": 0.87}),
            ("a quarter of its uplinks: throughput", {"thin": 0.8}),
            ("shares one plane: throughput", {"shared": 0.8}),
        ),
    ),
    "text-remap": Case(
        remap_runs,
        (
            ("interruption, the NIC needs 0 RTT", {"stalls": {0: 6.0}}),
            ("interruption, the NIC needs 10 RTT", {"stalls": {10: 16.0}}),
            ("interruption, the NIC needs 30 RTT", {"stalls": {30: 36.0}}),
            ("interruption, the NIC needs 100 RTT", {"stalls": {100: 106.0}}),
            *((f"after {rtts} RTT", {"kept": {rtts: 0.9}}) for rtts in (0, 10, 30, 100)),
            *(
                (f"figure 9a, {rtts} RTT: {what}", change)
                for rtts in (0, 10, 30, 100)
                for what, change in (
                    ("longest", {"step_stalls": {rtts: rtts + 6.0}}),
                    ("share", {"steps": {rtts: 0.85}}),
                )
            ),
            *(
                (f"{job}, {rtts} RTT: {what}", {which: {rtts: change}})
                for job, which in (("figure 6", "jobs"), ("flaps of 122 RTT", "long_flaps"))
                for rtts in (0, 10, 30, 100)
                for what, change in (
                    ("steps per time during the flaps", {"during_s": 2.0}),
                    ("steps per time during the flaps", {"during_s": 1.0}),
                    ("steps per time right after", {"after_s": 1.5}),
                    ("queue pairs in error", {"errors": 1}),
                )
            ),
        ),
    ),
    "text-lossy-nic": Case(
        lossy_nic_runs,
        (
            ("have in common", {"kept": True}),
            ("names exactly", {"exact": 0.5}),
            ("that the deny list takes out", {"denied": ()}),
            ("do not cross it", {"denied": (1, 2)}),
        ),
    ),
    "text-probes": Case(
        probes_runs,
        (
            ("named exactly", {"exact": 0.5}),
            ("named wrongly", {"wrong": 1}),
            ("rounds of probes", {"rounds": inf}),
        ),
    ),
    "text-ecmp": Case(
        ecmp_runs, (("of that over SRv6", {"hashed": 0.9}), ("interruption", {"stall": 6.0}))
    ),
    "text-transceiver": Case(
        transceiver_runs,
        (
            ("^flows of the NIC", {"failed": 3}),
            ("^flows of other NICs", {"others": 1}),
            ("throughput of other NICs", {"kept": 0.9}),
            ("payload", {"lost": 1}),
        ),
    ),
    "failover": Case(
        failover_runs,
        (
            ("longest stall.*: blind", {"blind": (1.3, 10, 5)}),
            ("not delivered.*: blind", {"blind": (5, 10, 0.3), "go-back": (1.0, 1.0, 0.1)}),
            ("overdue.*: TCP, cubic", {"tcp": (5, 1, 5)}),
            ("", {"mrc": (inf, 30, inf)}),
        ),
    ),
    "ablation": Case(
        ablation_runs,
        (
            ("a dead link, blind", {"dead-link-blind": 0.9}),
            ("a dead link", {"dead-link-mrc": 1.6}),
            ("a dead link, (blind spraying|go-back-N): not delivered", {"dead-link-mrc": 1.5}),
            ("two flows on an EV", {"same-ev-no-skip": 1.0}),
            ("incast.*p99", {"ablation-incast": 1.5}),
            ("two flows on an EV", {"same-ev-no-skip": 0.9}),
            ("incast, no trimming", {"ablation-incast-no-trim": 0.9}),
            ("incast, go-back-N", {"ablation-incast-go-back": 0.9}),
        ),
    ),
    "16x64": Case(
        many_hosts_runs,
        (
            ("MRC over RoCE", {"roce-16": 0.91, "roce-8": 0.9}),
            ("16 QPs over 1 QP", {"roce-16": 0.44}),
            ("1 QP, of MRC's", {"roce-1": 0.7, "roce-16": 0.8, "roce-8": 0.8}),
            ("16 QPs over 8", {"roce-8": 0.5}),
            ("at 0.1% loss", {"mrc-loss-0.001": 0.7}),
            ("at 1% loss", {"mrc-loss-0.01": 0.5}),
        ),
    ),
    "17x64": Case(
        many_to_many_runs,
        (
            ("MRC over RoCE with 1 QP", {"roce-1": 0.95}),
            ("MRC over RoCE with 2 QPs", {"roce-2": 0.95}),
            ("RoCE with 1 QP at 0.1%", {"roce-1-loss-0.001": 0.4}),
            ("MRC at 0.1%", {"mrc-loss-0.001": 0.5}),
        ),
    ),
    "scale": Case(
        t1_death_runs,
        (
            ("before, of the", {"before": 0.85, "after": 0.85, "slowest": 0.85}),
            ("of that before", {"after": 0.92}),
            ("slowest flow", {"slowest": 0.7}),
        ),
    ),
}
