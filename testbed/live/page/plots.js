// Goodput, window and queue over time, by uPlot.

/** @import { Timeline } from "live/timeline.js" */
/** @import { Times } from "live/format.js" */
import { html } from "live/dom.js";

/** @type {any} */
const uPlot = /** @type {any} */ (globalThis).uPlot;

/**
 * @typedef {{label: string, colour: string, values: number[], dash?: number[]}} Curve
 * @typedef {{title: string, unit: string, scale: number, curves: () => Curve[]}} Plot
 */

export class Plots {
  /**
   * @param {HTMLElement} root
   * @param {Timeline} timeline
   * @param {Times} times
   * @param {Plot[]} plots
   * @param {(t: number) => void} seek
   */
  constructor(root, timeline, times, plots, seek) {
    this.timeline = timeline;
    this.times = times;
    this._seek = seek;
    this._t = 0;
    this._key = "";
    this._drawn = "";
    this._plots = plots.map((plot) => {
      const title = html("h2", {}, plot.title);
      const legend = html("ul", { class: "legend" });
      const place = html("div", { class: "plot", role: "img", "aria-label": plot.title });
      root.append(html("figure", {}, html("figcaption", { class: "bar" }, title, legend), place));
      return { plot, place, legend, chart: /** @type {any} */ (null) };
    });
    new ResizeObserver(() => (this._key = "")).observe(root);
  }

  /**
   * @param {number} t
   * @param {string} key of what is plotted: another one builds the plots anew
   * @param {string} now nothing is done where it is the same as before
   */
  show(t, key, now) {
    this._t = t;
    const style = getComputedStyle(document.documentElement);
    const { series, end } = this.timeline;
    const look = `${key} ${this.times.unit} ${style.getPropertyValue("--text")} ${end}`;
    const anew = look !== this._key;
    if (!anew && now === this._drawn) return;
    this._drawn = now;
    this._key = look;
    for (const shown of this._plots) {
      const curves = shown.plot.curves();
      if (anew) this._build(shown, curves, style);
      if (anew || this._length !== series.t.length) shown.chart.setData(this._data(shown.plot, curves));
      else shown.chart.redraw(false, false);
    }
    this._length = series.t.length;
  }

  /** @param {Plot} plot @param {Curve[]} curves */
  _data(plot, curves) {
    const { t } = this.timeline.series;
    return [t, ...curves.map(({ values }) => values.map((value) => value / plot.scale))];
  }

  /** @param {any} shown @param {Curve[]} curves @param {CSSStyleDeclaration} style */
  _build(shown, curves, style) {
    shown.chart?.destroy();
    shown.legend.replaceChildren(...curves.map(({ label, colour, dash }) => {
      const sign = html("i", dash ? { class: "dashed" } : {});
      sign.style.color = colour;
      return html("li", {}, sign, label);
    }));
    const axis = {
      stroke: style.getPropertyValue("--muted"), font: "11px system-ui, sans-serif",
      grid: { stroke: style.getPropertyValue("--line"), width: 1 }, ticks: { show: false },
    };
    const factor = this.times.factor;
    const options = {
      width: Math.max(shown.place.clientWidth, 200), height: 150, legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      scales: { x: { time: false, range: () => [0, this.timeline.end] }, y: { range: (/** @type {any} */ _, /** @type {number} */ _low, /** @type {number} */ high) => [0, (high || 1) * 1.08] } },
      axes: [
        { ...axis, size: 24, label: this.times.label, labelSize: 16, labelFont: axis.font,
          values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map((tick) => Number((tick * factor).toPrecision(4))) },
        { ...axis, size: 44, label: shown.plot.unit, labelSize: 14, labelFont: axis.font },
      ],
      series: [{}, ...curves.map(({ colour, dash }) => ({ stroke: colour, dash, width: 1.6, points: { show: false } }))],
      hooks: {
        drawClear: [(/** @type {any} */ chart) => this._shade(chart, style)],
        draw: [(/** @type {any} */ chart) => this._now(chart, style)],
      },
    };
    shown.chart = new uPlot(options, this._data(shown.plot, curves), shown.place);
    shown.chart.over.addEventListener("click", (/** @type {MouseEvent} */ event) => {
      this._seek(shown.chart.posToVal(event.offsetX, "x"));
    });
  }

  /** The times in which faults are in force. @param {any} chart @param {CSSStyleDeclaration} style */
  _shade(chart, style) {
    const { left, top, width, height } = chart.bbox;
    chart.ctx.save();
    chart.ctx.globalAlpha = 0.13;
    chart.ctx.fillStyle = style.getPropertyValue("--fault");
    /** @type {Map<number, number>} */
    const began = new Map();
    /** @param {number} from @param {number} to */
    const fill = (from, to) => {
      const [a, b] = [from, to].map((t) => Math.min(Math.max(chart.valToPos(t, "x", true), left), left + width));
      chart.ctx.fillRect(a, top, Math.max(b - a, 1), height);
    };
    for (const event of this.timeline.events) {
      if (event.type !== "fault") continue;
      const start = began.get(event.fault);
      if (event.phase === "in effect") began.set(event.fault, event.t);
      else if (event.phase === "healed" && start !== undefined) {
        fill(start, event.t);
        began.delete(event.fault);
      }
    }
    for (const start of began.values()) fill(start, this.timeline.end);
    chart.ctx.restore();
  }

  /** The time that is shown. @param {any} chart @param {CSSStyleDeclaration} style */
  _now(chart, style) {
    const { left, top, width, height } = chart.bbox;
    const x = chart.valToPos(this._t, "x", true);
    chart.ctx.save();
    chart.ctx.fillStyle = style.getPropertyValue("--card");
    chart.ctx.globalAlpha = 0.55;
    chart.ctx.fillRect(x, top, left + width - x, height);
    chart.ctx.globalAlpha = 1;
    chart.ctx.fillStyle = style.getPropertyValue("--accent");
    chart.ctx.fillRect(x - 1, top, 2 * devicePixelRatio, height);
    chart.ctx.restore();
  }
}
