// Tests the script of the memorization report (use/memorize/report/page.js) without a browser:
// node page_script_test.js FOLDER, with the pages that page_test.cpp wrote to FOLDER.
"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const test = require("node:test");
const vm = require("node:vm");

const {Node} = require("../../../support/page_node.js");

// Runs the scripts of a page. Returns the elements of the page by id, and the scripts' functions.
function open(page) {
  const text = fs.readFileSync(path.join(process.argv[2], page + ".html"), "utf8");
  const [, json] = text.match(/<script type="application\/json" id="report">(.*?)<\/script>/s);
  const scripts = [...text.matchAll(/<script>\n(.*?)<\/script>/gs)].map(([, script]) => script);
  assert.equal(scripts.length, 6);  // elements, figure_files, and four of the page
  const ids = {};
  for (const [, name, id] of text.split("<script")[0].matchAll(/<(\w+)[^>]* id="([^"]+)"/g))
    ids[id] = new Node(name, name === "svg" ? "svg" : "html");
  ids.report = new Node("script", "html");
  ids.report.append(json);
  const document = {
    getElementById: (id) => ids[id],
    createElement: (name) => new Node(name, "html"),
    createElementNS: (space, name) => new Node(name, space),
  };
  // The style of a node, in the colors that the page has at that time.
  const classes = new Set();
  document.documentElement = {classList: {
    add: (name) => classes.add(name), remove: (name) => classes.delete(name)}};
  const getComputedStyle = (node) => ({getPropertyValue: (key) => key !== "fill" ? ""
    : node.attributes.style ? 'url("#fill1")' : classes.has("paper") ? "black" : "white"});
  const written = (node) => `<${[node.name, ...Object.entries(node.attributes)
    .map(([key, value]) => `${key}="${value}"`)].join(" ")}>${node.children
    .map((one) => one instanceof Node ? written(one) : one).join("")}</${node.name}>`;
  class XMLSerializer { serializeToString(node) { return written(node); } }
  const context = vm.createContext({document, getComputedStyle, XMLSerializer});
  for (const script of scripts) vm.runInContext(script, context);
  return {...ids, document, script: context};
}

const {script} = open("study");
const texts = (nodes) => nodes.map((node) => node.textContent);
const rows = (table) => table.all("tr").map((row) => texts(row.children));

// ---- Functions.

test("an axis ends on a tick just above the maximum", () => {
  const axis = (most) => {
    const {top, ticks} = script.percentAxis(most);
    assert.equal(ticks.at(-1), top);
    return [top, ticks[1]];
  };
  assert.deepEqual([0, 5.1, 47, 78, 100].map(axis),
    [[5, 1], [6, 2], [50, 10], [80, 20], [100, 20]]);
});

test("numbers are rounded as the terminal rounds them", () => {
  const fixed = (...values) => script.fixed(...values);
  assert.deepEqual([6.25, 6.75, 0.25, 0.15, 12, 62.35].map((value) => fixed(value, 1)),
    ["6.2", "6.8", "0.2", "0.1", "12.0", "62.4"]);
  assert.deepEqual([0.5, 1.5, 2.5].map((value) => fixed(value, 0)), ["0", "2", "2"]);
  assert.deepEqual([0.0625, 1 / 3].map((value) => fixed(value, 3)), ["0.062", "0.333"]);
  assert.equal(fixed(null, 3), "nan");
});

test("durations are those of the terminal", () => {
  assert.deepEqual([0, 3, 59.94, 200, 3600, 86400 * 2 + 3700].map(script.duration),
    ["", "3.0s", "59.9s", "3m 20s", "1h 00m", "2d 01h"]);
});

test("names are shortened by columns", () => {
  assert.equal(script.shortened("abcdef", 6), "abcdef");
  assert.equal(script.shortened("abcdefg", 6), "abc...");
  assert.equal(script.shortened("\u6f22\u6f22\u6f22\u6f22", 7), "\u6f22\u6f22...");
  assert.equal(script.columns("a\u6f22e\u0301"), 4);
});

test("labels keep a distance and stay on the chart", () => {
  for (const wanted of [[100, 101, 102], [270, 270, 270, 14], [20, 200]]) {
    const heights = [...script.spread(wanted)].sort((a, b) => a - b);
    for (let i = 1; i < heights.length; ++i) assert(heights[i] - heights[i - 1] >= 17);
    assert(heights.at(-1) <= 274);
  }
  assert.deepEqual([...script.spread([20, 200])], [20, 200]);
});

