"""The rules of MRC beyond its fields. Sources as in docs/wire.md; U2: a second reading of UEC."""

from tests.conformance.limits import ABSENT, OPEN
from tests.conformance.table import Rule, State

_MRC = "tests/mrc/"
_HEADERS = f"{_MRC}test_headers.py::"
_VECTORS = f"{_MRC}test_vectors.py::"
_WIRE = f"{_MRC}test_wire.py::"
_RESPONDER = f"{_MRC}test_responder.py::"
_ACKS = f"{_MRC}test_acks.py::"
_DEMUX = f"{_MRC}test_demux.py::"
_QP = f"{_MRC}test_qp.py::"
_CAPABILITIES = f"{_MRC}test_capabilities.py::"
_IMMEDIATE = f"{_MRC}test_immediate.py::"
_EV = f"{_MRC}test_ev.py::"
_EV_STATES = f"{_MRC}test_ev_states.py::"
_PORTS = f"{_MRC}test_ports.py::"
_OPERATOR = f"{_MRC}test_operator.py::"
_RETRY = f"{_MRC}test_retry.py::"
_EV_MODES = "tests/ev_modes/test_ev_modes.py::"
_SHARING = "tests/host/test_queue_pairs.py::"
_BAD = f"{_DEMUX}test_bad_input_is_counted_by_its_reason_and_touches_nothing"

Row = tuple[str, str, str, str] | tuple[str, str, str, str, State]
"""Rule, agree, here, test, and the state where it is not `DONE`."""


def _rules(section: str, *rows: Row) -> tuple[Rule, ...]:
    return tuple(Rule(section, *row) for row in rows)


_PACKETS = _rules(
    "Packets",
    (
        "opcodes C6 to CB, D1, D8, D9, DC, DD, DE, with the headers of wire.md; others are refused",
        "4: DMNK",
        "yes",
        f"{_HEADERS}test_every_packet_kind_has_the_length_that_the_sources_give",
    ),
    (
        "iCRC of IBTA A17, least significant byte first; the outer header is not covered",
        "I",
        "yes; a packet with another iCRC is dropped and counted",
        f"{_WIRE}test_the_icrc_is_that_of_rocev2",
    ),
    (
        "transport version 0; another is refused",
        "5: FDMNK",
        "dropped and counted as `wrong_version`",
        f"{_BAD}[another transport version]",
    ),
    (
        "a TSETH is optional, packet by packet",
        "5: FDMGK",
        "sent by default; read with and without it",
        f"{_VECTORS}test_write_vectors[V2-packet1-18]",
    ),
    (
        "trimming leaves METH, and TSETH where ts is set",
        "2: N, Z1",
        "yes: 64 or 68 bytes of the inner packet",
        f"{_VECTORS}test_a_trimmed_vector_is_read_from_what_is_left[V2]",
    ),
    (
        "the payload is padded by zeros to a multiple of 4",
        "3: DM, I",
        "yes",
        f"{_WIRE}test_payloads_are_padded_to_four_bytes",
    ),
    (
        "reserved bits are sent as 0 and ignored on receipt",
        "4: FDMN, K",
        "yes",
        f"{_VECTORS}test_any_changed_bit_is_read_as_declared_or_refused[V9]",
    ),
    (
        "inner UDP port 4971 or 4791",
        "conflict: 4971 DMN; 4791 I, D, G",
        "both are accepted; `WireOptions.udp_port` says which is sent: 4791 by default",
        f"{_WIRE}test_both_udp_ports_are_accepted_and_one_may_be_chosen",
        State.OPTION,
    ),
    (
        "order of an EV's halves in SACK and NACK",
        "conflict: label first G, Z2, A; port first M",
        "`WireOptions.label_first`: the label first by default",
        f"{_WIRE}test_control_packets_round_trip",
        State.OPTION,
    ),
    (
        "outer destination: a block of 32 bits, up to six uSIDs, the last is the destination NIC's",
        "4: PGM, Z2",
        "yes",
        "tests/model/test_addressing.py::test_every_carrier_leads_along_its_path",
    ),
    (
        "class and flow label of the outer header repeat the inner ones",
        "2: PG",
        "yes",
        f"{_VECTORS}test_the_vector_with_its_outer_header",
    ),
)

