// Time: play, pause, scrub, speed, and back to now.

/** @import { Timeline } from "live/timeline.js" */
/** @import { Times } from "live/format.js" */
import { html, icon, setAttribute, setText } from "live/dom.js";

const SPEEDS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10];
const LAG_S = 0.25; // behind the newest record of a live run, so that time runs smoothly
const SLOW_LAG_RTTS = 1.2; // in slow motion: what became of a packet is known when it has arrived

export class Player {
  /**
   * @param {HTMLElement} root
   * @param {Timeline} timeline
   * @param {Times} times
   */
  constructor(root, timeline, times) {
    this._root = root;
    this.timeline = timeline;
    this.times = times;
    this.t = 0;
    this.speed = 1;
    this.playing = true;
    this.follows = timeline.snapshot.live;
    this._clock = 0;
    const { slow_motion: slow, base_rtt_s: rtt } = timeline.snapshot;
    this._lag = slow ? Math.max(LAG_S, SLOW_LAG_RTTS * rtt) : LAG_S;
    /** @type {boolean | null} */ this._shownPlaying = null;
    this._markedEnd = 0;
    /** @param {string} label @param {string} keys @param {() => void} act */
    const button = (label, keys, act) => {
      const made = html("button", { type: "button", title: `${label} (${keys})`, "aria-label": label });
      made.addEventListener("click", act);
      return made;
    };
    this._play = button("Play", "space", () => this.toggle());
    this._play.className = "play";
    const back = button("Step back", "←", () => this.step(-1));
    back.append(icon("back"));
    const on = button("Step forward", "→", () => this.step(1));
    on.append(icon("on"));
    this._slider = html("input", {
      type: "range", min: 0, step: this.timeline.snapshot.step_s / 10, "aria-label": "Time of the run",
    });
    this._slider.addEventListener("input", () => this.seek(Number(this._slider.value)));
    this._marks = html("div", { class: "marks", "aria-hidden": "true" });
    this._now = html("output", { class: "now" });
    this._speed = html("select", { "aria-label": "Speed", title: "Speed (- and +)" });
    for (const speed of SPEEDS) {
      this._speed.append(html("option", { value: speed, selected: speed === 1 }, `${speed}×`));
    }
    this._speed.addEventListener("change", () => this.setSpeed(Number(this._speed.value)));
    this._live = button("Now", "l", () => this.follow());
    this._live.className = "live";
    this._live.append("Now");
    this._live.hidden = !this.timeline.snapshot.live;
    root.append(
      back, this._play, on,
      html("div", { class: "track" }, this._marks, this._slider),
      this._now, this._speed, this._live,
    );
    this._marked = 0;
  }

  /** Adds controls that concern the time that is shown. @param {HTMLElement[]} controls */
  append(...controls) {
    this._root.append(...controls);
  }

  toggle() {
    if (!this.playing && this.t >= this.timeline.end) this.t = 0;
    this.playing = !this.playing;
    if (!this.playing) this.follows = false;
  }

  /** @param {number} steps */
  step(steps) {
    this.seek(this.t + steps * this.timeline.snapshot.step_s);
    this.playing = false;
  }

  /** @param {number} t */
  seek(t) {
    this.t = Math.min(Math.max(t, 0), this.timeline.snapshot.live ? this.timeline.last : this.timeline.end);
    this.follows = false;
  }

  follow() {
    this.follows = this.timeline.snapshot.live;
    this.playing = true;
    this.setSpeed(1);
    if (this.follows) this.t = Math.max(this.timeline.last - this._lag, 0);
  }

  /** @param {number} speed */
  setSpeed(speed) {
    this.speed = speed;
    this._speed.value = String(speed);
  }

  /** @param {number} places */
  faster(places) {
    const index = Math.max(SPEEDS.indexOf(this.speed), 0) + places;
    this.setSpeed(SPEEDS[Math.min(Math.max(index, 0), SPEEDS.length - 1)]);
    if (this.speed !== 1) this.follows = false;
  }

  /**
   * Lets time pass. Returns the time of the run to show.
   * @param {number} clock of the page, in milliseconds
   */
  tick(clock) {
    const passed = Math.min((clock - this._clock) / 1000, 0.5);
    this._clock = clock;
    const { last, end, ended, snapshot } = this.timeline;
    if (this.playing) {
      this.t += passed * this.speed;
      if (this.follows && !ended) {
        const behind = last - this.t;
        if (behind > this._lag + 2 * LAG_S || behind < this._lag - LAG_S) this.t = Math.max(last - this._lag, 0);
      }
      const limit = snapshot.live ? last : end;
      if (this.t >= limit) {
        this.t = limit;
        if (ended || !snapshot.live) this.playing = false;
      }
    }
    this._show();
    return this.t;
  }

  _show() {
    const { end, events } = this.timeline;
    setAttribute(this._slider, "max", end);
    if (document.activeElement !== this._slider || this.playing) this._slider.value = String(this.t);
    setAttribute(this._slider, "aria-valuetext", this.times.at(this.t));
    if (this._shownPlaying !== this.playing) {
      this._shownPlaying = this.playing;
      this._play.replaceChildren(icon(this.playing ? "pause" : "play"));
      document.documentElement.classList.toggle("paused", !this.playing);
    }
    setAttribute(this._play, "aria-label", this.playing ? "Pause" : "Play");
    setText(this._now, `${this.times.at(this.t)} of ${this.times.at(end)}`);
    this._live.classList.toggle("on", this.follows);
    this._live.hidden = !this.timeline.snapshot.live || this.timeline.ended;
    if (this._markedEnd !== end) {
      this._marks.replaceChildren();
      this._marked = 0;
      this._markedEnd = end;
    }
    for (; this._marked < events.length; this._marked++) {
      const event = events[this._marked];
      const shown = event.type === "fault" && event.phase !== "requested" && event.phase !== "changed";
      if (!shown && event.type !== "detection") continue;
      const kind = event.type === "fault" ? event.phase.replace(" ", "-") : event.type;
      const mark = html("i", { class: kind });
      mark.style.left = `${(100 * event.t) / end}%`;
      this._marks.append(mark);
    }
  }
}