// "[common]not common", of both texts.
function aligned(first, second) {
  const both = [first, second].map((text) => Array.from(text)), common = script.align(...both);
  return both.map((characters, i) => script.marked(characters, common[i], false)
    .map((piece) => piece instanceof Node ? `[${piece.textContent}]` : piece).join(""));
}

test("changed, inserted and deleted text is not common", () => {
  assert.deepEqual(aligned("It was built in 1911 by Anna.", "It was then built in 1912 by Anna."),
    ["[It was built in 191]1[ by Anna.]", "[It was] then[ built in 191]2[ by Anna.]"]);
  assert.equal(aligned("a\u00e9\u{1f600}\u6f22", "a\u00e9\u{1f600}\u6f22")[0],
    "[a\u00e9\u{1f600}\u6f22]");
});

test("short runs are common only if they are a whole text", () => {
  assert.equal(aligned("abcXdefYghi", "abcZdefWghi")[0], "abcXdefYghi");
  assert.equal(aligned("abcdXefgh", "abcdZefgh")[0], "[abcd]X[efgh]");
  assert.equal(aligned("ab", "ab")[0], "[ab]");
  assert.equal(aligned("ab", "ac")[0], "ab");
  assert.deepEqual(aligned("abcde", ""), ["abcde", ""]);
});

// The most common characters by definition: tries every way to choose runs, from the front.
function mostCommon(a, b) {
  if (a === "" || b === "") return 0;
  let most = Math.max(mostCommon(a.slice(1), b), mostCommon(a, b.slice(1)));
  for (let n = 1; n <= Math.min(a.length, b.length) && a[n - 1] === b[n - 1]; ++n)
    if (n >= 4) most = Math.max(most, n + mostCommon(a.slice(n), b.slice(n)));
  return most;
}

test("common characters are the same in both texts and as many as possible", () => {
  let state = 1;
  const random = (length) => Array.from({length}, () => {
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return "ab"[state >>> 16 & 1];
  }).join("");
  for (let trial = 0; trial < 300; ++trial) {
    const a = random(4 + trial % 7), b = random(9);
    const [first, second] = script.align([...a], [...b]);
    const inFirst = [...a].filter((_, i) => first[i]).join("");
    assert.equal([...b].filter((_, i) => second[i]).join(""), inFirst);
    assert.equal(inFirst.length, mostCommon(a, b), `${a} ${b}`);
  }
});

// ---- Pages.

test("the top has title, model, headline and notes", () => {
  const page = open("study");
  assert.equal(page.document.title, "Memorization study: gpt, 1.2 million parameters");
  assert.equal(page.title.textContent, "Memorization study");
  const headline = page.headline.textContent;
  assert.match(headline, /for 75\.0\u00a0% \(50\.0 to 100\.0\u00a0% over 2 trials\) of the /);
  assert.match(headline, / documents in \u201c6 epochs\u201d;/);
  assert.deepEqual(texts(page.notes.children),
    ["Four documents are learned.", "They are made up."]);
});

test("bars are as long as their shares", () => {
  // The axis ends at 100 %; 75 % is three quarters of it, whiskers go from its middle to its end.
  const groups = open("study").bars.all("g").filter((group) => group.one("title"));
  assert.deepEqual(texts(groups.map((group) => group.one("title"))), [
    "control, standard loss: 0.0 % (0.0 to 0.0)", "control, goldfish loss: 0.0 % (0.0 to 0.0)",
    "6 epochs, standard loss: 75.0 % (50.0 to 100.0)",
    "6 epochs, goldfish loss: 0.0 % (0.0 to 0.0)"]);
  const rectangle = groups[2].one("rect"), [left, width] = ["x", "width"].map((key) =>
    rectangle.number(key));
  const [, low, high] = groups[2].one("path").attributes.d.match(/^M([\d.]+) [\d.]+H([\d.]+)/);
  assert(Math.abs((low - left) / width - 50 / 75) < 1e-3);
  assert(Math.abs((high - left) / width - 100 / 75) < 1e-3);
  assert.equal(groups[2].one("text").textContent, "75.0");
});

