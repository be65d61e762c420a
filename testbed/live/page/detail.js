// What is chosen, in words: a link, a node or an EV, with what can be done to it.

/** @import { EvPath, Snapshot } from "live/records.js" */
/** @import { RunState } from "live/timeline.js" */
/** @import { Actions } from "live/actions.js" */
import { html, setText } from "live/dom.js";
import { evName, role } from "live/evs.js";
import { words } from "live/faults.js";
import { bytes, percent, rate } from "live/format.js";
import { machineOf } from "live/records.js";
import { impaired } from "live/timeline.js";

/** @typedef {{kind: "link" | "node", name: string} | {kind: "ev", ev: EvPath} | null} Choice */

export class Detail {
  /**
   * @param {HTMLElement} root
   * @param {Snapshot} snapshot
   * @param {Actions | null} actions null where nothing can be done
   */
  constructor(root, snapshot, actions) {
    this.snapshot = snapshot;
    this._root = root;
    this._actions = actions;
    this._body = html("div", { class: "about" });
    this._buttons = html("div", { class: "actions" });
    this._title = html("h3", { hidden: true });
    root.append(this._title, this._buttons, this._body);
    this._key = "";
    /** @type {Choice} */ this._choice = null;
  }

  /** @param {Choice} choice */
  choose(choice) {
    this._choice = choice;
    this._key = "";
    const ev = choice?.kind === "ev" ? choice.ev : null;
    const title = ev ? `${ev.path}: EV ${evName(ev.ev)} of ${this.snapshot.flows[ev.flow].name}` : choice?.kind === "ev" ? "" : choice?.name ?? "";
    setText(this._title, title);
    this._title.hidden = choice === null;
    this._buttons.replaceChildren();
    if (choice === null || !this._actions) return;
    if (choice.kind === "ev") {
      this._buttons.append(...this._actions.evButtons(this._flow(choice.ev), choice.ev));
      return;
    }
    this._buttons.append(...this._actions.buttons(choice.name));
    const port = this.snapshot.links.find(({ name, lower }) => name === choice.name && lower.startsWith("h"));
    if (port && this._hasEvs(port.lower)) this._buttons.append(...this._actions.portButtons(port.lower, port.plane));
  }

  /** The name of an EV's flow, as commands have it. @param {EvPath} ev */
  _flow(ev) {
    return this.snapshot.flows[ev.flow].name.replaceAll(" ", "").replace("→", "->");
  }

  /** Whether a host has queue pairs with EVs. @param {string} host */
  _hasEvs(host) {
    return this.snapshot.evs.length > 0 && this.snapshot.flows.some(({ src, dst }) => [src, dst].includes(host));
  }

  /** @param {RunState} run */
  show(run) {
    const made = this._about(run);
    if (made.key === this._key) return;
    this._key = made.key;
    this._body.replaceChildren(...made.parts());
  }

  /** @param {RunState} run @returns {{key: string, parts: () => (Node | string)[]}} */
  _about(run) {
    const choice = this._choice;
    if (choice === null) {
      const what = this._actions
        ? "Click a link, a switch or a plane to break it, then watch the traffic leave it."
        : "Click a link, a switch or an EV for its figures.";
      return { key: "none", parts: () => [html("p", { class: "hint" }, `${what} Tab and arrow keys work too.`)] };
    }
    if (choice.kind === "ev") return this._ev(choice.ev, run);
    const links = this.snapshot.links.filter(({ name, lower, upper, plane }) =>
      [name, lower, upper, `p${plane}`, machineOf(this.snapshot, lower)].includes(choice.name));
    return this._links(choice.name, links, run);
  }

  /** @param {EvPath} ev @param {RunState} run */
  _ev(ev, run) {
    const state = run.evs[`${ev.flow}:${ev.ev}`] ?? ev;
    return {
      key: `${ev.flow}:${ev.ev} ${role(state)}`,
      parts: () => [
        html("table", { class: "hops" },
          html("thead", {}, html("tr", {}, ...["link direction", "outer address", "next uSID"].map((head) => html("th", { scope: "col" }, head)))),
          html("tbody", {}, ...ev.crosses.map((direction, hop) => html("tr", {},
            html("td", {}, direction.replace(">", " → ")),
            html("td", {}, html("code", {}, ev.addresses[hop])),
            html("td", {}, html("code", {}, ev.usids[hop]), ` ${direction.split(">")[1]}`)))),
        ),
      ],
    };
  }

  /** @param {string} name @param {Snapshot["links"]} links @param {RunState} run */
  _links(name, links, run) {
    const places = impaired(run);
    const mapper = this.snapshot.clustermapper;
    const rows = links.flatMap(({ lower, upper, rate_bps: full }) =>
      [`${lower}>${upper}`, `${upper}>${lower}`].map((direction) => {
        const link = run.links[direction] ?? {};
        const state = (places[direction] ?? []).map(({ impairment }) => words(impairment)).join(" + ");
        return [
          direction.replace(">", " → "), state || "in order", percent(link.load ?? 0), rate((link.load ?? 0) * full),
          bytes(link.queue_bytes ?? 0), String(link.marked ?? 0), String(link.trimmed ?? 0), String(link.dropped ?? 0),
          ...(mapper ? [`${link.probes_lost ?? 0} of ${link.probed ?? 0}`] : []),
        ];
      }));
    return {
      key: `${name} ${rows.join()}`,
      parts: () => [
        html("table", {},
          html("thead", {}, html("tr", {}, ...["direction", "state", "load", "rate", "queue", "marked", "trimmed", "dropped", ...(mapper ? ["probes lost"] : [])].map((head) => html("th", { scope: "col" }, head)))),
          html("tbody", {}, ...rows.map((cells) => html("tr", cells[1] === "in order" ? {} : { class: "bad" }, ...cells.map((cell) => html("td", {}, cell))))),
        ),
      ],
    };
  }
}
