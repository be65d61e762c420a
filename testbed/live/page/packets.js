// Slow motion: the packets of one flow at a time, each placed by its recorded times of sending and arrival.
// Between these it moves evenly: where it was on the way, nobody recorded. A lost packet stays at its
// sender, as a ring, until it is declared lost.

/** @import { Packet } from "live/records.js" */
/** @import { Timeline } from "live/timeline.js" */
/** @import { Fabric } from "live/fabric.js" */
import { setAttribute, svg } from "live/dom.js";

/** @type {Record<string, number>} */ const RADIUS = { data: 3.6, nack: 3.4 };
const SMALL = 3; // of the other control packets
const POINTS = 200; // on a path: a step is less than the size of a packet

/** @typedef {{packet: Packet, way: {x: number, y: number}[]}} Placed a packet, and points at equal distances on its path */

/** @param {Placed[]} packets in order of sending @param {number} t */
function countSentBy(packets, t) {
  let low = 0;
  let high = packets.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (packets[middle].packet[2] <= t) low = middle + 1;
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
    /** @type {Placed[]} */ this._packets = [];
    /** @type {Map<string, {x: number, y: number}[]>} of the flow that is followed, by direction and EV */
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
      const batch = packets[this._read];
      for (const [name, directions] of Object.entries(batch.ways)) {
        this._ways.set(name, this._points(directions));
      }
      for (const packet of batch.packets) this._insert(packet);
    }
  }

  /** A batch has what became known in a step, so packets come a little out of order. @param {Packet} packet */
  _insert(packet) {
    const packets = this._packets;
    let place = packets.length;
    while (place > 0 && packets[place - 1].packet[2] > packet[2]) place--;
    const way = this._ways.get(`${packet[7] ? "back" : "there"}:${packet[1]}`) ?? [];
    packets.splice(place, 0, { packet, way });
    this._longest = Math.max(this._longest, packet[3] - packet[2]);
  }

  hide() {
    this._layer.replaceChildren();
  }

  /** @param {number} t */
  show(t) {
    this._take();
    const end = countSentBy(this._packets, t);
    let shown = 0;
    for (let index = countSentBy(this._packets, t - this._longest); index < end; index++) {
      const { packet, way } = this._packets[index];
      const [, , sent, until, fate, again, kind] = packet;
      if (until < t || way.length === 0) continue;
      const share = fate === "arrived" ? (t - sent) / (until - sent) : 0;
      const { x, y } = way[Math.min(Math.floor(share * POINTS), POINTS - 1)];
      const dot = this._layer.children[shown++] ?? this._layer.appendChild(svg("circle"));
      setAttribute(dot, "r", RADIUS[kind] ?? SMALL);
      setAttribute(dot, "cx", x.toFixed(1));
      setAttribute(dot, "cy", y.toFixed(1));
      setAttribute(dot, "class", [kind, again ? "again" : "", fate].join(" "));
    }
    while (this._layer.childElementCount > shown) this._layer.lastElementChild?.remove();
  }

  /** Points along a path, found once: a browser takes long to find one. @param {string[]} directions */
  _points(directions) {
    const wires = directions.map((direction) => this._fabric.wire(direction))
      .map((path) => ({ path, length: path.getTotalLength() }));
    const total = wires.reduce((sum, { length }) => sum + length, 0);
    return Array.from({ length: POINTS }, (_, index) => {
      let left = (total * index) / (POINTS - 1);
      for (const { path, length } of wires) {
        if (left <= length) return path.getPointAtLength(left);
        left -= length;
      }
      const last = wires[wires.length - 1];
      return last.path.getPointAtLength(last.length);
    }).map(({ x, y }) => ({ x, y }));
  }
}
