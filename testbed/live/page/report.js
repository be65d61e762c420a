// What the last action has come to: requested, in effect, detected, or refused with the reason.

/** @import { RunState } from "live/timeline.js" */
/** @import { Snapshot } from "live/records.js" */
/** @import { Times } from "live/format.js" */
import { html, setText } from "live/dom.js";
import { proofWords } from "live/faults.js";

export class Report {
  /** @param {HTMLElement} root @param {Snapshot} snapshot @param {Times} times */
  constructor(root, snapshot, times) {
    this.snapshot = snapshot;
    this.times = times;
    this._place = html("p", { id: "report", role: "status" });
    root.append(this._place);
    /** @type {number | null} the fault whose detection is awaited */
    this._awaited = null;
    this._text = "";
  }

  /** @param {string} text @param {boolean} [failed] */
  say(text, failed = false) {
    this._awaited = null;
    this._text = text;
    this._show(text, failed);
  }

  /** @param {any} record as in faults.jsonl */
  injected(record) {
    const after = this.times.passed((record.effective_ns - record.requested_ns) / 1e9);
    const how = record.actuator === "simulator" ? "in effect at once, as simulated faults are"
      : `in effect after ${after}, proven by ${proofWords(record.proof.injected ?? {})}`;
    this.say(`${record.kind} of ${record.target}: ${how}`);
    this._awaited = record.index;
  }

  /** @param {any} record as in faults.jsonl */
  healed(record) {
    const after = this.times.passed((record.healed_ns - record.heal_requested_ns) / 1e9);
    const proof = proofWords(record.proof.healed ?? {});
    this.say(`${record.kind} of ${record.target}: healed after ${after}${proof ? `, proven by ${proof}` : ""}`);
  }

  /** Adds the detection once there is one. @param {RunState} run the newest state */
  follow(run) {
    if (this._awaited === null) return;
    const first = run.detections.find(({ fault }) => fault === this._awaited);
    if (!first) {
      this._show(`${this._text}\nnot detected yet: no EV through it has left an active set`, false);
      return;
    }
    const { after_s: after, flow, ev } = first;
    const path = this.snapshot.evs.find((known) => known.flow === flow && known.ev === ev)?.path;
    const name = this.snapshot.flows[flow].name;
    this.say(`${this._text}\ndetected after ${this.times.length(after)}, ${this.times.real(after)} at full speed: ${path} left the active set of ${name}`);
  }

  /** @param {string} text @param {boolean} failed */
  _show(text, failed) {
    setText(this._place, text);
    this._place.classList.toggle("failed", failed);
  }
}
