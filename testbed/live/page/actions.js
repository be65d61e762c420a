// Breaking and healing, by the server's own checks: nothing is decided here.

/** @import { World } from "live/timeline.js" */
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

  /** @param {string} path @param {object} content @param {string} [method] */
  async _send(path, content, method = "POST") {
    this._report("requested …", false);
    try {
      const response = await fetch(path, {
        method, body: JSON.stringify(content), headers: { "Content-Type": "application/json" },
      });
      const answer = await response.json();
      this._report(response.ok ? "" : told(answer), !response.ok);
    } catch {
      this._report("nobody answers: the run is over, or its server has ended", true);
    }
  }
}

/** The reason of a refusal, as on the command line. @param {any} answer */
function told(answer) {
  if (!Array.isArray(answer.errors)) return String(answer.error ?? JSON.stringify(answer));
  return answer.errors.map((/** @type {any} */ problem) =>
    `${problem.where}: ${problem.found}; expected ${problem.expected}${problem.remedy ? ` (${problem.remedy})` : ""}`).join("\n");
}