test("tables have the figures of the summary", () => {
  const page = open("study");
  assert.deepEqual(rows(page.cells)[0], ["Group", "Documents", "Exact match\u00a0%",
    "Range over trials", "Longest run", "Tokens right\u00a0%", "Edit distance",
    "Loss, nats a\u00a0token"]);
  assert.deepEqual(rows(page.cells)[3],
    ["6 epochs", "2", "75.0", "50.0 to 100.0", "8.5", "85.0", "1.5", "0.875"]);
  assert.deepEqual(rows(page.runs)[0], ["Loss", "Trial", "Seed", "Validation loss",
    "Tokens kept %", "Training after warm-up", "Testing"]);
  assert.deepEqual(rows(page.runs)[1],
    ["standard loss", "1", "41", "2.750", "100.0", "1m 40s", "10.0s"]);
  assert.deepEqual(rows(open("audit").runs), [["Trial", "Seed", "Testing"], ["1", "7", "3.0s"]]);
  assert.deepEqual(rows(open("audit").cells)[1].slice(0, 4), ["asked", "8", "2", "0.0"]);
});

test("there are two charts for each policy, and a table of separations", () => {
  const {policies, separations} = open("recorded");
  assert.deepEqual(texts(policies.all("h4")), ["policy t=1,k=40", "policy t=1"]);
  const [tries, survival] = policies.all("figure");
  assert.equal(tries.all("polyline").length, 2);
  const tips = texts(tries.all("title"));
  for (const tip of ["asked: 0.0 % in 1 samples", "asked: 50.0 % in 10 samples",
    "asked: 100.0 % in 1,000 samples", "controls: 0.0 % in 1,000,000 samples"])
    assert(tips.includes(tip), tip);
  for (const tip of ["asked: 0.0 % with 10^0 or more", "asked: 50.0 % with 10^-2 or more",
    "controls: 100.0 % with 10^-30 or more"])
    assert(texts(survival.all("title")).includes(tip), tip);
  const never = texts(policies.all("figure")[2].all("title"));  // a probability of 0
  assert(never.includes("asked: 0.0 % in 1,000,000 samples"));
  assert.deepEqual(rows(separations)[1],
    ["asked", "loss", "1.000", "1.000 to 1.000", "not measurable", "not measurable"]);
  assert.equal(rows(separations).length, 5);
  assert.deepEqual(rows(open("recorded")["matched-rates"])[1], ["asked", "t=1,k=40", "1", "2",
    "too few controls", "-", "too few controls"]);
  const near = rows(open("recorded")["near-rates"]);
  assert.deepEqual(near[0], ["Group", "Distance", ...["1", "10", "100", "1,000", "10,000",
    "100,000", "1,000,000"].map((n) => `n = ${n}`)]);
  assert.deepEqual(near[1].slice(0, 6), ["asked", "2", "50.0 to 100.0", "50.0 to 100.0", "100.0",
    "100.0"]);
  assert.deepEqual(rows(open("recorded")["near-masses"]), [["Group", "Distance", "At least",
    "At most", "Sampled", "95\u00a0% interval", "Samples"],
  ["asked", "2", "0.52", "1.0", "0.20", "0.15 to 0.26", "200"],
  ["controls", "2", "1.0e-29", "1.0e-27", "0.20", "0.15 to 0.26", "200"]]);
  assert(open("arms").near.removed);
  assert(open("study").extraction.removed);
  assert(open("study").membership.removed);
});

test("bands lie between the ends of the intervals", () => {
  const near = (got, want) => want.forEach((value, i) =>
    assert(Math.abs(got[i] - value) < 1e-3, `${got} for ${want}`));
  near(script.wilson(0, 100), [0, 3.6994]);
  near(script.wilson(100, 100), [96.3006, 100]);
  near(script.wilson(50, 100), [40.3832, 59.6168]);
  const frame = {across: (i) => 100 * i, up: (value) => 100 - value};
  const points = [{i: 0, ends: [10, 20]}, {i: 1, ends: [30, 50]}, {i: 2}, {i: 3, ends: []}];
  assert.equal(script.band(points, frame)[0].attributes.points,
    "0.0,80.0 100.0,50.0 100.0,70.0 0.0,90.0");
  assert.equal(script.band(points.slice(1), frame).length, 0, "no band of a single point");
  const bands = (node) => node.all("polygon").length;
  const {epochs} = open("study"), {times, steps} = open("arms");
  assert.deepEqual(epochs.all("figure").map(bands), [2, 2, 2]);
  assert.deepEqual(times.all("figure").map(bands), [1, 1], "of the part with two numbers of times");
  assert.deepEqual(steps.all("figure").map(bands), [4, 4]);
  assert.equal(bands(open("audit").curves), 2);
  assert.equal(bands(open("recorded").policies), 2 * 2 * 2, "policies, charts, groups");
  // Of one trial with 2 of 2 exact, the interval goes down to 34.2 % of an axis of 256 pixels.
  const band = open("audit").curves.one("polygon").attributes.points.split(" ").map((point) =>
    point.split(",").map(Number));
  assert.deepEqual([band[2][1], band[3][1]], [14, 182.4]);
});

