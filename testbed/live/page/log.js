// The events up to the time that is shown, the newest first: one stop of the tab key; the arrow keys
// lead from one event to another.

/** @import { RunEvent } from "live/records.js" */
/** @import { Timeline } from "live/timeline.js" */
/** @import { Times } from "live/format.js" */
import { html } from "live/dom.js";
import { evName } from "live/evs.js";
import { proofWords, words } from "live/faults.js";

const MOST = 400;

export class Log {
  /**
   * @param {HTMLElement} root
   * @param {Timeline} timeline
   * @param {Times} times
   * @param {(t: number) => void} seek
   */
  constructor(root, timeline, times, seek) {
    this._root = root;
    this.timeline = timeline;
    this.times = times;
    this._seek = seek;
    this._shown = 0;
    this._unit = times.unit;
    /** @type {HTMLElement | null} */ this._stop = null;
    root.addEventListener("keydown", (event) => this._move(event));
  }

  /** @param {HTMLElement | null | undefined} button */
  _rove(button) {
    if (!button) return;
    if (this._stop) this._stop.tabIndex = -1;
    button.tabIndex = 0;
    this._stop = button;
  }

  /** @param {KeyboardEvent} event */
  _move(event) {
    const line = document.activeElement?.closest("#log li");
    const to = event.key === "ArrowDown" ? line?.nextElementSibling : event.key === "ArrowUp" ? line?.previousElementSibling : null;
    const button = to?.querySelector("button");
    if (!button) return;
    event.preventDefault();
    this._rove(button);
    button.focus();
  }

  /** @param {number} t */
  show(t) {
    const { events } = this.timeline;
    let count = this._shown;
    if (count > 0 && events[count - 1].t > t + 1e-9) count = 0;
    const unit = this.times.unit;
    if (count < this._shown || unit !== this._unit) {
      this._root.replaceChildren();
      count = 0;
      this._unit = unit;
    }
    /** @type {HTMLElement[]} */
    const added = [];
    while (count < events.length && events[count].t <= t + 1e-9) added.push(this._line(events[count++]));
    if (added.length > 0) this._root.prepend(...added.reverse().slice(0, MOST));
    while (this._root.childElementCount > MOST) this._root.lastElementChild?.remove();
    this._shown = count;
    if (!this._root.contains(document.activeElement) || !this._stop?.isConnected) this._rove(this._root.querySelector("button"));
  }

  /** @param {RunEvent} event */
  _line(event) {
    const { kind, text, more } = this._inWords(event);
    const button = html("button", { type: "button", tabindex: -1, title: "Go to this time" },
      html("time", {}, this.times.at(event.t)), html("b", {}, text), html("span", {}, more));
    button.addEventListener("click", () => this._seek(event.t));
    return html("li", { class: kind }, button);
  }

  /** @param {number} number */
  _flow(number) {
    return this.timeline.snapshot.flows[number]?.name ?? `flow ${number}`;
  }

  /** @param {RunEvent} event @returns {{kind: string, text: string, more: string}} */
  _inWords(event) {
    switch (event.type) {
      case "ev": {
        const path = this.timeline.snapshot.evs.find(({ flow, ev }) => flow === event.flow && ev === event.ev);
        const change = event.old === event.new ? (event.active ? "joins" : "leaves") : event.new.toLowerCase().replace("_", " ");
        const kind = event.new === "ASSUMED_BAD" ? "bad" : event.active ? "good" : "quiet";
        return {
          kind, text: `${path?.path ?? evName(event.ev)} ${change}`,
          more: `${this._flow(event.flow)}, ${event.active ? "in the active set" : "not in the active set"}: ${event.reason}`,
        };
      }
      case "fault": {
        const after = event.after_s ? ` after ${this.times.passed(event.after_s)}` : "";
        const what = event.phase === "changed" ? ` to ${words(event.impairment) || "healthy"}` : "";
        const proof = proofWords(event.proof);
        return {
          kind: `fault ${event.phase.replace(" ", "-")}`,
          text: `${event.kind} of ${event.target} ${event.phase}${what}`,
          more: [`fault ${event.fault}${after}`, event.error ?? "", proof && `proven by ${proof}`].filter(Boolean).join(", "),
        };
      }
      case "detection":
        return {
          kind: "detection", text: `detected after ${this.times.length(event.after_s)}`,
          more: `${this._flow(event.flow)} took EV ${evName(event.ev)} out of its active set; fault ${event.fault}`,
        };
      case "finding":
        return {
          kind: event.raised ? "bad" : "good",
          text: `Clustermapper ${event.raised ? "accuses" : "no longer accuses"} ${event.suspect}`,
          more: event.raised ? `estimated loss ${Number((100 * event.loss).toPrecision(2))}%` : "",
        };
      case "operator": {
        const path = this.timeline.snapshot.evs.find(({ flow, ev }) => flow === event.flow && ev === event.ev)?.path;
        const what = event.flow === undefined ? `port ${event.plane} of ${event.host}` : `${path ?? "EV"} of ${this._flow(event.flow)}`;
        const rtt = event.rtt_s === undefined ? "" : `, round trip ${this.times.passed(event.rtt_s)}`;
        return { kind: "quiet", text: `${event.kind} ${what}`, more: `by ${event.by}: ${event.result.toLowerCase().replace("_", " ")}${rtt}` };
      }
      case "verdict":
        return {
          kind: event.verdict === "trusted" ? "good" : "bad",
          text: `${event.verdict}${event.final ? "" : " so far"}`, more: event.reasons.join("; "),
        };
      case "end":
        return { kind: "quiet", text: "end of the run", more: event.outcome };
    }
  }
}
