// Puts the page together: records come in, time passes, everything shows the state at that time.

/** @import { StreamRecord } from "live/records.js" */
/** @import { Choice } from "live/detail.js" */
/** @import { TimeUnit } from "live/format.js" */
import { Actions } from "live/actions.js";
import { Detail } from "live/detail.js";
import { byId, html, setText } from "live/dom.js";
import { Evs } from "live/evs.js";
import { Fabric } from "live/fabric.js";
import { Times } from "live/format.js";
import { help, keys } from "live/keys.js";
import { Log } from "live/log.js";
import { Packets } from "live/packets.js";
import { Player } from "live/player.js";
import { Report } from "live/report.js";
import { Forks } from "live/forks.js";
import { Truth } from "live/truth.js";
import { plotsOf } from "live/curves.js";
import { embedded, follow } from "live/source.js";
import { Tiles } from "live/tiles.js";
import { Timeline } from "live/timeline.js";

const DATA_LEGEND = [["dot data", "data"], ["dot again", "sent again"], ["dot lost", "lost"]];
const CONTROL_LEGEND = [["dot sack", "SACK"], ["dot nack", "NACK"], ["dot probe", "probe"]];
const CONTROL_DILATION = 100_000; // from there on control packets are recorded

class Page {
  /** @param {StreamRecord} first @param {string} offer what the page offers: "control", "break", "fork" or "watch" */
  constructor(first, offer) {
    const timeline = new Timeline(first);
    const { snapshot } = timeline;
    this.timeline = timeline;
    this.times = new Times(snapshot.base_rtt_s, snapshot.dilation);
    this.player = new Player(byId("player"), timeline, this.times);
    this.seek = (/** @type {number} */ t) => this.player.seek(t);
    this.report = new Report(byId("detail"), snapshot, this.times);
    this.actions = offer === "watch" ? null : new Actions(() => timeline.latest, this.report, () => timeline.ended, snapshot.run);
    const controls = offer === "control" || offer === "break";
    /** @type {Choice} */ this.choice = null;
    /** @type {string[]} */ this.hovered = [];
    this.detail = new Detail(byId("detail"), snapshot, controls ? this.actions : null);
    this.fabric = new Fabric(byId("fabric"), snapshot, (kind, name, cuts) => {
      if (cuts && controls) this.actions?.cutOrHeal(name);
      else this.choose({ kind, name });
    });
    this.packets = new Packets(timeline, this.fabric);
    this.evs = new Evs(byId("evs"), byId("flow"), snapshot, this.times,
      (ev) => (this.hovered = ev?.crosses ?? []), (ev) => this.choose({ kind: "ev", ev }));
    this.truth = new Truth(byId("truth"), snapshot, this.times);
    this.tiles = new Tiles(byId("tiles"), snapshot, this.times);
    this.log = new Log(byId("log"), timeline, this.times, this.seek);
    this.plots = plotsOf(byId("plots"), timeline, this.times, this);
    this._live = html("li", { class: "live" }, snapshot.live ? "live" : "replay");
    this._end = html("button", { type: "button", class: "end", title: "End the run and write its report" }, "End run");
    this.forks = new Forks(byId("fork"), this);
    this._ends = offer === "control";
    this.mayFork = offer === "control" || offer === "fork";
    this._head();
    help(byId("help"), controls);
    document.addEventListener("keydown", (event) => keys(event, this));
  }

  /** @param {Choice} choice */
  choose(choice) {
    const same = JSON.stringify(choice) === JSON.stringify(this.choice);
    this.choice = same ? null : choice;
    const ev = this.choice?.kind === "ev" ? this.choice.ev : null;
    this.evs.chosen = ev && `${ev.flow}:${ev.ev}`;
    this.detail.choose(this.choice);
  }