_RECEIVING = _rules(
    "Receiving a WRITE",
    (
        "a new packet in the window is placed at once, in order or not",
        "4: FONG",
        "yes",
        f"{_RESPONDER}test_a_duplicate_is_reported_at_once_and_not_placed_again",
    ),
    (
        "the window ends at cack + MPR",
        "4: F, O, G, N",
        "yes",
        f"{_RESPONDER}test_the_window_ends_mpr_packets_above_cack[True]",
    ),
    (
        "a PSN above the window",
        "conflict: NACK PSN_OOR_WINDOW F, G, N; silence F, Z2",
        "`QpConfig.nack_beyond`: a NACK by default",
        f"{_RESPONDER}test_the_window_ends_mpr_packets_above_cack[False]",
        State.OPTION,
    ),
    (
        "a PSN 2^23 or more behind is dropped silently",
        "1: F",
        "yes",
        f"{_RESPONDER}test_a_psn_from_half_of_the_numbers_away_is_dropped_silently",
    ),
    (
        "a PSN from below the window: an ACK and a SACK",
        "1: F",
        "yes",
        f"{_RESPONDER}test_a_packet_from_below_the_window_is_acknowledged_twice",
    ),
    (
        "a PSN above the next one that has arrived already: a SACK, no ACK",
        "1: F",
        "yes",
        f"{_RESPONDER}test_a_packet_above_the_next_one_that_is_there_already_gets_a_sack_only",
    ),
    (
        "a WRITE that memory refuses counts as received; its operation is answered by a NAK",
        "4: F, N, O, Z2",
        "NAK 62, and 61 where lengths are inconsistent",
        f"{_RESPONDER}test_a_refused_write_counts_as_received_and_its_message_never_completes",
    ),
    (
        "SACK triggers: bytes, AckReq, ECN mark, rtx, reliability probe",
        "3: F, M, Z1",
        "yes, and after a short time (ours)",
        f"{_RESPONDER}test_a_sack_at_once[retransmitted]",
    ),
    (
        "a packet counts at least 1,024 bytes towards the next SACK",
        "1: M",
        "yes",
        f"{_RESPONDER}test_one_sack_for_eight_packets",
    ),
    (
        "ECN CE on a packet: m = 1 in its SACK",
        "4: FDMN",
        "yes",
        f"{_RESPONDER}test_every_marked_ev_is_reflected_once",
    ),
    (
        "a SACK echoes rtx",
        "2: M, U1",
        "yes",
        f"{_RESPONDER}test_a_sack_echoes_that_a_retransmission_triggered_it",
    ),
    (
        "rcvd_bytes: new, untrimmed packets, UDP length + 40 each, rounded up to 256",
        "3: MN, U1",
        "yes",
        f"{_RESPONDER}test_received_bytes_are_whole_inner_packets_rounded_up",
    ),
    (
        "NACK TRIMMED, or TRIMMED_LASTHOP, for a trimmed packet",
        "5: FDMNK",
        "yes, where both ends have agreed on it",
        f"{_RESPONDER}test_a_trimmed_packet_is_nacked_unless_it_is_here[False-1]",
    ),
)

_SEMANTICS = _rules(
    "Acknowledgements and operations",
    (
        "SACK and NACK free packets; the ACK (opcode D1) completes work requests",
        "4: N, O, Z2, P",
        "yes: if all ACKs are lost, nothing completes until they are repeated",
        f"{_ACKS}test_nothing_completes_without_acks_and_all_when_they_are_repeated",
    ),
    (
        "completion on SACKs, for fabrics and peers without transport ACKs",
        "none",
        "`QpConfig.complete_on_sack`: by the ACK by default",
        f"{_ACKS}test_sacks_complete_messages_where_that_is_chosen",
        State.OPTION,
    ),
    (
        "an ACK when cack passes a message's end or a packet with AckReq, one for all",
        "2: F, N",
        "yes",
        f"{_RESPONDER}test_one_ack_covers_all_that_completed_before_it_is_sent",
    ),
    (
        "AETH.msn counts completed messages",
        "F, K, I",
        "yes",
        f"{_ACKS}test_an_ack_names_the_messages_completed",
    ),
    (
        "a NAK fails its work request; those before it complete",
        "3: N, O, Z2",
        "yes",
        f"{_ACKS}test_a_nak_completes_what_is_before_it_and_fails_the_message",
    ),
    (
        "UNEXP_EVENT ends the QP: remote operation error, not retried",
        "2: G, N",
        "yes",
        f"{_MRC}test_unexpected.py::test_an_unexpected_event_is_a_remote_operation_error",
    ),
    (
        "an immediate is delivered when all before it has arrived, in order",
        "4: NGO, Z1",
        "yes",
        f"{_IMMEDIATE}test_immediates_come_once_and_in_order",
    ),
    (
        "an immediate consumes a posted receive; none posted is an error",
        "1: A",
        "NAK 63; which code MRC uses is not known",
        f"{_RESPONDER}test_each_immediate_consumes_a_receive_and_one_without_fails",
    ),
    (
        "more immediates at once than agreed: NAK 61",
        "1: N",
        "yes; the sender obeys the peer's limit",
        f"{_RESPONDER}test_more_immediates_than_agreed_are_an_invalid_request",
    ),
    (
        "an ACK, a SACK or a NACK of what was never sent changes nothing",
        "0: ",
        "counted as `implausible`",
        f"{_BAD}[a SACK of what was never sent]",
    ),
    (
        "what a bad peer sends harms its own queue pair at most",
        "0: ",
        "yes; each such packet is counted by its reason",
        f"{_MRC}test_bad_peers.py::test_a_lie_is_counted_and_changes_nothing",
    ),
    (
        "a NAK of a completed request changes nothing",
        "0: ",
        "counted as `nak_of_completed`",
        f"{_ACKS}test_a_nak_of_a_completed_request_is_counted_and_changes_nothing",
    ),
)

