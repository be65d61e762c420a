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
  if (impairment.penalty) said.push(`busy: takes ${impairment.penalty}/128 of windows`);
  if (impairment.refusal) said.push(`busy: refuses ${share(impairment.refused ?? 1)} (${impairment.refusal})`);
  if (impairment.skipped_path) said.push(`busy: asks to leave ${impairment.skipped_path}`);
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
  const worst = LOOKS.find((name) => looks.some((each) => each === name)) ?? null;
  return { worst, words: impairments.map(({ impairment }) => words(impairment)).join(" + ") };
}

/**
 * The evidence for a fault, as the controller read it back, in words.
 * @param {Record<string, any>} proof
 */
export function proofWords(proof) {
  return Object.entries(proof).map(([name, value]) => {
    const what = name.replaceAll("_", " ");
    if (name === "carrier") return value ? "carrier at both ends, read back" : "no carrier at both ends, read back";
    if (name === "read_back") {
      if (Object.keys(value).length === 0) return "the links' state, read back";
      return `the links' state, read back (${few(Object.entries(value).map(([part, of]) => `${part} ${[of].flat().join(", ")}`))})`;
    }
    if (name === "packets_hit") {
      const hit = Object.values(value).reduce((sum, count) => sum + count, 0);
      return `${hit} packets hit`;
    }
    if (value !== null && typeof value === "object") {
      if (Object.keys(value).length === 0) return "";
      const parts = Array.isArray(value) ? value.map(String) : Object.entries(value).map(([part, of]) => `${part} ${short(of)}`);
      return `${what} (${few(parts)})`;
    }
    return `${what} ${value}`;
  }).filter(Boolean).join("; ");
}

/** @param {string[]} parts */
function few(parts) {
  return parts.length <= 4 ? parts.join(", ") : `${parts.slice(0, 4).join(", ")} and ${parts.length - 4} more`;
}

/** @param {any} value */
function short(value) {
  return value !== null && typeof value === "object" ? JSON.stringify(value).replaceAll('"', "") : String(value);
}
