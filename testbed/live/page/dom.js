// Makes elements. Text is always set as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** @typedef {Record<string, string | number | boolean | null | undefined>} Attributes */
/** @typedef {(Node | string)[]} Children */

/**
 * @param {Element} element
 * @param {Attributes} attributes
 * @param {Children} children
 */
function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children);
  return element;
}

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Attributes} [attributes]
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function html(tag, attributes = {}, ...children) {
  return /** @type {any} */ (filled(document.createElement(tag), attributes, children));
}

/**
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {Attributes} [attributes]
 * @param {...(Node | string)} children
 * @returns {SVGElementTagNameMap[K]}
 */
export function svg(tag, attributes = {}, ...children) {
  return /** @type {any} */ (filled(document.createElementNS(SVG, tag), attributes, children));
}

/** The shapes of buttons: no font has them everywhere. */
const ICONS = {
  play: "M3 1.5v13l11-6.5z",
  pause: "M2.5 1.5h4v13h-4zM9.5 1.5h4v13h-4z",
  back: "M2 1.5h2.4v13H2zM14 1.5v13L5.4 8z",
  on: "M11.6 1.5H14v13h-2.4zM2 1.5v13L10.6 8z",
};

/** @param {keyof typeof ICONS} name */
export function icon(name) {
  return svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
}

/**
 * The element of the page with this id.
 * @param {string} id
 * @returns {any}
 */
export function byId(id) {
  const element = document.getElementById(id);
  if (element === null) throw new Error(`the page has no #${id}`);
  return element;
}

/**
 * Sets text only where it changes, so that nothing is laid out again.
 * @param {Node} node
 * @param {string} text
 */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * @param {Element} element
 * @param {string} name
 * @param {string | number | null} value
 */
export function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}
