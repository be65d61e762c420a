// What is known of the run: all records so far, and the state of everything at any time.

/** @import { Detection, EvMeasures, FaultChange, Finding, FlowMeasures, LinkMeasures, RunEvent,
 *  PacketBatch, Snapshot, StreamRecord, VerdictChange } from "live/records.js" */
import { VERSION } from "live/records.js";

const CHECKPOINT = 50;

/**
 * @typedef {EvMeasures & {state: string, active: boolean, reason: string}} Ev
 * @typedef {object} RunState the state of everything at a time
 * @property {Record<string, FlowMeasures>} flows
 * @property {Record<string, number>} planes
 * @property {Record<string, Ev>} evs by `flow:ev`
 * @property {Record<string, LinkMeasures>} links by direction
 * @property {Record<string, boolean>} ended of flows, whether their program has ended
 * @property {Record<string, FaultChange>} faults the last change of each
 * @property {Detection[]} detections
 * @property {Record<string, Finding>} findings those that stand, by suspect
 * @property {VerdictChange | null} verdict
 * @property {string | null} outcome
 */

/** @param {Snapshot} snapshot @returns {RunState} */
function beginning(snapshot) {
  /** @type {Record<string, Ev>} */
  const evs = {};
  for (const { flow, ev, state, active } of snapshot.evs) {
    evs[`${flow}:${ev}`] = { state, active, reason: "" };
  }
  return {
    flows: {}, planes: {}, evs, links: {}, ended: {}, faults: {}, detections: [], findings: {},
    verdict: null, outcome: null,
  };
}

/**
 * @template T
 * @param {Record<string, T>} known
 * @param {Record<string, T>} changes
 */
function merge(known, changes) {
  for (const key in changes) known[key] = { ...known[key], ...changes[key] };
}

/** @param {RunState} run @param {StreamRecord} record */
function apply(run, record) {
  switch (record.type) {
    case "state":
      merge(run.flows, record.flows);
      Object.assign(run.planes, record.planes);
      merge(run.evs, /** @type {any} */ (record.evs));
      merge(run.links, record.links);
      break;
    case "opened":
      for (const { flow, ev, state, active } of record.evs) {
        run.evs[`${flow}:${ev}`] = { state, active, reason: "" };
      }
      break;
    case "ended":
      for (const flow of record.flows) run.ended[flow] = true;
      break;
    case "ev": {
      const key = `${record.flow}:${record.ev}`;
      const { active, reason } = record;
      run.evs[key] = { ...run.evs[key], state: record.new, active, reason };
      break;
    }
    case "fault":
      run.faults[record.fault] = record;
      break;
    case "detection":
      run.detections.push(record);
      break;
    case "finding":
      if (record.raised) run.findings[record.suspect] = record;
      else delete run.findings[record.suspect];
      break;
    case "verdict":
      run.verdict = record;
      break;
    case "end":
      run.outcome = record.outcome;
  }
}

/** Fixed-length series for the plots; a new value for each `state` record. */
class Series {
  /** @param {Snapshot} snapshot */
  constructor(snapshot) {
    /** @type {number[]} */ this.t = [];
    /** @type {number[][]} */ this.planes = Array.from({ length: snapshot.planes }, () => []);
    /** @type {number[][]} */ this.flows = snapshot.flows.map(() => []);
    /** @type {number[][]} */ this.cwnd = snapshot.flows.map(() => []);
    /** @type {number[][]} */ this.inflight = snapshot.flows.map(() => []);
    /** @type {number[]} */ this.queue = [];
    /** @type {Record<string, number[]>} */ this.links = {};
    for (const { lower, upper } of snapshot.links) {
      this.links[`${lower}>${upper}`] = [];
      this.links[`${upper}>${lower}`] = [];
    }
  }

  /** Has one more flow, which sent nothing before. */
  open() {
    for (const of of [this.flows, this.cwnd, this.inflight]) of.push(this.t.map(() => 0));
  }

  /** @param {RunState} run @param {number} t */
  add(run, t) {
    this.t.push(t);
    this.planes.forEach((values, plane) => values.push(run.planes[plane] ?? 0));
    this.flows.forEach((values, flow) => values.push(run.flows[flow]?.goodput_bps ?? 0));
    this.cwnd.forEach((values, flow) => values.push(run.flows[flow]?.cwnd_bytes ?? 0));
    this.inflight.forEach((values, flow) => values.push(run.flows[flow]?.inflight_bytes ?? 0));
    let largest = 0;
    for (const name in this.links) {
      const bytes = run.links[name]?.queue_bytes ?? 0;
      this.links[name].push(bytes);
      if (!name.startsWith("h") && bytes > largest) largest = bytes;
    }
    this.queue.push(largest);
  }
}

export class Timeline {
  /** @param {StreamRecord} first */
  constructor(first) {
    if (first.type !== "snapshot") throw new Error("the stream does not begin with a snapshot");
    if (first.version !== VERSION) throw new Error(`a stream of version ${first.version}`);
    this.snapshot = first;
    /** @type {StreamRecord[]} */ this.records = [];
    /** @type {RunEvent[]} */ this.events = [];
    /** @type {PacketBatch[]} */ this.packets = [];
    this.series = new Series(first);
    /** @type {RunState} the state after all records */
    this.latest = beginning(first);
    this.last = first.t;
    this.ended = false;
    /** @type {{count: number, run: RunState}[]} */
    this._checkpoints = [{ count: 0, run: structuredClone(this.latest) }];
    this._shown = { count: 0, run: beginning(first) };
    this._states = 0;
  }

  /** @param {StreamRecord} record */
  append(record) {
    this.records.push(record);
    apply(this.latest, record);
    this.last = Math.max(this.last, record.t);
    if (record.type === "end") this.ended = true;
    if (record.type === "state") {
      this.series.add(this.latest, record.t);
      if (++this._states % CHECKPOINT === 0) {
        this._checkpoints.push({
          count: this.records.length,
          run: structuredClone(this.latest),
        });
      }
    } else if (record.type === "opened") {
      this.snapshot.flows.push(...record.flows);
      this.snapshot.evs.push(...record.evs);
      for (const _ of record.flows) this.series.open();
    } else if (record.type === "packets") this.packets.push(record);
    else if (record.type !== "snapshot" && record.type !== "ended") this.events.push(record);
  }

  /** The end of the time axis. */
  get end() {
    return Math.max(this.snapshot.duration_s, this.last);
  }

  /** How many records are not later than a time. @param {number} t */
  count(t) {
    let low = 0;
    let high = this.records.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.records[middle].t <= t + 1e-9) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The state of everything at a time. @param {number} t @returns {RunState} */
  at(t) {
    const count = this.count(t);
    if (count < this._shown.count) {
      const before = this._checkpoints.findLast((checkpoint) => checkpoint.count <= count);
      const { count: from, run } = /** @type {any} */ (before);
      this._shown = { count: from, run: structuredClone(run) };
    }
    const shown = this._shown;
    while (shown.count < count) apply(shown.run, this.records[shown.count++]);
    return shown.run;
  }
}

/**
 * What is wrong with each link direction: the impairments of all faults in force.
 * @param {RunState} run
 * @returns {Record<string, {fault: number, kind: string, impairment: import("live/records.js").Impairment}[]>}
 */
export function impaired(run) {
  /** @type {Record<string, any[]>} */
  const places = {};
  for (const { fault, kind, places: struck, impairment } of Object.values(run.faults)) {
    if (Object.keys(impairment).length === 0) continue;
    for (const place of struck) (places[place] ??= []).push({ fault, kind, impairment });
  }
  return places;
}