_SENDING = _rules(
    "Sending",
    (
        "at most MPR packets beyond cack",
        "4: F, O, G, N",
        "the peer's MPR",
        f"{_QP}test_the_peers_window_bounds_what_is_outstanding",
    ),
    (
        "a retransmission takes another EV than the one that lost it, and carries rtx",
        "3: FDM",
        "yes",
        f"{_QP}test_retransmissions_take_another_path",
    ),
    (
        "traffic classes: data, retransmissions, control, trimmed, trimmed on the last hop",
        "3: G, M, Z2",
        "yes",
        f"{_QP}test_classes_of_traffic",
    ),
    (
        "AckReq on the last packet before the sender goes idle",
        "1: Z1",
        "yes, and where the window is less than what triggers a SACK (U1)",
        f"{_ACKS}test_a_full_window_asks_for_an_acknowledgement_where_that_is_chosen[False]",
    ),
    (
        "AckReq when cwnd - inflight is less than a packet",
        "1: U1",
        "`QpConfig.ask_when_full`: not by default, as each costs a transport ACK too",
        f"{_ACKS}test_a_full_window_asks_for_an_acknowledgement_where_that_is_chosen[True]",
        State.OPTION,
    ),
    (
        "timeouts: linear, then doubling, then retry exceeded",
        "conflict: one length A, G; growing T",
        "`QpConfig.growing_timeouts`: one length by default; it follows the measured RTT (ours)",
        f"{_RETRY}test_the_ladder_probes_then_waits_then_doubles_then_gives_up[False-rtts0]",
        State.OPTION,
    ),
    (
        "a NACK that is not for a trim takes a retry",
        "2: G, N",
        "those of one RTT take one together",
        f"{_RETRY}test_a_refusal_takes_a_retry_those_of_one_rtt_together",
    ),
    (
        "25 exponential retries mean that it never fails",
        "1: A",
        "yes",
        f"{_RETRY}test_the_last_number_of_retries_means_for_ever",
    ),
)

