// The faults so far: what was broken, when a flow noticed, and whom the Clustermapper accuses.

/** @import { FaultChange, Finding, Snapshot } from "live/records.js" */
/** @import { RunState } from "live/timeline.js" */
/** @import { Times } from "live/format.js" */
import { byId, html, setText } from "live/dom.js";
import { words } from "live/faults.js";

/** Whether a suspect is, or contains, or is part of one of these places. @param {string} suspect @param {string[]} places */
export function meets(suspect, places) {
  const ends = suspect.split(/--|>/);
  return places.some((place) => {
    const of = place.split(">");
    if (suspect.includes(">")) return place === suspect;
    return ends.length === 2 ? of.every((end) => ends.includes(end)) : of.includes(suspect);
  });
}

export class Truth {
  /** @param {HTMLElement} root @param {Snapshot} snapshot @param {Times} times */
  constructor(root, snapshot, times) {
    this.snapshot = snapshot;
    this.times = times;
    this._root = root;
    this._key = "";
  }

  /** @param {RunState} run */
  show(run) {
    const faults = Object.values(run.faults).reverse();
    const findings = Object.values(run.findings);
    const mapper = this.snapshot.clustermapper;
    if (mapper) setText(byId("measured"), this._measured(run));
    const key = JSON.stringify([faults, findings, run.detections.length, this.times.unit]);
    if (key === this._key) return;
    this._key = key;
    const rows = faults.map((fault) => this._row(fault, run, mapper ? findings : null));
    for (const { suspect, loss } of findings.filter(({ suspect: accused }) => !faults.some(({ places, phase }) => phase !== "healed" && meets(accused, places)))) {
      rows.push(html("tr", { class: "bad" }, ...["–", "nothing is broken there", "–", `${suspect} (${percentOf(loss)})`].map((cell) => html("td", {}, cell))));
    }
    if (rows.length === 0) {
      const who = mapper ? "no fault yet, and the Clustermapper accuses nobody" : "no fault yet";
      this._root.replaceChildren(html("p", { class: "empty" }, who));
      return;
    }
    const heads = ["fault", "state", "detected after", ...(mapper ? ["Clustermapper accuses"] : [])];
    this._root.replaceChildren(html("table", {},
      html("thead", {}, html("tr", {}, ...heads.map((head) => html("th", { scope: "col" }, head)))), html("tbody", {}, ...rows)));
  }

  /** How far the Clustermapper has come. @param {RunState} run */
  _measured(run) {
    const probed = Object.values(run.links).filter(({ probed: probes = 0 }) => probes > 0);
    return `Clustermapper: ${probed.length} of ${2 * this.snapshot.links.length} link directions measured`;
  }

  /** @param {FaultChange} fault @param {RunState} run @param {Finding[] | null} findings */
  _row(fault, run, findings) {
    const detection = run.detections.find(({ fault: number }) => number === fault.fault);
    const healed = ["healed", "failed"].includes(fault.phase);
    const state = fault.phase === "changed" ? words(fault.impairment) || "in force" : fault.phase;
    const cells = [
      `${fault.kind} of ${fault.target}`, state, detection ? this.times.length(detection.after_s) : "–",
    ];
    if (findings) {
      const accused = findings.filter(({ suspect }) => meets(suspect, fault.places));
      cells.push(accused.length ? accused.map(({ suspect, loss }) => `${suspect} (${percentOf(loss)})`).join(", ") : healed ? "–" : "not yet");
    }
    return html("tr", healed ? { class: "quiet" } : { class: "bad" }, ...cells.map((cell) => html("td", {}, cell)));
  }
}

/** @param {number} loss */
function percentOf(loss) {
  return `loss ${Number((100 * loss).toPrecision(2))}%`;
}
