// The paths of a flow by EV: state, share, goodput, losses, round trip.

/** @import { EvPath, Snapshot } from "live/records.js" */
/** @import { RunState } from "live/timeline.js" */
/** @import { Times } from "live/format.js" */
import { html, setAttribute, setText } from "live/dom.js";
import { percent, rate } from "live/format.js";

const SIGNS = { active: "●", backup: "○", bad: "✕", skip: "◐", denied: "⊘", ended: "–" };
const STATES = {
  active: "active", backup: "backup", bad: "assumed bad", skip: "skip", denied: "denied", ended: "ended",
};

/** @param {{state: string, active: boolean}} ev @returns {keyof typeof SIGNS} */
export function role({ state, active }) {
  if (state === "ASSUMED_BAD") return "bad";
  if (state === "DENIED") return "denied";
  if (!active) return "backup";
  return state === "SKIP" ? "skip" : "active";
}

/** @param {number} ev */
export const evName = (ev) => `0x${ev.toString(16)}`;

export class Evs {
  /**
   * @param {HTMLElement} root
   * @param {HTMLSelectElement} select
   * @param {Snapshot} snapshot
   * @param {Times} times
   * @param {(ev: EvPath | null) => void} hover
   * @param {(ev: EvPath) => void} choose
   */
  constructor(root, select, snapshot, times, hover, choose) {
    this.snapshot = snapshot;
    this.times = times;
    this._root = root;
    this._select = select;
    this._hover = hover;
    this._choose = choose;
    /** @type {string | null} */ this.chosen = null;
    this._chosen = false; // whether somebody has chosen a flow
    this._counts = { flows: 0, evs: 0 };
    select.addEventListener("change", () => {
      this._chosen = true;
      this._build();
    });
    this.grow();
  }

  /** Shows flows and EVs that are new; the newest flow, unless one was chosen. */
  grow() {
    const { flows, evs } = this.snapshot;
    for (const { flow, name } of flows.slice(this._counts.flows)) {
      this._select.append(html("option", { value: flow }, name));
    }
    if (this._counts.flows > 0 && flows.length > this._counts.flows && !this._chosen) {
      this._select.value = String(flows[flows.length - 1].flow);
    }
    this._counts = { flows: flows.length, evs: evs.length };
    this._build();
  }

  /** Whether there are flows or EVs that are not shown. */
  get grows() {
    const { flows, evs } = this.snapshot;
    return flows.length > this._counts.flows || evs.length > this._counts.evs;
  }

  /** The flow that is shown. */
  get flow() {
    return Number(this._select.value);
  }

  _build() {
    const evs = this.snapshot.evs.filter(({ flow }) => flow === this.flow);
    evs.sort((a, b) => a.plane - b.plane || a.path.localeCompare(b.path, "en", { numeric: true }) || a.ev - b.ev);
    /** @type {{ev: EvPath, row: HTMLTableRowElement, cells: HTMLElement[], bar: HTMLElement}[]} */
    this._rows = [];
    if (evs.length === 0) {
      const why = this.snapshot.flows.length > 0 ? "This transport has no EVs." : "No flow yet: run write_bw in two hosts.";
      this._root.replaceChildren(html("p", { class: "empty" }, why));
      return;
    }
    const body = html("tbody");
    for (const ev of evs) body.append(this._row(ev));
    const heads = ["path", "EV", "state", "share", "goodput", "lost", "RTT"];
    this._root.replaceChildren(html("table", {}, html("thead", {}, html("tr", {},
      ...heads.map((head) => html("th", { scope: "col" }, head)))), body));
  }

  /** @param {EvPath} ev */
  _row(ev) {
    const bar = html("i", { class: "meter" });
    /** @type {HTMLElement[]} */
    const cells = ["state", "share", "goodput", "lost", "rtt"].map((name) => html("td", { class: name }));
    const share = html("span");
    cells[1].append(bar, share);
    const path = html("button", { type: "button", title: `Show the path of EV ${evName(ev.ev)}` }, ev.path);
    const row = html("tr", {}, html("th", { scope: "row", class: `plane${ev.plane}` }, path),
      html("td", { class: "ev" }, evName(ev.ev)), ...cells);
    row.addEventListener("mouseenter", () => this._hover(ev));
    row.addEventListener("mouseleave", () => this._hover(null));
    path.addEventListener("focus", () => this._hover(ev));
    path.addEventListener("blur", () => this._hover(null));
    row.addEventListener("click", () => this._choose(ev));
    cells[1] = share;
    this._rows?.push({ ev, row, cells, bar });
    return row;
  }

  /** @param {RunState} run */
  show(run) {
    const rows = this._rows ?? [];
    const states = rows.map(({ ev }) => run.evs[`${ev.flow}:${ev.ev}`] ?? ev);
    const sent = states.reduce((sum, { sent_bps = 0 }) => sum + sent_bps, 0);
    this.snapshot.flows.forEach(({ name, job }, flow) => {
      const label = job ? `${job}: ${name}` : name;
      setText(this._select.options[flow], run.ended[flow] ? `${label} (ended)` : label);
    });
    rows.forEach(({ ev, row, cells, bar }, index) => {
      const state = states[index];
      const is = run.ended[ev.flow] ? "ended" : role(state);
      setAttribute(row, "class", `${is}${this.chosen === `${ev.flow}:${ev.ev}` ? " chosen" : ""}`);
      const share = sent > 0 ? (state.sent_bps ?? 0) / sent : 0;
      setText(cells[0], `${SIGNS[is]} ${STATES[is]}`);
      setText(cells[1], percent(share));
      bar.style.width = `${Math.min(share * rows.length * 50, 100)}%`;
      setText(cells[2], rate(state.goodput_bps ?? 0));
      setText(cells[3], String(state.lost ?? 0));
      setText(cells[4], state.rtt_s ? this.times.passed(state.rtt_s) : "–");
    });
  }
}
