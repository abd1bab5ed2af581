"use strict";

// Figures of a page as files, for the pages of axonn board and of memorization.

// The attributes that a figure's style sheet decides.
const kDrawn = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity",
  "font-size", "font-weight", "font-family", "text-anchor", "paint-order"];

// A copy of an SVG element that needs no style sheet.
function withStyles(node) {
  const copy = node.cloneNode(true), copies = [...copy.querySelectorAll("*")];
  [...node.querySelectorAll("*")].forEach((one, i) => {
    const style = getComputedStyle(one);
    for (const key of kDrawn)
      copies[i].setAttribute(key, style.getPropertyValue(key).replaceAll("\"", ""));
    for (const key of ["class", "style"]) copies[i].removeAttribute(key);
  });
  copy.removeAttribute("class");
  return copy;
}

// The head of a file: title, unit of the y axis, and keys of the curves: [sample or undefined,
// text]. Returns its nodes and its height.
function fileHead({title, unit = "", keys = []}, width) {
  const kLetter = 7, kSample = 40, kLine = 20, kLeft = 10;
  const text = (x, y, words, more) => svg("text", {x, y, fill: "#1d2126", "font-size": "13px",
    "font-family": "sans-serif", ...more}, words);
  const nodes = [text(kLeft, 20, title, {"font-size": "15px", "font-weight": "600"}),
    text(kLeft + 9 * title.length + 12, 20, unit, {fill: "#5b636d"})];
  let x = kLeft, y = 42;
  for (const [sample, words] of keys) {
    const wide = kSample + kLetter * words.length + 18;
    if (x > kLeft && x + wide > width) [x, y] = [kLeft, y + kLine];
    nodes.push(filled(withStyles(sample), {x, y: y - 10, width: 34, height: 12}, []),
      text(x + kSample, y, words));
    x += wide;
  }
  return {nodes, height: keys.length ? y + 12 : 34};
}

// The chart as the text of an SVG file with a head, in the colors of paper.
function standalone(chart, head) {
  const root = document.documentElement.classList;
  const [width, height] = chart.getAttribute("viewBox").split(" ").slice(2).map(Number);
  root.add("paper");
  const copy = withStyles(chart), {nodes, height: above} = fileHead(head, width);
  root.remove("paper");
  const back = svg("rect", {y: -above, width, height: height + above, fill: "#ffffff"});
  filled(copy, {xmlns: chart.namespaceURI, viewBox: `0 ${-above} ${width} ${height + above}`,
    width, height: height + above}, []);
  copy.prepend(back, ...nodes.map((node) => svg("g", {transform: `translate(0 ${-above})`}, node)));
  return new XMLSerializer().serializeToString(copy);
}

// A button that saves the text that make() gives as a file.
function saveButton(label, name, type, make) {
  const button = html("button", {type: "button", class: "save"}, label);
  button.addEventListener("click", () => {
    const link = html("a", {href: URL.createObjectURL(new Blob([make()], {type})), download: name});
    link.click();
    URL.revokeObjectURL(link.href);
  });
  return button;
}

// A button that saves the chart as NAME.svg; head() as for standalone().
const svgButton = (chart, name, head) =>
  saveButton("Save as SVG", `${name}.svg`, "image/svg+xml", () => standalone(chart, head()));
