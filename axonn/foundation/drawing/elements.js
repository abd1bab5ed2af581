"use strict";

// Elements of a page and marks of its curves, for the pages of axonn board and of memorization.

const kSvg = "http://www.w3.org/2000/svg";  // a name; nothing is loaded from there

const byId = (id) => document.getElementById(id);

// Control characters become their pictures (U+2400 to U+2421), characters that HTML forbids U+FFFD.
function visible(text) {
  return text
    .replace(/[\x00-\x08\x0b-\x1f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
    .replace(/\x7f/g, "\u2421")
    .replace(/[\x80-\x9f\ufdd0-\ufdef\ufffe\uffff]/g, "\ufffd");
}

// Sets attributes (numbers with two decimals; not those that are undefined) and appends children:
// nodes, or texts. Texts become text nodes only, so none of them is read as markup.
function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes))
    if (value !== undefined)
      node.setAttribute(key, typeof value === "number" ? +value.toFixed(2) : value);
  node.append(...children.map((one) => typeof one === "string" ? visible(one) : one));
  return node;
}

const html = (name, attributes = {}, ...children) =>
  filled(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) =>
  filled(document.createElementNS(kSvg, name), attributes, children);

const count = (number) => number.toLocaleString("en-US");

// A mark at (x, y) in one of four shapes: circle, square, triangle, diamond.
function mark(shape, x, y, classes = "") {
  const shapes = ["m-4.2 0a4.2 4.2 0 1 0 8.4 0a4.2 4.2 0 1 0-8.4 0z", "m-3.9-3.9h7.8v7.8h-7.8z",
    "m0-5.2 4.7 8.4h-9.4z", "m0-5.4 5.4 5.4-5.4 5.4-5.4-5.4z"];
  return svg("path", {class: `mark ${classes}`.trim(),
    d: `M${x.toFixed(1)} ${y.toFixed(1)}${shapes[shape]}`});
}
