// Forks: the scenario so far, simulated from the start, with one thing changed from the time that is
// shown. And the scenario so far as a file. The server makes both (testbed/live/forks.py).

/** @import { Choice } from "live/detail.js" */
/** @import { Actions } from "live/actions.js" */
/** @import { Report } from "live/report.js" */
/** @import { Times } from "live/format.js" */
/** @import { Timeline } from "live/timeline.js" */
import { html } from "live/dom.js";
import { digits, percent, rate } from "live/format.js";

/** The faults that a fork may begin. @type {[string, object][]} */
const FAULTS = [
  ["cut", { kind: "cut" }], ["blackhole", { kind: "blackhole" }], ["loss of 1%", { kind: "loss", probability: 0.01 }],
  ["loss of 20%", { kind: "loss", probability: 0.2 }], ["rate at 25%", { kind: "degrade", factor: 0.25 }],
];

/**
 * @typedef {{seconds: number, goodput_bps: (number | null)[], lost: number[], retransmitted: number[],
 *   detections_rtt: Record<string, number>[]}} Part
 * @typedef {{fork: number, at_s: number, change: string, state: "simulating" | "done" | "failed",
 *   share?: number, error?: string, difference?: {before: Part, after: Part}}} Fork
 */

export class Forks {
  /**
   * @param {HTMLDialogElement} dialog
   * @param {{actions: Actions | null, report: Report, times: Times, timeline: Timeline, choice: Choice,
   *   player: {t: number}}} page
   */
  constructor(dialog, page) {
    this._dialog = dialog;
    this._page = page;
    /** @type {Fork[]} */ this._forks = [];
    this._timer = 0;
    this._list = html("div", { class: "forks", "aria-live": "polite" });
    this._at = html("p");
    this._what = html("select", { "aria-label": "What is changed" });
    const simulate = html("button", { type: "button", class: "primary" }, "Simulate");
    simulate.addEventListener("click", () => this._begin());
    const close = html("button", { type: "button" }, "Close");
    close.addEventListener("click", () => dialog.close());
    dialog.append(
      html("h2", { id: "fork-title" }, "Fork: what if …"), this._at,
      html("p", { class: "row" }, this._what, simulate, close), this._list,
    );
    this._moment = 0;
    /** @type {object[]} */ this._changes = [];
  }

  /** Opens the dialog for the time that is shown. */
  open() {
    const { player, timeline, times, choice } = this._page;
    this._moment = Math.max(player.t, timeline.snapshot.step_s);
    this._at.textContent = `From ${times.at(this._moment)} on one thing is different. The run so far is simulated ` +
      "again from its start, without what happened later, and compared with the run that is shown.";
    /** @type {[string, object][]} */
    const options = [["nothing more is done", {}]];
    for (const { fault, kind, target, impairment } of Object.values(timeline.at(this._moment).faults)) {
      if (Object.keys(impairment).length) options.push([`the ${kind} of ${target} is healed`, { heal: fault }]);
    }
    const target = choice && choice.kind !== "ev" ? choice.name : null;
    if (target) for (const [label, fault] of FAULTS) options.push([`${label}: ${target}`, { fault: { ...fault, target } }]);
    if (choice?.kind === "ev") {
      const flow = timeline.snapshot.flows[choice.ev.flow];
      const name = flow.name.replaceAll(" ", "").replace("→", "->");
      options.push([`${choice.ev.path} of ${flow.name} is denied`, { operator: { kind: "deny", flow: name, ev: String(choice.ev.ev) } }]);
    }
    this._changes = options.map(([, change]) => change);
    this._what.replaceChildren(...options.map(([label], index) => html("option", { value: index, selected: index === 1 }, label)));
    if (!choice) this._at.append(" Choose a link, a switch or an EV first to break it in the fork.");
    this._dialog.showModal();
    this._poll();
  }

  async _begin() {
    const answer = await this._page.actions?.send("forks", { at_s: this._moment, change: this._changes[Number(this._what.value)] });
    if (answer) this._poll();
    else this._list.prepend(html("p", { class: "failed" }, document.getElementById("report")?.textContent ?? ""));
  }

  async _poll() {
    clearTimeout(this._timer);
    const forks = await this._page.actions?.send("forks", {}, "GET");
    if (!forks) return;
    this._forks = forks;
    this._list.replaceChildren(...[...forks].reverse().map((/** @type {Fork} */ fork) => this._line(fork)));
    if (forks.some((/** @type {Fork} */ { state }) => state === "simulating")) {
      this._timer = setTimeout(() => this._poll(), 700);
    }
  }

  /** @param {Fork} fork */
  _line(fork) {
    const title = html("h3", {}, `Fork ${fork.fork}, simulated: at ${this._page.times.at(fork.at_s)} ${fork.change}`);
    if (fork.state === "simulating") {
      return html("section", {}, title, html("progress", { max: 1, value: fork.share ?? 0 }), ` ${percent(fork.share ?? 0)}`);
    }
    if (fork.state === "failed" || !fork.difference) {
      return html("section", {}, title, html("p", { class: "failed" }, fork.error ?? ""));
    }
    const { before, after } = fork.difference;
    const real = this._page.timeline.snapshot.simulated ? "run" : "emulated run";
    /** @param {string} name @param {(part: Part) => string[]} cells */
    const row = (name, cells) => html("tr", {}, html("th", { scope: "row" }, name),
      ...[before, after].flatMap((part) => cells(part).map((cell) => html("td", {}, cell))));
    const table = html("table", {}, html("thead", {},
      html("tr", {}, html("th"), html("th", { colspan: 2, scope: "colgroup" }, "up to the moment"), html("th", { colspan: 2, scope: "colgroup" }, `after it (${digits(after.seconds)} s)`)),
      html("tr", {}, ...["", real, "fork", real, "fork"].map((head) => html("th", { scope: "col" }, head)))),
    html("tbody", {},
      row("goodput", ({ goodput_bps: both }) => both.map((bps) => (bps === null ? "–" : rate(bps)))),
      row("declared lost", ({ lost }) => lost.map(String)),
      row("sent again", ({ retransmitted }) => retransmitted.map(String)),
      row("detection", ({ detections_rtt: both }) => both.map((times) => Object.values(times).map((rtts) => `${digits(rtts)} RTT`).join(", ") || "–"))));
    const [a, b] = before.goodput_bps;
    const apart = a && b ? `Up to the moment the fork's goodput differs from the ${real} by ${digits(100 * Math.abs(b / a - 1))}%.` : "";
    const link = html("a", { href: `forks/${fork.fork}/`, target: "_blank", rel: "noopener" }, "Look at the fork");
    return html("section", {}, title, table, html("p", {}, apart, " ", link));
  }

  /** Saves the scenario of the run so far. */
  async save() {
    const answer = await this._page.actions?.send("scenario", {}, "GET");
    if (!answer) return;
    /** @type {Record<string, string>} */
    const files = { [`${answer.name}.yaml`]: answer.scenario, ...answer.code };
    for (const [name, text] of Object.entries(files)) {
      const link = html("a", { href: URL.createObjectURL(new Blob([text], { type: "text/plain" })), download: name });
      link.click();
      URL.revokeObjectURL(link.href);
    }
    this._page.report.say(`saved ${Object.keys(files).join(", ")}: testbed run or testbed simulate makes this run again`);
  }
}
