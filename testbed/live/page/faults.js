// What is wrong with a link direction, in words and as a look.

/** @import { Impairment } from "live/records.js" */
import { percent } from "live/format.js";

/** The looks, the worst first: a class of the style sheet each. */
/** @type {string[]} */
export const LOOKS = ["cut", "blackhole", "lossy", "slow"];

/** @param {Impairment} impairment */
export function look(impairment) {
  if (impairment.cut) return "cut";
  if (impairment.blackhole || impairment.dead || impairment.frozen) return "blackhole";
  if (impairment.loss || impairment.corrupt || impairment.path_loss) return "lossy";
  return "slow";
}

/** @param {Impairment} impairment */
export function words(impairment) {
  /** @type {string[]} */
  const said = [];
  if (impairment.cut) said.push("cut");
  if (impairment.blackhole) said.push("blackhole");
  if (impairment.dead) said.push("dead");
  if (impairment.frozen) said.push("frozen");
  if (impairment.loss) said.push(`loss ${share(impairment.loss)}`);
  if (impairment.corrupt) said.push(`corrupt ${share(impairment.corrupt)}`);
  if (impairment.path_loss) said.push(`EV loss ${share(impairment.path_loss)}`);
  if (impairment.rate !== undefined) said.push(`rate ${percent(impairment.rate)}`);
  if (impairment.delay_ns) said.push(`delay +${impairment.delay_ns / 1e6} ms`);
  return said.join(", ");
}

/** @param {number} value */
function share(value) {
  return value < 0.01 ? `${Number((value * 100).toPrecision(2))}%` : percent(value);
}

/**
 * The worst look of several impairments, and all their words.
 * @param {{impairment: Impairment}[]} impairments
 */
export function together(impairments) {
  const looks = impairments.map(({ impairment }) => look(impairment));
  const worst = LOOKS.find((name) => looks.some((found) => found === name)) ?? null;
  return { worst, words: impairments.map(({ impairment }) => words(impairment)).join(" + ") };
}
