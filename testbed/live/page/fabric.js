// The fabric as SVG: planes as bands, T1s above T0s above hosts. Each link has two lines, one for each
// direction; their width is the load. Every node and link can be reached by keyboard.

/** @import { Snapshot, LinkEnds, LinkMeasures, NodePlace } from "live/records.js" */
/** @import { RunState } from "live/timeline.js" */
import { setAttribute, setText, svg } from "live/dom.js";
import { together } from "live/faults.js";
import { bytes, percent } from "live/format.js";
import { machineOf } from "live/records.js";
import { impaired } from "live/timeline.js";

const UNIT = 54; // pixels for one pitch of switches
const LEAST_HEIGHT = 132; // pixels for one unit of height
const FLATTEST = 2.1; // a wide fabric is drawn higher, so that its lines can be told apart
const BOX = { host: [40, 26], t0: [46, 26], t1: [46, 26] };
const MANY_LINKS = 300; // beyond it no dashes move, and widths change in steps
const WIDEST = 6;
const APART = 3.2; // between the two directions of a link

/**
 * @typedef {object} Line one direction of a link
 * @property {string} direction
 * @property {SVGPathElement} path
 * @property {SVGPathElement | null} dashes
 * @property {SVGCircleElement} queue
 * @property {LinkMeasures} [seen] what it shows: nothing is done where that is the same object
 */

export class Fabric {
  /**
   * @param {HTMLElement} root
   * @param {Snapshot} snapshot
   * @param {(kind: "node" | "link", name: string, cuts: boolean) => void} choose
   */
  constructor(root, snapshot, choose) {
    this.snapshot = snapshot;
    this._choose = choose;
    /** @type {Map<string, NodePlace>} */
    this._nodes = new Map(snapshot.nodes.map((node) => [node.name, node]));
    /** @type {Line[]} */ this._lines = [];
    this._marks = "";
    /** @type {Map<string, {link: LinkEnds, group: SVGGElement, text: SVGTextElement, up?: LinkMeasures, down?: LinkMeasures}>} */
    this._links = new Map();
    /** @type {Map<string, SVGGElement>} */ this._boxes = new Map();
    /** @type {Element | null} */ this._focusable = null;
    const { nodes } = snapshot;
    this._top = Math.max(...nodes.map((node) => node.y));
    const right = Math.max(...nodes.map((node) => node.x)) * UNIT;
    this._height = Math.max(LEAST_HEIGHT, right / FLATTEST / this._top);
    this._many = snapshot.links.length > MANY_LINKS;
    this._build(root);
  }

  /** Adds a layer above the links, below the nodes. @param {SVGElement} layer */
  add(layer) {
    this._picture?.insertBefore(layer, this._picture.querySelector(".nodes"));
  }

  /** The line of a link direction. @param {string} direction @returns {SVGPathElement} */
  wire(direction) {
    const line = this._lines.find((known) => known.direction === direction);
    if (line === undefined) throw new Error(`no link direction ${direction}`);
    return line.path;
  }

  /** @param {NodePlace} node */
  _place(node) {
    return { x: node.x * UNIT, y: (this._top - node.y) * this._height };
  }

  /** @param {HTMLElement} root */
  _build(root) {
    const { nodes, links, planes } = this.snapshot;
    const right = Math.max(...nodes.map((node) => node.x)) * UNIT;
    const width = right + 80;
    const height = this._top * this._height + 104;
    const picture = svg("svg", {
      viewBox: `-40 -58 ${width} ${height}`, role: "group",
      "aria-label": "The fabric. Arrow keys move between nodes and links.",
    });
    if (this._many) picture.classList.add("many");
    else picture.style.minWidth = `${Math.min(width * 0.6, 1400)}px`;
    for (let plane = 0; plane < planes; plane++) picture.append(this._band(plane));
    if (this.snapshot.nics_per_node > 1) picture.append(...this._machines());
    const wires = svg("g", { class: "links" });
    const labels = svg("g", { class: "labels", "aria-hidden": "true" });
    for (const link of links) wires.append(this._link(link, labels));
    const boxes = svg("g", { class: "nodes" });
    for (const node of nodes) boxes.append(this._node(node));
    picture.append(wires, boxes, labels);
    root.replaceChildren(picture);
    this._picture = picture;
    picture.addEventListener("keydown", (event) => this._move(event));
    this._rove(this._boxes.get(nodes[0].name) ?? null);
  }

  /** @param {number} plane */
  _band(plane) {
    const members = this.snapshot.nodes.filter((node) => node.tier !== "host" && node.plane === plane);
    const xs = members.map((node) => node.x * UNIT);
    const ys = members.map((node) => (this._top - node.y) * this._height);
    const left = Math.min(...xs) - 31;
    const top = Math.min(...ys) - 46;
    const band = { width: Math.max(...xs) + 31 - left, height: Math.max(...ys) + 26 - top };
    const group = svg("g", { class: `band plane${plane}`, role: "button", tabindex: -1, "aria-label": `plane ${plane}` },
      svg("rect", { x: left, y: top, ...band, rx: 12 }),
      svg("text", { x: left + 12, y: top + 18 }, `plane ${plane}`));
    const name = `p${plane}`;
    group.dataset.name = name;
    this._boxes.set(name, group);
    this._nodes.set(name, { name, tier: "t1", plane, x: left / UNIT, y: this._top - top / this._height });
    this._interact(group, "node", name);
    return group;
  }

