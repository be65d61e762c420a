// The types of the event stream, as docs/schema/stream.json has them.

/**
 * @typedef {{name: string, tier: "host" | "t0" | "t1", plane: number, x: number, y: number}} NodePlace
 * @typedef {{name: string, plane: number, lower: string, upper: string, rate_bps: number}} LinkEnds
 * @typedef {{flow: number, name: string, src: string, dst: string, transport: string,
 *   job: string}} FlowEnds
 * @typedef {{flow: number, ev: number, path: string, plane: number, crosses: string[],
 *   addresses: string[], usids: string[], state: string, active: boolean}} EvPath
 *
 * @typedef {{id: number, t: number, type: "snapshot", version: number, scenario: string,
 *   description: string, topology: string, run: string, simulated: boolean, live: boolean,
 *   duration_s: number, step_s: number, base_rtt_s: number, dilation: number, planes: number,
 *   nics_per_node: number, clustermapper: boolean, judged: boolean, slow_motion: boolean,
 *   management: string,
 *   nodes: NodePlace[], links: LinkEnds[], flows: FlowEnds[], evs: EvPath[]}} Snapshot
 *
 * @typedef {{id: number, t: number, type: "opened", flows: FlowEnds[], evs: EvPath[]}} Opened
 * @typedef {{id: number, t: number, type: "ended", flows: number[]}} Ended
 *
 * @typedef {{goodput_bps?: number, cwnd_bytes?: number, inflight_bytes?: number, srtt_s?: number,
 *   lost?: number, retransmitted?: number, verified_bytes?: number, corrupted_bytes?: number}} FlowMeasures
 * @typedef {{sent_bps?: number, goodput_bps?: number, lost?: number, delay_s?: number,
 *   rtt_s?: number}} EvMeasures
 * @typedef {{load?: number, queue_bytes?: number, marked?: number, trimmed?: number,
 *   dropped?: number, probed?: number, probes_lost?: number}} LinkMeasures
 * @typedef {{id: number, t: number, type: "state", flows: Record<string, FlowMeasures>,
 *   planes: Record<string, number>, evs: Record<string, EvMeasures>,
 *   links: Record<string, LinkMeasures>}} State
 *
 * @typedef {{id: number, t: number, type: "ev", flow: number, ev: number, plane: number, old: string,
 *   new: string, active: boolean, reason: string}} EvChange
 * @typedef {Record<string, any>} Impairment
 * @typedef {{id: number, t: number, type: "fault", fault: number, phase: string, kind: string,
 *   target: string, places: string[], actuator: string, after_s?: number, within_s?: number,
 *   impairment: Impairment, proof: Record<string, any>, error?: string}} FaultChange
 * @typedef {{id: number, t: number, type: "detection", fault: number, flow: number, ev: number,
 *   after_s: number}} Detection
 * @typedef {{id: number, t: number, type: "finding", raised: boolean, kind: string, suspect: string,
 *   loss: number}} Finding
 * @typedef {{id: number, t: number, type: "verdict", verdict: string, reasons: string[],
 *   final: boolean}} VerdictChange
 * @typedef {{id: number, t: number, type: "end", outcome: string}} RunEnd
 *
 * @typedef {[seq: number, ev: number, sent: number, until: number, fate: "arrived" | "lost",
 *   again: boolean, kind: string, back: boolean]} Packet
 * @typedef {{id: number, t: number, type: "packets", flow: number, packets: Packet[],
 *   ways: Record<string, string[]>}} PacketBatch
 *
 * @typedef {{id: number, t: number, type: "operator", by: string, kind: string, host: string,
 *   flow?: number, plane: number, ev?: number, result: string, rtt_s?: number}} OperatorCommand
 *
 * @typedef {EvChange | FaultChange | Detection | Finding | OperatorCommand | VerdictChange | RunEnd} RunEvent
 * @typedef {Snapshot | Opened | Ended | State | PacketBatch | RunEvent} StreamRecord
 */

export const VERSION = 5;

/** The name of a host's node, its machine: n0 has the first hosts. @param {Snapshot} snapshot @param {string} host */
export function machineOf(snapshot, host) {
  return `n${Math.floor(Number(host.slice(1)) / snapshot.nics_per_node)}`;
}
