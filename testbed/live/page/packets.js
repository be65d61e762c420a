// Slow motion: the data packets of one flow, each placed by its recorded times of sending and arrival.
// Between these it moves evenly: where it was on the way, nobody recorded. A lost packet stays at its
// sender, as a ring, until it is declared lost.

/** @import { Packet } from "live/records.js" */
/** @import { Timeline } from "live/timeline.js" */
/** @import { Fabric } from "live/fabric.js" */
import { setAttribute, svg } from "live/dom.js";

const RADIUS = 3.4;

/** @param {Packet[]} packets in order of sending @param {number} t */
function countSentBy(packets, t) {
  let low = 0;
  let high = packets.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (packets[middle][2] <= t) low = middle + 1;
    else high = middle;
  }
  return low;
}

export class Packets {
  /** @param {Timeline} timeline @param {Fabric} fabric */
  constructor(timeline, fabric) {
    this._timeline = timeline;
    this._fabric = fabric;
    this._layer = svg("g", { class: "packets", "aria-hidden": "true" });
    fabric.add(this._layer);
    /** @type {Packet[]} */ this._packets = [];
    /** @type {Map<number, {path: SVGPathElement, length: number}[]>} by EV */
    this._ways = new Map();
    this._read = 0;
    this._longest = 0;
  }

  /** Whether there are any. */
  get some() {
    this._take();
    return this._packets.length > 0;
  }

  _take() {
    const { packets } = this._timeline;
    for (; this._read < packets.length; this._read++) {
      this._flow = packets[this._read].flow;
      for (const packet of packets[this._read].packets) {
        this._packets.push(packet);
        this._longest = Math.max(this._longest, packet[3] - packet[2]);
      }
    }
  }

  /** @param {number} ev */
  _way(ev) {
    let way = this._ways.get(ev);
    if (way === undefined) {
      const path = this._timeline.snapshot.evs.find((known) => known.flow === this._flow && known.ev === ev);
      way = (path?.crosses ?? []).map((direction) => this._fabric.wire(direction))
        .map((wire) => ({ path: wire, length: wire.getTotalLength() }));
      this._ways.set(ev, way);
    }
    return way;
  }

  /** @param {number} t */
  show(t) {
    this._take();
    const end = countSentBy(this._packets, t);
    let shown = 0;
    for (let index = countSentBy(this._packets, t - this._longest); index < end; index++) {
      const [, ev, sent, until, fate, again] = this._packets[index];
      if (until < t) continue;
      const way = this._way(ev);
      if (way.length === 0) continue;
      const share = fate === "arrived" ? (t - sent) / (until - sent) : 0;
      const { x, y } = this._point(way, share);
      const dot = this._layer.children[shown++] ?? this._layer.appendChild(svg("circle", { r: RADIUS }));
      setAttribute(dot, "cx", x.toFixed(1));
      setAttribute(dot, "cy", y.toFixed(1));
      setAttribute(dot, "class", fate === "arrived" ? (again ? "again" : "") : "lost");
    }
    while (this._layer.childElementCount > shown) this._layer.lastElementChild?.remove();
  }

  /** @param {{path: SVGPathElement, length: number}[]} way @param {number} share */
  _point(way, share) {
    let left = share * way.reduce((sum, { length }) => sum + length, 0);
    for (const { path, length } of way) {
      if (left <= length) return path.getPointAtLength(left);
      left -= length;
    }
    const last = way[way.length - 1];
    return last.path.getPointAtLength(last.length);
  }
}
