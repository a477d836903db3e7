// Elements of the page. Text becomes text nodes, nothing is ever read as HTML.

/** An element with attributes and children; children that are null are left out. */
export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same in SVG. */
export function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Sets text only where it changes, so that selections stay and readers of screens say nothing twice. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