_PROBES = _rules(
    "Probes, endpoint operations and EVs",
    (
        "a reliability probe is answered by a SACK with pr, its id, its timestamp and its mark",
        "4: FDMN, K",
        "yes",
        f"{_RESPONDER}test_the_answer_to_a_probe_has_its_mark[True]",
    ),
    (
        "an endpoint response is matched by its id, whatever op it shows",
        "2: FD",
        "one table of ids for the NIC; another op is counted, not refused",
        f"{_DEMUX}test_a_response_is_matched_by_its_id_whatever_op_it_shows",
    ),
    (
        "the id of a request is that of no other outstanding one",
        "1: A",
        "yes",
        f"{_DEMUX}test_ids_of_requests_are_those_of_no_other_outstanding_one",
    ),
    (
        "a response with an unknown id changes nothing",
        "0: ",
        "counted as `unknown_request`",
        f"{_BAD}[an answer to no EV_PROBE]",
    ),
    (
        "port mask: 1 is reachable",
        "2: MN",
        "yes; the first port is bit 0",
        f"{_PORTS}test_the_update_says_which_port_and_is_sent_once_if_answered",
    ),
    (
        "a port status update concerns every QP with that peer",
        "4: G M N Z1",
        "yes",
        f"{_DEMUX}test_one_port_status_holds_for_every_queue_pair_with_that_peer",
    ),
    (
        "an update of a stranger changes nothing",
        "0: ",
        "counted as `not_a_peer`",
        f"{_BAD}[PORT_STATUS_UPDATE of a stranger's]",
    ),
    (
        "the kind of recovery probe",
        "conflict: reliability probe G, M; EV probe N",
        "`QpConfig.recovery_probe`: reliability probes by default",
        f"{_MRC}test_recovery_probe.py::test_an_ev_returns_by_either_probe",
        State.OPTION,
    ),
    (
        "one congestion controller for several QPs",
        "2: GM",
        "`dialect: {congestion_scope: destination}`; by default each queue pair has its own",
        f"{_SHARING}test_queue_pairs_to_a_destination_share_a_controller_if_asked",
        State.OPTION,
    ),
    (
        "ECMP mode: no outer header, switches hash the EV in source port and flow label",
        "2: GM",
        "`testbed ev run ecmp` (ev-modes.md); SRv6 everywhere else",
        f"{_EV_MODES}test_the_ev_selects_the_path_and_a_dead_path_is_left",
        State.OPTION,
    ),
    (
        "structured mode: each tier reads its own field of the EV, from the most significant bit",
        "3: G M Z2",
        "`testbed ev run structured` (ev-modes.md)",
        f"{_EV_MODES}test_the_ev_selects_the_path_and_a_dead_path_is_left",
        State.OPTION,
    ),
    (
        "EV profiles: EXPLICIT, GENERATED (width, initial value, min, max, mask), AUTO",
        "3: A G M",
        "yes; AUTO is the default",
        "tests/model/test_ev_profile.py::test_fields_are_packed_from_the_first_bit_on",
        State.OPTION,
    ),
    (
        "the operator lists, denies, allows and replaces EVs, and is told their events",
        "1: A",
        "yes (operator.md)",
        "tests/sim/test_operator.py::test_commands_by_hand_and_what_they_answer",
    ),
    (
        "a batch of EV probes with one deadline: port, RTT and result of each",
        "1: A",
        "yes; no service time is subtracted",
        f"{_OPERATOR}test_a_batch_of_probes_tells_which_evs_answer_in_time",
    ),
    (
        "a port that the operator disables is left, and the peers are told",
        "1: A",
        "yes",
        f"{_OPERATOR}test_a_disabled_port_is_left_here_and_at_the_peer_until_it_is_enabled",
    ),
    (
        "a mark on the answer to a recovery probe: SKIP",
        "conflict: SKIP G; GOOD M",
        "SKIP",
        f"{_MRC}test_recovery_probe.py::test_a_mark_on_the_answer_makes_the_ev_be_skipped_once",
    ),
    (
        "an EV skipped once returns when the rotation passes it, one for each packet",
        "1: H",
        "yes",
        f"{_EV}test_one_packet_restores_one_skipped_ev",
    ),
    (
        "states of an EV: GOOD, SKIP, ASSUMED_BAD, DENIED, with their transitions",
        "5: A G M N Z2",
        "yes",
        f"{_EV_STATES}test_only_transitions_of_the_table_are_made",
    ),
    (
        "the rotation is shuffled anew now and then, so that queue pairs do not go round in step",
        "2: G, M",
        "every 64 rounds (ours), in each queue pair's own random order",
        f"{_EV}test_the_rotation_is_reshuffled_from_time_to_time_and_still_even",
    ),
)

_SETUP = _rules(
    "Setup",
    (
        "the ends tell each other what they can take, out of band",
        "4: G Z1 M N",
        "in a versioned message (ours) that programs exchange by TCP",
        f"{_CAPABILITIES}test_a_message_carries_everything_through_json",
    ),
    (
        "each direction has its own MPR",
        "4: G Z1 M N",
        "yes",
        f"{_CAPABILITIES}test_each_direction_obeys_the_window_of_the_end_that_receives",
    ),
    (
        "mpr is 0 and ignored unless both ends agreed on dynamic MPR",
        "2: GN",
        "yes",
        f"{_CAPABILITIES}test_the_window_is_advertised_only_where_both_ends_agree",
    ),
    (
        "a window in a SACK, a NACK of a trim, that were not agreed on",
        "0: ",
        "counted as `unagreed`; the window is ignored, the packet is sent again",
        f"{_MRC}test_bad_peers.py::test_what_was_not_agreed_is_counted",
    ),
    (
        "NACKs of trimmed packets are agreed on",
        "4: G Z1 M N",
        "yes",
        f"{_CAPABILITIES}test_a_trimmed_packet_is_nacked_only_where_both_ends_agree",
    ),
)

RULES = (*_PACKETS, *_RECEIVING, *_SEMANTICS, *_SENDING, *_PROBES, *_SETUP, *ABSENT, *OPEN)
