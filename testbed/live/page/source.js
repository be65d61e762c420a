// Where the records come from: the page itself, or the server.

/** @import { StreamRecord } from "live/records.js" */

/**
 * The lines that an exported page carries, or null.
 * @returns {Promise<StreamRecord[] | null>}
 */
export async function embedded() {
  const element = document.getElementById("stream");
  if (element === null) return null;
  const packed = Uint8Array.from(atob(element.textContent ?? ""), (char) => char.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const text = await new Response(unpacked).text();
  return text.trimEnd().split("\n").map((line) => JSON.parse(line));
}

/**
 * Follows the stream of the server; the browser reconnects by itself and asks for what it missed.
 * @param {(record: StreamRecord) => void} take
 * @param {(connected: boolean) => void} connection
 */
export function follow(take, connection) {
  let next = 0;
  const events = new EventSource("events");
  events.onopen = () => connection(true);
  events.onerror = () => connection(false);
  events.onmessage = (event) => {
    /** @type {StreamRecord} */
    const record = JSON.parse(event.data);
    if (record.id < next) return;
    next = record.id + 1;
    take(record);
    if (record.type === "end") events.close();
  };
}