test("a document can be read token by token", () => {
  const folds = open("recorded").passages.where((node) => node.attributes.class === "reading");
  assert.equal(folds.length, 1, "of the one document whose tokens the report has");
  assert.equal(folds[0].textContent,
    "The whole document, token by token: 2 of 4 in extracted spans");
  folds[0].listeners.toggle();
  const [, text] = folds[0].all("p");
  assert.equal(text.textContent, "The end of it");
  assert.deepEqual(text.all("span").map(({attributes: {class: name, title}}) => [name, title]),
    [["first", "not asked for"], ["p5", "p = 0.950, choice 1"], ["p3 other", "p = 0.300, choice 2"],
      ["p0 other", "p = 5.0e-4, choice 1,700"]]);
  assert.deepEqual(texts(text.all("mark")), ["end of"]);
});

test("an axis of any figure ends within a step of the maximum", () => {
  for (const [most, top, step] of [[0, 0.2, 0.1], [47, 50, 10], [3.14, 4, 1], [0.061, 0.08, 0.02],
    [1200, 1500, 500]]) {
    const axis = script.axisTo(most);
    assert.deepEqual([axis.top, axis.ticks[1]], [top, step], `${most}`);
  }
});

test("there is a curve per loss of each figure over the epochs", () => {
  const {epochs} = open("study"), figures = epochs.all("figure");
  assert.deepEqual(texts(epochs.all("figcaption")),
    ["Exact match, % of the documents", "Longest run, tokens, of 10", "Loss, nats a token"]);
  for (const figure of figures) assert.equal(figure.all("polyline").length, 2);
  assert(texts(figures[1].all("title")).includes("standard: 8.5 after 6 epochs"));
  assert(texts(figures[2].all("title")).includes("goldfish: 2.250 after 6 epochs"));
  assert(open("audit")["by-epochs"].removed);
});

test("there is a line for each part of the steps, over the numbers of times", () => {
  const page = open("arms"), {times, steps} = page;
  assert(page["by-epochs"].removed);
  assert(open("study")["by-times"].removed && open("study")["by-step"].removed);
  assert.deepEqual(texts(times.all("figcaption")),
    ["Exact match, %, standard loss", "In 1,000 samples with probability 0.5, %, standard loss"]);
  const [exact, extractable] = times.all("figure");
  assert.equal(exact.all("polyline").length, 2);
  assert(exact.one("desc").textContent.includes("20\u201350 % of the steps: 0.0 % after 2 times, "
    + "50.0 % after 8 times. 80\u2013100 % of the steps: 100.0 % after 8 times."));
  assert(extractable.one("desc").textContent.includes("0.0 % after 2 times, 50.0 % after 8 times"));
  assert.deepEqual(rows(page.exposures)[1],
    ["late-8", "standard", "2", "1,000", "5.98", "5.98", "9.97", "50.0"]);
  assert(open("study").exposure.removed);
  assert.deepEqual(rows(page["reference-figures"]).slice(1), [["late-8", "1", "2", "8",
    "0.250 \u00b10.060", "0.750", "0.500", "1.000", "62.5", "37.5"], ["early-8", "1", "2", "8",
    "0.500 \u00b10.125", "-", "-", "-", "-", "-"]]);
  assert.deepEqual(rows(page["influence-pairs"])[1], ["g", "1", "h", "1.500 \u00b10.500", "3.0"]);
  assert(open("study").references.removed && open("study").influences.removed);
  assert.deepEqual(rows(open("beside")["reference-distances"])[1],
    ["asked", "2", "0.500", "1.000", "0.500", "1.0"]);
  assert(page["against_reference"].removed);
  assert.deepEqual(rows(page.capacities)[3],
    ["all learned", "standard", "1", "2", "160", "20", "140", "0.1400"]);
  assert(open("study").capacity.removed);
  assert.deepEqual(texts(steps.all("figcaption")),
    ["Greedy exact match, %, standard loss", "Loss of the suffix, nats a token, standard loss"]);
  const measured = steps.all("figure").map((one) => one.one("desc").textContent);
  assert(measured[0].includes("late-8: 0.0 % after step 10, 100.0 % after step 20."));
  assert(measured[1].includes("control: 3.000 nats after step 10, 4.000 nats after step 20."));
});

