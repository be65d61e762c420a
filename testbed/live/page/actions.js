// Breaking and healing, by the server's own checks: nothing is decided here.

/** @import { RunState } from "live/timeline.js" */
/** @import { EvPath } from "live/records.js" */
/** @import { Report } from "live/report.js" */
import { html } from "live/dom.js";

/**
 * What can be injected: an entry of a timeline without target, and for some kinds the degrees.
 * @type {{kind: string, more?: object, key?: string, degrees?: [string, string | number][]}[]}
 */
const FAULTS = [
  { kind: "cut" },
  { kind: "blackhole" },
  { kind: "flap", more: { count: 10 }, key: "period", degrees: [["every 20 RTT", "20 RTT"], ["every 5 RTT", "5 RTT"], ["every 100 RTT", "100 RTT"]] },
  { kind: "loss", key: "probability", degrees: [["1%", 0.01], ["0.1%", 0.001], ["5%", 0.05], ["20%", 0.2]] },
  { kind: "corrupt", key: "probability", degrees: [["1%", 0.01], ["0.1%", 0.001], ["20%", 0.2]] },
  { kind: "degrade", key: "factor", degrees: [["to 25%", 0.25], ["to 50%", 0.5], ["to 10%", 0.1]] },
  { kind: "delay", key: "extra", degrees: [["+5 µs", "5 us"], ["+1 µs", "1 us"], ["+20 µs", "20 us"]] },
];

export class Actions {
  /**
   * @param {() => RunState} now the newest state
   * @param {Report} report
   * @param {() => boolean} over whether the run has ended
   * @param {string} run its name
   */
  constructor(now, report, over, run) {
    this._now = now;
    this._over = over;
    this._run = run;
    this._report = report;
  }

  /** The controls for a link or a node. @param {string} target */
  buttons(target) {
    const made = FAULTS.map((fault) => this._fault(fault, target));
    const heal = this._button("heal", `heal every fault of ${target}`, () => this._heal(target));
    heal.className = "heal";
    return [...made, heal];
  }

  /** @param {typeof FAULTS[number]} fault @param {string} target */
  _fault({ kind, more = {}, key, degrees }, target) {
    const title = `${kind} ${target}`;
    if (!key || !degrees) return this._button(kind, title, () => this._inject({ kind, ...more, target }));
    const degree = html("select", { "aria-label": `degree of ${kind}` });
    degrees.forEach(([label], index) => degree.append(html("option", { value: index }, label)));
    const button = this._button(kind, title, () =>
      this._inject({ kind, ...more, [key]: degrees[Number(degree.value)][1], target }));
    return html("span", { class: "graded" }, button, degree);
  }

  /** Cuts a link or what belongs to a node, or heals what is broken there. @param {string} target */
  cutOrHeal(target) {
    return this._broken(target).length > 0 ? this._heal(target) : this._inject({ kind: "cut", target });
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

  /** @param {Record<string, any>} fault */
  async _inject(fault) {
    const what = `${fault.kind} of ${fault.target}`;
    this._report.say(`${what}: requested …`);
    const record = await this.send("faults", fault);
    if (record) this._report.injected(record);
  }

  /** @param {Record<string, any>} command */
  async _operate(command) {
    this._report.say(`${command.kind}: requested …`);
    const answer = await this.send("operator", command);
    if (answer) this._report.say(done(answer));
  }

  /** @param {string} label @param {string} title @param {() => void} act */
  _button(label, title, act) {
    const button = html("button", { type: "button", title }, label);
    button.addEventListener("click", act);
    return button;
  }

  /** The faults in force at a target. @param {string} target */
  _broken(target) {
    return Object.values(this._now().faults).filter(({ phase, target: struck, places }) =>
      !["healed", "failed"].includes(phase) &&
      (struck === target || places.some((place) => strikes(place, target))));
  }

  /** @param {string} target */
  async _heal(target) {
    const faults = this._broken(target);
    if (faults.length === 0) this._report.say(`${target}: no fault is in force there`, true);
    for (const { fault, kind, target: struck } of faults) {
      this._report.say(`healing the ${kind} of ${struck}: requested …`);
      const record = await this.send(`faults/${fault}`, {}, "DELETE");
      if (record) this._report.healed(record);
    }
  }

  /** Ends the run. */
  end() {
    this._report.say("the run ends: the messages under way arrive, then the report is written");
    return this.send("end", {});
  }

  /**
   * The answer, or null if the request failed; the report says why.
   * @param {string} path @param {object} content @param {string} [method] @returns {Promise<any>}
   */
  async send(path, content, method = "POST") {
    try {
      const response = await fetch(path, {
        method, body: method === "GET" ? undefined : JSON.stringify(content), headers: { "Content-Type": "application/json" },
      });
      const answer = await response.json();
      if (!response.ok) this._report.say(inWords(answer), true);
      return response.ok ? answer : null;
    } catch {
      this._report.say(this._over()
        ? `RUN: found ${this._run}, expected the directory of a run that is under way (testbed run, device, shell)`
        : "nobody answers: the server of this page has ended", true);
      return null;
    }
  }
}

/** Whether a link direction is of a link, or begins or ends at a node. @param {string} place @param {string} target */
function strikes(place, target) {
  const ends = place.split(">");
  return ends.includes(target) || ends.every((end) => target.split("--").includes(end)) ||
    (/^p\d+$/.test(target) && ends.some((end) => end.startsWith(`${target}_`)));
}

/** What an operator's command has come to. @param {any} answer */
function done(answer) {
  if (answer.ports) {
    return answer.ports.map((/** @type {any} */ { port, state }) => `port ${port}: ${state}`).join(", ");
  }
  const probed = answer.evs.filter((/** @type {any} */ { result }) => result);
  const shown = probed.length ? probed : answer.evs.filter((/** @type {any} */ { state }) => state === "DENIED");
  return shown.map((/** @type {any} */ { path, state, result, rtt_ns: rtt }) => result
    ? `${path}: probe ${result}${rtt ? ` after ${(rtt / 1e6).toPrecision(3)} ms` : ""}`
    : `${path}: ${String(state).toLowerCase().replace("_", " ")}`).join(", ") || "done";
}

/** The reason of a refusal, word for word that of the command line. @param {any} answer */
function inWords(answer) {
  if (!Array.isArray(answer.errors)) return String(answer.error ?? JSON.stringify(answer));
  return answer.errors.map((/** @type {any} */ { where, found, expected, remedy }) =>
    `${where}: ${found ? `found ${found}, ` : ""}expected ${expected}${remedy ? `\n  remedy: ${remedy}` : ""}`).join("\n");
}
