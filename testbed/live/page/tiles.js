// The key figures at the time that is shown.

/** @import { Snapshot } from "live/records.js" */
/** @import { RunState } from "live/timeline.js" */
/** @import { Times } from "live/format.js" */
import { html, setAttribute, setText } from "live/dom.js";
import { role } from "live/evs.js";
import { digits, rate } from "live/format.js";

export class Tiles {
  /** @param {HTMLElement} root @param {Snapshot} snapshot @param {Times} times */
  constructor(root, snapshot, times) {
    this.snapshot = snapshot;
    this.times = times;
    /** @type {Record<string, {tile: HTMLElement, value: HTMLElement, note: HTMLElement}>} */
    this._tiles = {};
    for (const name of ["goodput", "active EVs", "faults", "detection", "lost packets", "verdict"]) {
      const value = html("strong");
      const note = html("small");
      const tile = html("div", { class: "tile" }, html("span", {}, name), value, note);
      root.append(tile);
      this._tiles[name] = { tile, value, note };
    }
  }

  /** @param {string} name @param {string} value @param {string} note @param {string} [look] */
  _set(name, value, note, look = "") {
    const tile = this._tiles[name];
    setText(tile.value, value);
    setText(tile.note, note);
    setAttribute(tile.note, "title", note);
    setAttribute(tile.tile, "class", `tile ${look}`);
  }

  /** @param {RunState} run */
  show(run) {
    const flows = Object.values(run.flows);
    const goodput = flows.reduce((sum, { goodput_bps = 0 }) => sum + goodput_bps, 0);
    const real = goodput * this.snapshot.dilation;
    this._set("goodput", rate(goodput), `${rate(real)} at full speed`);

    const evs = Object.entries(run.evs).filter(([key]) => !run.ended[key.split(":")[0]]).map(([, ev]) => ev);
    const bad = evs.filter((ev) => role(ev) === "bad").length;
    const active = evs.filter(({ active }) => active).length;
    this._set("active EVs", `${active} of ${evs.length}`, bad > 0 ? `${bad} assumed bad` : "none assumed bad", bad ? "bad" : "");

    const faults = Object.values(run.faults);
    const force = faults.filter(({ impairment }) => Object.keys(impairment).length > 0);
    const newest = force.at(-1);
    this._set("faults", String(force.length), newest ? `${newest.kind} of ${newest.target}` : `${faults.length} so far, none in force`, newest ? "bad" : "");

    const last = run.detections.at(-1)?.fault;
    const first = run.detections.find(({ fault }) => fault === last);
    if (first) {
      const lag = digits(first.after_s / this.snapshot.base_rtt_s);
      this._set("detection", `${lag} RTT`, `${this.times.passed(first.after_s)}; ${this.times.real(first.after_s)} at full speed`, "noted");
    } else this._set("detection", "–", force.length > 0 ? "not yet" : faults.length > 0 ? "not detected" : "no fault yet");

    const lost = flows.reduce((sum, flow) => sum + (flow.lost ?? 0), 0);
    const again = flows.reduce((sum, flow) => sum + (flow.retransmitted ?? 0), 0);
    const corrupted = flows.reduce((sum, flow) => sum + (flow.corrupted_bytes ?? 0), 0);
    this._set("lost packets", String(lost), corrupted ? `${corrupted} bytes corrupted!` : `${again} sent again`, corrupted ? "bad" : "");

    if (!this.snapshot.judged) {
      this._set("verdict", "–", "a prompt is not judged");
      return;
    }
    const { verdict, reasons = [], final = false } = run.verdict ?? { verdict: "trusted" };
    this._set("verdict", verdict, reasons[0] ?? (final ? (run.outcome ?? "final") : "so far"), verdict === "trusted" ? "good" : "bad");
  }
}
