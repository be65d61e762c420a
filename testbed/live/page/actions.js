// Breaking and healing, by the server's own checks: nothing is decided here.

/** @import { World } from "live/timeline.js" */
/** @import { EvPath } from "live/records.js" */
import { html } from "live/dom.js";

/** What the buttons inject: entries of a timeline without target. @type {[string, object][]} */
const FAULTS = [
  ["cut", { kind: "cut" }],
  ["blackhole", { kind: "blackhole" }],
  ["loss 1%", { kind: "loss", probability: 0.01 }],
  ["loss 20%", { kind: "loss", probability: 0.2 }],
  ["corrupt 1%", { kind: "corrupt", probability: 0.01 }],
  ["rate 25%", { kind: "degrade", rate: 0.25 }],
];

export class Actions {
  /**
   * @param {() => World} now the newest state
   * @param {(text: string, failed: boolean) => void} report
   */
  constructor(now, report) {
    this._now = now;
    this._report = report;
  }

  /** The buttons for a link or a node. @param {string} target */
  buttons(target) {
    const made = FAULTS.map(([label, fault]) => this._button(label, `${label} ${target}`, () =>
      this._send("faults", { ...fault, target })));
    const heal = this._button("heal", `heal every fault of ${target}`, () => this._heal(target));
    heal.className = "heal";
    return [...made, heal];
  }

  /** The buttons for an EV. @param {string} flow its name @param {EvPath} ev */
  evButtons(flow, ev) {
    return ["deny", "allow", "probe"].map((kind) =>
      this._button(kind, `${kind} EV ${ev.ev} of ${flow}`, () => this._operate({ kind, flow, ev: String(ev.ev) })));
  }

  /** The buttons for the port of a host. @param {string} host @param {number} plane */
  portButtons(host, plane) {
    return ["disable", "enable"].map((kind) =>
      this._button(`${kind} port`, `${kind} the port of ${host} in plane ${plane}`, () => this._operate({ kind, host, plane })));
  }

  /** @param {object} command */
  async _operate(command) {
    const answer = await this._send("operator", command);
    if (answer) this._report(done(answer), false);
  }

  /** @param {string} label @param {string} title @param {() => void} act */
  _button(label, title, act) {
    const button = html("button", { type: "button", title }, label);
    button.addEventListener("click", act);
    return button;
  }

  /** @param {string} target */
  async _heal(target) {
    const faults = Object.values(this._now().faults).filter(({ phase, target: struck, places }) =>
      !["healed", "failed"].includes(phase) &&
      (struck === target || places.some((place) => place.split(">").includes(target) || place.split(">").every((end) => target.split("--").includes(end)))));
    if (faults.length === 0) this._report(`${target}: no fault is in force there`, true);
    for (const { fault } of faults) await this._send(`faults/${fault}`, {}, "DELETE");
  }

  /** Ends the run. */
  end() {
    return this._send("end", {});
  }

  /**
   * The answer, or null if the request failed.
   * @param {string} path @param {object} content @param {string} [method] @returns {Promise<any>}
   */
  async _send(path, content, method = "POST") {
    this._report("requested …", false);
    try {
      const response = await fetch(path, {
        method, body: JSON.stringify(content), headers: { "Content-Type": "application/json" },
      });
      const answer = await response.json();
      this._report(response.ok ? "" : told(answer), !response.ok);
      return response.ok ? answer : null;
    } catch {
      this._report("nobody answers: the run is over, or its server has ended", true);
      return null;
    }
  }
}

/** What an operator's command has come to. @param {any} answer */
function done(answer) {
  if (answer.ports) {
    return answer.ports.map((/** @type {any} */ { port, state }) => `port ${port}: ${state}`).join(", ");
  }
  const probed = answer.evs.filter((/** @type {any} */ { result }) => result);
  return probed.map((/** @type {any} */ { path, result, rtt_ns: rtt }) =>
    `${path}: probe ${result}${rtt ? ` after ${(rtt / 1e6).toPrecision(3)} ms` : ""}`).join(", ");
}

/** The reason of a refusal, as on the command line. @param {any} answer */
function told(answer) {
  if (!Array.isArray(answer.errors)) return String(answer.error ?? JSON.stringify(answer));
  return answer.errors.map((/** @type {any} */ problem) =>
    `${problem.where}: ${problem.found}; expected ${problem.expected}${problem.remedy ? ` (${problem.remedy})` : ""}`).join("\n");
}