test("there is a curve per group if there are several prompt lengths", () => {
  assert(open("study")["by-prompt"].removed);
  const {curves, "bars-hint": hint} = open("audit");
  assert.equal(curves.all("polyline").length, 2);
  assert.match(curves.one("desc").textContent, new RegExp("^asked: 0\\.0 % with 8 tokens, "
    + "50\\.0 % with 32 tokens, 100\\.0 % with the whole prompt\\. controls: "));
  assert(texts(curves.all("title")).includes("asked: 50.0 % with 32 tokens"));
  const points = curves.one("polyline").attributes.points.split(" ").map((point) =>
    point.split(",").map(Number));
  assert.deepEqual(points.map(([, y]) => y), [270, 142, 14]);
  assert.match(hint.textContent, /95 % interval .* longest prompt \(whole\)/);
});

test("there is a curve for each length of a prompt over its offsets", () => {
  assert(open("audit")["by-offset"].removed);
  const {offsets, policies, cells, "by-prompt": prompts} = open("swept");
  assert(prompts.removed);
  assert.deepEqual(texts(offsets.all("figcaption")), ["A prompt of 8 tokens"]);
  assert.match(offsets.one("desc").textContent,
    /^asked: 50\.0 % after 0 tokens, 0\.0 % after 20 tokens\. controls: /);
  assert.deepEqual(rows(cells).slice(1, 4).map((row) => row.slice(0, 2)),
    [["asked", "whole"], ["asked", "8 after 0"], ["asked", "8 after 20"]]);
  const [tries] = policies.all("figure");
  assert.equal(tries.one("figcaption").textContent,
    "Written with probability 0.25 in n samples, %");
  assert(texts(tries.all("title")).includes("asked: 50.0 % in 3 samples"));
});

test("there is a curve for each prompt over lengths of suffixes", () => {
  assert(open("audit")["by-suffix"].removed);
  const {suffixes, cells, "matched-rates": matched} = open("suffixes");
  assert.deepEqual(texts(suffixes.all("figcaption")), ["The whole prompt"]);
  assert.match(suffixes.one("desc").textContent,
    /^asked: 0\.0 % of all 4 tokens, 100\.0 % of all 10 tokens\. controls: /);
  assert.deepEqual(rows(cells).slice(1, 4).map((row) => row[1]), ["8", "whole", "whole, suffix 4"]);
  assert.equal(rows(matched).length, 1 + 2 * 2, "policies, alphas");
});

test("passages that the page does not hold are counted", () => {
  const {passages} = open("huge");
  assert.equal(passages.one("summary").textContent, "494 more of 700 documents");
  assert(texts(passages.all("p")).includes("Those of 200 more are in the JSON."));
  assert(!texts(open("large").passages.all("p")).some((text) => text.includes("in the JSON")));
});

test("every figure can be saved in the colors of paper", () => {
  const page = open("study"), count = (nodes) => nodes.length;
  assert.equal(count(page["bars-figure"].all("button")), 1);
  assert.equal(count(page.epochs.all("button")), 3);
  const file = page.script.standalone(page.bars, {title: "Exact match", unit: "% of documents"});
  assert.match(file,
    /^<svg [^>]*viewBox="0 -34 1000 \d+"[^>]* xmlns="svg" width="1000" height="\d+"><rect y="-34"/);
  assert.match(file, />Exact match<.*>% of documents</);
  assert.match(file, /fill="black"/);
  assert.match(file, /fill="url\(#fill1\)"/);
  assert.doesNotMatch(file, /class=|style=|fill="white"/);
  assert(page.bars.all("*").some((node) => node.attributes.class), "the page's chart is unchanged");
});

