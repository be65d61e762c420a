// Keys, and the help that lists them.

import { html } from "live/dom.js";

/** @type {[string, string][]} */
const KEYS = [
  ["space", "play, pause"],
  ["← →", "a step back, a step forward; with shift ten"],
  ["home, end", "to the beginning, to the end"],
  ["n, p", "to the next event, to the previous one"],
  ["- +", "slower, faster"],
  ["l", "back to now, in a live run"],
  ["tab, arrows", "within the fabric: between nodes and links, within the events: up and down; enter chooses"],
  ["shift and a click, or enter", "cut what is clicked, or heal it, where the run can be broken"],
  ["f", "fork from the time that is shown"],
  ["escape", "choose nothing"],
  ["?", "this list"],
];

/**
 * @param {KeyboardEvent} event
 * @param {any} page
 */
export function keys(event, page) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.altKey || event.metaKey || target.closest("select, dialog")) return;
  const { player, timeline } = page;
  const steps = event.shiftKey ? 10 : 1;
  /** @type {Record<string, () => void>} */
  const acts = {
    ArrowLeft: () => player.step(-steps),
    ArrowRight: () => player.step(steps),
    Home: () => player.seek(0),
    End: () => player.seek(timeline.end),
    n: () => jump(player, timeline, 1),
    p: () => jump(player, timeline, -1),
    "-": () => player.faster(-1),
    "+": () => player.faster(1),
    "=": () => player.faster(1),
    l: () => player.follow(),
    f: () => page.mayFork && page.forks.open(),
    Escape: () => page.choose(null),
    "?": () => /** @type {HTMLDialogElement} */ (document.getElementById("help")).showModal(),
  };
  if (!target.closest("button")) acts[" "] = () => player.toggle();
  const act = acts[event.key];
  if (act === undefined) return;
  event.preventDefault();
  act();
}

/** @param {any} player @param {any} timeline @param {number} way */
function jump(player, timeline, way) {
  /** @type {number[]} */
  const times = timeline.events.map((/** @type {{t: number}} */ { t }) => t);
  const t = way > 0 ? times.find((time) => time > player.t + 1e-6) : times.findLast((time) => time < player.t - 1e-6);
  if (t !== undefined) player.seek(t);
}

/** @param {HTMLDialogElement} dialog @param {boolean} controls */
export function help(dialog, controls) {
  const rows = KEYS.map(([key, what]) => html("tr", {}, html("th", { scope: "row" }, html("kbd", {}, key)), html("td", {}, what)));
  const close = html("button", { type: "button" }, "Close");
  close.addEventListener("click", () => dialog.close());
  const fault = controls ? "Choose a link or a switch: below the fabric are buttons that break and heal it." : "";
  dialog.append(html("h2", {}, "Keys"), html("table", {}, ...rows), html("p", {}, fault), close);
}