  /** The nodes with several NICs, each a band around its hosts. */
  _machines() {
    const hosts = this.snapshot.nodes.filter(({ tier }) => tier === "host");
    const names = new Set(hosts.map(({ name }) => machineOf(this.snapshot, name)));
    return [...names].map((name) => {
      const xs = hosts.filter((host) => machineOf(this.snapshot, host.name) === name).map(({ x }) => x * UNIT);
      const [left, right, bottom] = [Math.min(...xs) - 25, Math.max(...xs) + 25, this._top * this._height];
      const group = svg("g", { class: "band machine", role: "button", tabindex: -1, "aria-label": `node ${name}` },
        svg("rect", { x: left, y: bottom - 19, width: right - left, height: 54, rx: 12 }),
        svg("text", { x: left + 12, y: bottom + 29 }, name));
      group.dataset.name = name;
      this._boxes.set(name, group);
      this._nodes.set(name, { name, tier: "host", plane: 0, x: left / UNIT, y: -29 / this._height });
      this._interact(group, "node", name);
      return group;
    });
  }

  /** @param {LinkEnds} link @param {SVGGElement} labels */
  _link(link, labels) {
    const group = svg("g", { class: `link plane${link.plane}`, role: "button", tabindex: -1 });
    group.dataset.name = link.name;
    const { curve, middle, slope } = this._course(link);
    group.append(svg("path", { class: "hit", d: curve(0) }));
    const ends = [[link.lower, link.upper, -1], [link.upper, link.lower, 1]];
    for (const [from, to, side] of /** @type {[string, string, number][]} */ (ends)) {
      const path = svg("path", { class: "wire", d: curve(side * APART / 2, side > 0) });
      const dashes = this._many ? null : svg("path", { class: "traffic", d: curve(side * APART / 2, side > 0) });
      const start = path.getAttribute("d")?.match(/-?[\d.]+/g) ?? [];
      const queue = svg("circle", { class: "queue", cx: start[0], cy: start[1], r: 0 });
      group.append(path, ...(dashes ? [dashes] : []), queue);
      this._lines.push({ direction: `${from}>${to}`, path, dashes, queue });
    }
    const text = svg("text", { class: "state", x: middle.x + slope * 8, y: middle.y });
    labels.append(text);
    this._links.set(link.name, { link, group, text });
    this._interact(group, "link", link.name);
    return group;
  }

  /** The curve of a link, moved sideways, and reversed for the way down. @param {LinkEnds} link */
  _course(link) {
    const lower = /** @type {NodePlace} */ (this._nodes.get(link.lower));
    const upper = /** @type {NodePlace} */ (this._nodes.get(link.upper));
    const from = this._place(lower);
    const to = this._place(upper);
    if (lower.tier === "host") {
      from.x += this._port(link.plane);
    }
    from.y -= BOX[lower.tier][1] / 2;
    to.y += BOX[upper.tier][1] / 2;
    const bend = (from.y - to.y) * (lower.tier === "host" ? 0.5 : 0.3);
    /** @param {number} aside @param {boolean} [down] */
    const curve = (aside, down = false) => {
      const [a, b] = [`${from.x + aside} ${from.y}`, `${to.x + aside} ${to.y}`];
      const [p, q] = [`${from.x + aside} ${from.y - bend}`, `${to.x + aside} ${to.y + bend}`];
      return down ? `M${b}C${q} ${p} ${a}` : `M${a}C${p} ${q} ${b}`;
    };
    const middle = { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 };
    return { curve, middle, slope: Math.sign(to.x - from.x) };
  }

  /** Where on a host's upper edge the port of a plane is. @param {number} plane */
  _port(plane) {
    const { planes } = this.snapshot;
    return planes === 1 ? 0 : (plane / (planes - 1) - 0.5) * 28;
  }

  /** @param {NodePlace} node */
  _node(node) {
    const { x, y } = this._place(node);
    const [width, height] = BOX[node.tier];
    const plane = node.tier === "host" ? "" : ` plane${node.plane}`;
    const group = svg("g", {
      class: `node ${node.tier}${plane}`, role: "button", tabindex: -1,
      transform: `translate(${x} ${y})`,
    }, svg("rect", { x: -width / 2, y: -height / 2, width, height, rx: node.tier === "host" ? 10 : 4 }),
    svg("text", {}, node.tier === "host" ? node.name : node.name.replace(/^p\d_/, "")));
    group.dataset.name = node.name;
    setAttribute(group, "aria-label", node.name);
    this._boxes.set(node.name, group);
    this._interact(group, "node", node.name);
    return group;
  }

