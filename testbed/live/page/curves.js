// What the plots show: goodput, the window of the chosen flow, and queues.

/** @import { Timeline } from "live/timeline.js" */
/** @import { Times } from "live/format.js" */
/** @import { Choice } from "live/detail.js" */
/** @import { Curve } from "live/plots.js" */
import { Plots } from "live/plots.js";

/** @param {string} name */
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/**
 * @param {HTMLElement} root
 * @param {Timeline} timeline
 * @param {Times} times
 * @param {{evs: {flow: number}, choice: Choice, seek: (t: number) => void}} page
 */
export function plotsOf(root, timeline, times, page) {
  const { series, snapshot } = timeline;
  const goodput = () => series.planes.map((values, plane) => ({
    label: `plane ${plane}`, colour: colour(`plane${plane}`), values,
  }));
  const window = () => {
    const { flow } = page.evs;
    if (!snapshot.flows[flow]) return [];
    return [
      { label: `cwnd of ${snapshot.flows[flow].name}`, colour: colour("accent"), values: series.cwnd[flow] },
      { label: "in flight", colour: colour("muted"), values: series.inflight[flow], dash: [4, 3] },
    ];
  };
  /** @returns {Curve[]} */
  const queue = () => {
    const { choice } = page;
    const largest = { label: "largest of all switch ports", colour: colour("muted"), values: series.queue };
    if (choice === null || choice.kind === "ev") return [largest];
    const names = Object.keys(series.links).filter((name) =>
      choice.kind === "node" ? name.startsWith(`${choice.name}>`) : name.split(">").every((end) => choice.name.split("--").includes(end)));
    const colours = ["accent", "plane4", "plane2", "plane5"];
    return [largest, ...names.slice(0, 4).map((name, index) => ({
      label: name.replace(">", " → "), colour: colour(colours[index]), values: series.links[name],
    }))];
  };
  return new Plots(root, timeline, times, [
    { title: "Goodput", unit: "Mbit/s", scale: 1e6, curves: goodput },
    { title: "Window", unit: "kB", scale: 1e3, curves: window },
    { title: "Queue", unit: "kB", scale: 1e3, curves: queue },
  ], page.seek);
}
