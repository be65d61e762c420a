// Numbers as people read them.

const PREFIXES = [
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

/**
 * Three significant digits, without an exponent.
 * @param {number} value
 */
export function digits(value) {
  if (value === 0) return "0";
  const magnitude = Math.floor(Math.log10(Math.abs(value)));
  return value.toFixed(Math.max(0, Math.min(6, 2 - magnitude)));
}

/**
 * @param {number} value
 * @param {string} unit
 */
function scaled(value, unit) {
  for (const [factor, prefix] of /** @type {[number, string][]} */ (PREFIXES)) {
    if (Math.abs(value) >= factor) return `${digits(value / factor)} ${prefix}${unit}`;
  }
  return `${digits(value)} ${unit}`;
}

/** @param {number} bps */
export const rate = (bps) => scaled(bps, "bit/s");

/** @param {number} count */
export const bytes = (count) => scaled(count, "B");

/** @param {number} share */
export const percent = (share) => `${Math.round(share * 100)}%`;

/** @typedef {"s" | "rtt" | "real"} TimeUnit */

/** Converts times of the run into the unit that the viewer has chosen. */
export class Times {
  /**
   * @param {number} baseRtt base RTT in seconds
   * @param {number} dilation
   */
  constructor(baseRtt, dilation) {
    this.baseRtt = baseRtt;
    this.dilation = dilation;
    /** @type {TimeUnit} */
    this.unit = "s";
  }

  /** The factor from seconds to the chosen unit. */
  get factor() {
    return { s: 1, rtt: 1 / this.baseRtt, real: 1e6 / this.dilation }[this.unit];
  }

  get label() {
    return { s: "s", rtt: "base RTTs", real: "µs at full speed" }[this.unit];
  }

  /**
   * A point in time.
   * @param {number} seconds
   */
  at(seconds) {
    const value = seconds * this.factor;
    return `${value.toFixed(this.unit === "s" ? 2 : this.unit === "rtt" ? 1 : 0)} ${
      { s: "s", rtt: "RTT", real: "µs" }[this.unit]
    }`;
  }

  /**
   * A length of time, in round trips and as it passed.
   * @param {number} seconds
   */
  length(seconds) {
    return `${digits(seconds / this.baseRtt)} RTT (${this.passed(seconds)})`;
  }

  /** @param {number} seconds */
  passed(seconds) {
    return seconds < 1 ? `${digits(seconds * 1e3)} ms` : `${digits(seconds)} s`;
  }

  /** @param {number} seconds */
  real(seconds) {
    return `${digits((seconds * 1e6) / this.dilation)} µs`;
  }
}