  /** @param {SVGGElement} group @param {"node" | "link"} kind @param {string} name */
  _interact(group, kind, name) {
    group.addEventListener("click", (event) => {
      this._rove(group);
      this._choose(kind, name, event.shiftKey);
    });
    group.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      event.stopPropagation();
      this._choose(kind, name, event.shiftKey);
    });
  }

  // --- keyboard: one stop of the tab key; arrows move to the nearest in their direction ---------

  /** @param {Element | null} element */
  _rove(element) {
    this._focusable?.setAttribute("tabindex", "-1");
    element?.setAttribute("tabindex", "0");
    this._focusable = element;
  }

  /** @param {KeyboardEvent} event */
  _move(event) {
    const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const way = ways[/** @type {keyof typeof ways} */ (event.key)];
    if (way === undefined || this._focusable === null) return;
    event.preventDefault();
    event.stopPropagation();
    const here = this._middle(this._focusable);
    let nearest = null;
    let least = Infinity;
    const places = [...this._boxes.values(), ...[...this._links.values()].map(({ group }) => group)];
    for (const place of places) {
      if (place === this._focusable) continue;
      const { x, y } = this._middle(place);
      const along = (x - here.x) * way[0] + (y - here.y) * way[1];
      const across = Math.abs((x - here.x) * way[1]) + Math.abs((y - here.y) * way[0]);
      if (along < 1) continue;
      const distance = along + (way[0] ? 20 : 1) * across;
      if (distance < least) [least, nearest] = [distance, place];
    }
    if (nearest === null) return;
    this._rove(nearest);
    /** @type {SVGElement} */ (nearest).focus();
  }

  /** @param {Element} element */
  _middle(element) {
    const name = /** @type {SVGElement} */ (element).dataset.name ?? "";
    const node = this._nodes.get(name);
    if (node) return this._place(node);
    const { link } = /** @type {any} */ (this._links.get(name));
    return this._course(link).middle;
  }

  // --- the state ---------------------------------------------------------------------------------

  /**
   * @param {RunState} run
   * @param {{path: string[], chosen: string | null}} marked directions of a path, and a name
   */
  show(run, marked) {
    const places = impaired(run);
    const marks = `${Object.keys(places)} ${Object.values(run.faults).map(({ id }) => id)} ${marked.path} ${marked.chosen}`;
    const anew = marks !== this._marks;
    this._marks = marks;
    for (const line of this._lines) {
      const { direction, path, dashes, queue } = line;
      if (!anew && line.seen === run.links[direction]) continue;
      line.seen = run.links[direction];
      const { load = 0, queue_bytes: waiting = 0 } = run.links[direction] ?? {};
      const width = load < 0.005 ? 1 : 1.2 + load * (WIDEST - 1.2);
      setAttribute(path, "stroke-width", (this._many ? Math.round(2 * width) / 2 : width).toFixed(1));
      const { worst } = together(places[direction] ?? []);
      const classes = `wire${worst ? ` ${worst}` : ""}${load < 0.02 ? " idle" : ""}`;
      setAttribute(path, "class", classes);
      if (dashes) setAttribute(dashes, "class", load < 0.02 ? "traffic none" : "traffic");
      setAttribute(queue, "r", waiting < 4096 ? 0 : Math.min(2 + Math.sqrt(waiting / 4096), 9).toFixed(1));
    }
    const path = new Set(marked.path);
    for (const [name, shown] of this._links) {
      const { link, group, text } = shown;
      const ways = [`${link.lower}>${link.upper}`, `${link.upper}>${link.lower}`];
      const [up, down] = ways.map((way) => run.links[way]);
      if (!anew && shown.up === up && shown.down === down) continue;
      [shown.up, shown.down] = [up, down];
      const { worst, words } = together(ways.flatMap((way) => places[way] ?? []).slice(0, 1));
      const oneWay = worst && ways.some((way) => !places[way]) ? " (one way)" : "";
      setText(text, worst ? `${words}${oneWay}` : "");
      setAttribute(text, "class", `state ${worst ?? ""}`);
      const classes = ["link", `plane${link.plane}`];
      if (ways.some((way) => path.has(way))) classes.push("on-path");
      if (path.size > 0) classes.push("beside");
      if (name === marked.chosen) classes.push("chosen");
      setAttribute(group, "class", classes.join(" "));
      setAttribute(group, "aria-label", this._inWords(run, name, ways, words + oneWay));
    }
    for (const [name, group] of this._boxes) group.classList.toggle("chosen", name === marked.chosen);
  }

  /** @param {RunState} run @param {string} name @param {string[]} ways @param {string} state */
  _inWords(run, name, ways, state) {
    const [up, down] = ways.map((way) => percent(run.links[way]?.load ?? 0));
    const waiting = Math.max(...ways.map((way) => run.links[way]?.queue_bytes ?? 0));
    const queue = waiting >= 4096 ? `, queue ${bytes(waiting)}` : "";
    return `link ${name}: ${state || "in order"}, up ${up}, down ${down}${queue}`;
  }
}
