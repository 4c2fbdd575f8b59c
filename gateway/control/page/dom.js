// Elements, and how those on the screen become others without losing focus or place. Text only ever becomes text: nothing here reads markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element. `css`: properties of its style; `on…`: listeners; what is false or undefined is left out. */
export const h = (name, attributes = {}, ...children) => made(document.createElement(name), attributes, children);
export const svg = (name, attributes = {}, ...children) => made(document.createElementNS(SVG, name), attributes, children);

function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "css") for (const [property, set] of Object.entries(value)) element.style.setProperty(property, set);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false && child !== "").map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

/** The children of `parent` become these. What is the same stays the same element; `data-key` names one that may move. */
export function show(parent, ...children) {
  const focused = document.activeElement;
  const wanted = document.createElement("template").content;
  wanted.append(...children.flat(Infinity).filter(Boolean));
  inward(parent, wanted);
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
}

function inward(parent, wanted) {
  const keyed = new Map([...parent.children].filter((child) => child.dataset.key).map((child) => [child.dataset.key, child]));
  let at = parent.firstChild;
  for (const want of [...wanted.childNodes]) {
    const key = want.dataset?.key;
    const have = key ? keyed.get(key) : at?.dataset?.key ? undefined : at;
    if (!have || !alike(have, want)) {
      parent.insertBefore(want, at);
      continue;
    }
    if (have === at) at = at.nextSibling;
    else parent.insertBefore(have, at);
    become(have, want);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

const alike = (one, other) => one.nodeType === other.nodeType && one.nodeName === other.nodeName;

function become(have, want) {
  if (have.nodeType === Node.TEXT_NODE) {
    if (have.data !== want.data) have.data = want.data;
    return;
  }
  for (const { name } of [...have.attributes]) if (name !== "style" && name !== "open" && !want.hasAttribute(name)) have.removeAttribute(name);
  for (const { name, value } of want.attributes) if (name !== "style" && name !== "open" && have.getAttribute(name) !== value) have.setAttribute(name, value);
  if (have.style.cssText !== want.style.cssText) have.style.cssText = want.style.cssText;
  inward(have, want);
}