  _head() {
    const { snapshot } = this.timeline;
    document.title = `${snapshot.scenario} – MRC testbed`;
    setText(byId("scenario"), snapshot.scenario);
    setText(byId("description"), snapshot.description);
    const unit = html("select", { "aria-label": "Unit of time", title: "Unit of time" });
    for (const [value, label] of [["s", "seconds"], ["rtt", "base RTTs"], ["real", "µs at full speed"]]) {
      unit.append(html("option", { value }, label));
    }
    unit.addEventListener("change", () => (this.times.unit = /** @type {TimeUnit} */ (unit.value)));
    const ask = html("button", { type: "button", "aria-label": "Keys", title: "Keys (?)" }, "?");
    ask.addEventListener("click", () => byId("help").showModal());
    this._end.addEventListener("click", () => this.actions?.end());
    this._end.hidden = !(this._ends && snapshot.live);
    const fork = this._fork = html("button", { type: "button", title: "Simulate the run so far again, with one thing changed (f)" }, "Fork …");
    fork.addEventListener("click", () => this.forks.open());
    const save = this._save = html("button", { type: "button", title: "Save what was done so far as a scenario" }, "Save scenario");
    save.addEventListener("click", () => this.forks.save());
    fork.hidden = save.hidden = !this.mayFork;
    this.player.append(unit, fork);
    const chips = [
      snapshot.simulated ? "simulated" : "emulated", snapshot.topology, `time × ${snapshot.dilation.toLocaleString("en")}`,
      `base RTT ${this.times.passed(snapshot.base_rtt_s)}`,
      ...(snapshot.management ? [`management network, without faults: h0 is ${snapshot.management}`] : []),
    ];
    byId("chips").append(this._live, ...chips.map((text) => html("li", {}, text)), html("li", { class: "control" }, save), html("li", { class: "control" }, ask), html("li", { class: "control" }, this._end));
    const legend = [["load", "width: load"], ["cut", "cut"], ["blackhole", "blackhole"], ["lossy", "loss, corruption"], ["slow", "slow"]];
    if (snapshot.slow_motion) {
      legend.push(...DATA_LEGEND, ...(snapshot.dilation < CONTROL_DILATION ? [] : CONTROL_LEGEND));
    }
    byId("legend").append(...legend.map(([name, text]) => html("li", {}, html("i", { class: name }), text)));
  }

  /** @param {boolean} connected */
  connection(connected) {
    const { ended, snapshot } = this.timeline;
    if (ended || !snapshot.live) this._end.hidden = true;
    if (ended && !connected && snapshot.live) {
      for (const button of [this._fork, this._save]) if (button) button.hidden = true;
    }
    const lost = !connected && !ended && snapshot.live;
    setText(this._live, lost ? "disconnected" : snapshot.live && !ended ? "live" : "replay");
    this._live.classList.toggle("on", snapshot.live && !ended && !lost);
  }

  /** @param {number} t */
  draw(t) {
    const run = this.timeline.at(t);
    if (this.evs.grows) this.evs.grow();
    const chosen = this.choice?.kind === "ev" ? this.choice.ev.crosses : [];
    const name = this.choice && this.choice.kind !== "ev" ? this.choice.name : null;
    this.fabric.show(run, { path: this.hovered.length ? this.hovered : chosen, chosen: name });
    this.evs.show(run);
    this.tiles.show(run);
    this.truth.show(run);
    this.log.show(t);
    this.detail.show(run);
  }

  /** Shows packets, in place of the dashes. @param {number} t */
  slow(t) {
    document.documentElement.classList.add("slow");
    this.packets.show(t);
  }

  /** @param {number} t */
  plot(t) {
    const { choice, evs, timeline } = this;
    const name = choice && choice.kind !== "ev" ? choice.name : "";
    const key = `${evs.flow} ${name}`;
    const now = `${key} ${t} ${timeline.records.length} ${this.times.unit}`;
    this.plots.show(t, key, now);
  }
}

const FRAME_MS = 40;
const PLOT_MS = 100;
const STILL = matchMedia("(prefers-reduced-motion: reduce)");

/**
 * Lets time pass. What is shown is changed only where it differs: a browser on the machine of an
 * emulated run takes its CPUs.
 * @param {Page} page
 */
function play(page) {
  let drawn = -Infinity;
  let plotted = -Infinity;
  let signature = "";
  const frame = (/** @type {number} */ clock) => {
    requestAnimationFrame(frame);
    if (clock - drawn < FRAME_MS) return;
    drawn = clock;
    const { player, timeline, times, choice, hovered, evs } = page;
    const t = player.tick(clock);
    const now = [timeline.count(t), times.unit, JSON.stringify(choice), hovered.join(), evs.flow].join();
    if (page.packets.some) {
      if (player.playing && STILL.matches) page.packets.hide(); // packets are shown where time stands
      else page.slow(t);
    }
    page.report.follow(timeline.latest);
    if (now !== signature) page.draw(t);
    signature = now;
    if (clock - plotted < PLOT_MS) return;
    plotted = clock;
    page.plot(t);
  };
  requestAnimationFrame(frame);
}

async function start() {
  const records = await embedded();
  if (records !== null) {
    const [first, ...others] = records;
    const page = new Page(first, "watch");
    for (const record of others) page.timeline.append(record);
    page.connection(true);
    play(page);
    return;
  }
  const offer = document.documentElement.dataset.offer ?? "watch";
  /** @type {Page | null} */
  let page = null;
  follow((record) => {
    if (page === null) {
      page = new Page(record, offer);
      page.connection(true);
      play(page);
    } else page.timeline.append(record);
    if (record.type === "end") page.connection(true);
  }, (connected) => page?.connection(connected));
}

start().catch((error) => setText(byId("description"), `This page cannot show the run: ${error}`));