test("the report's origin is at its head and its end", () => {
  const page = open("study");
  assert.equal(page.stamp.textContent, "axonn 1.2.3, 2026-11-21 18:02:11 UTC");
  assert.deepEqual(rows(page.origin), [["Program", "axonn 1.2.3"],
    ["Date", "2026-11-21 18:02:11 UTC"], ["Command", "axonn memorize 'a study.toml'"],
    ["Machine", "2 ranks on node7: a processor, 2 cores"]]);
  assert.equal(page["config-text"].textContent, "[model]\nlayers = 4\n");
  assert(open("audit").config.removed);
  assert(open("audit")["runs-hint"].removed);
  assert.match(page["runs-hint"].textContent, /^$/, "in the page itself");
});

test("passages begin with what was memorized and end with the control", () => {
  const order = (page) => texts(open(page).passages.all("h3"));
  assert.deepEqual(order("study"), ["6 epochs", "control"]);
  assert.deepEqual(order("audit"), ["asked", "controls"]);
  assert.equal(open("study").passages.one("h5").textContent, "Cedar");
});

test("every group is linked and every document is shown", () => {
  for (const [name, documents] of [["study", ["Alder", "Birch", "Cedar", "Dogwood"]],
    ["audit", ["alder.txt", "birch.txt", "cedar.txt", "dogwood.txt"]]]) {
    const page = open(name), targets = page.passages.all("h3").map((title) => title.attributes.id);
    assert.deepEqual([...targets].sort(), ["group-0", "group-1"]);
    const links = page.cells.all("a").map((link) => link.attributes.href);
    assert.deepEqual([...new Set(links)], ["#group-0", "#group-1"]);
    for (const document of documents) assert(texts(page.passages.all("h5")).includes(document));
  }
});

test("common text is marked", () => {
  const passages = open("audit").passages.all("article");
  assert.deepEqual(texts(passages[0].all("mark")), Array(2).fill("and so it goes on to its end"));
  assert.deepEqual(texts(passages[2].all("mark")).slice(2), ["and so it ", " end"]);
  assert.match(passages[0].one("header").textContent, /\u2713 all 10 tokens \u00b7 loss 0\.500/);
  assert.match(passages[2].one("header").textContent, /2 of 10 tokens in a run \u00b7 20 % of/);
});

test("all but the first passages of a group are folded", () => {
  const {passages} = open("large"), fold = passages.one("details");
  assert.equal(passages.all("article").length, 6);
  assert.equal(fold.one("summary").textContent, "114 more of 120 documents");
  fold.listeners.toggle();
  assert.equal(fold.all("article").length, 50);
  const rest = fold.one("details");
  assert.equal(rest.one("summary").textContent, "64 more of 120 documents");
  rest.listeners.toggle();
  rest.one("details").listeners.toggle();
  assert.equal(passages.all("article").length, 120, "all can be reached");
});

test("texts of a report become text only", () => {
  const page = open("evil");
  const known = ["a", "article", "details", "div", "h3", "h4", "h5", "header", "li", "mark", "p",
    "section", "span", "strong", "summary", "table", "tbody", "td", "th", "thead", "tr"];
  const names = (node) => node.children.filter((one) => one instanceof Node)
    .flatMap((one) => [one.name, ...names(one)]);
  for (const id of ["title", "notes", "cells", "runs", "passages", "origin", "config-text"])
    for (const name of names(page[id])) assert(known.includes(name), name);
  assert.equal(page.title.textContent,
    "</title></style></script><script>x</script>\"'&<!--\ufffd\u2401\u241b]]>");
});

test("odd reports are drawn", () => {
  const page = open("odd");
  assert(texts(page.bars.all("text")).includes("not tested"));
  assert.deepEqual(rows(page.cells).slice(4, 6).map(([name, , share]) => [name, share]),
    [["never tested", "-"], ["6 epochs", "50.0"]].map(([name, share], i) =>
      [name, i ? "100.0" : share]));
  assert.equal(rows(page.runs)[1][2], "18446744073709551615");
  assert(texts(page.passages.all("h5")).includes("document 3"));
  assert.match(page.passages.textContent, / \u2026/);
  assert.match(page.passages.textContent, /loss nan/);
  const empty = open("empty");
  assert(empty.main.removed);
  assert.equal(empty.headline.textContent, "Nothing was recited.");
});
