// Tests the scripts of axonn board (axonn/app/board/*.js) without a browser:
// node page_script_test.js
"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const test = require("node:test");
const vm = require("node:vm");

const {Node} = require("../../support/page_node.js");

function open() {
  const ids = {};
  const document = {
    getElementById: (id) => ids[id] = ids[id] || new Node(id),
    createElement: (name) => new Node(name),
    createElementNS: (space, name) => new Node(name, space),
  };
  const context = vm.createContext({document});
  const folder = path.join(__dirname, "../../../axonn");
  for (const file of ["foundation/drawing/elements.js", "foundation/drawing/figure_files.js",
    "app/board/charts.js", "app/board/page.js"])
    vm.runInContext(fs.readFileSync(path.join(folder, file), "utf8"), context);
  const page = vm.runInContext("page", context);
  return {...context, page, byId: document.getElementById, get: (text) =>
    vm.runInContext(text, context)};
}

const script = open();
const plain = (value) => JSON.parse(JSON.stringify(value));

const points = (losses, more = {}) => ({
  generation: 1, width: 1, first: 0, rows: losses.length,
  first_step: losses.map((_, i) => i + 1), last_step: losses.map((_, i) => i + 1),
  series: {loss: {mean: losses}, tokens: {mean: losses.map((_, i) => (i + 1) * 1000)},
    seconds: {mean: losses.map((_, i) => (i + 1) * 60)}, ...more},
});
const run = (name, more = {}) => ({name, state: "running", reason: "", step: 3,
  steps: 10, rows: 3, generation: 1, damaged: 0, not_finite: 0, seconds: 180, seconds_left: 420,
  age: 12, config_version: 1, checkpoints: [], warnings: [], slowest: "",
  last: {loss: 2}, ...more});

test("numbers have four digits at most", () => {
  assert.deepEqual([0, 2.73203, 12345, 0.0003, -1.5, 2e6, 1e20, null].map(script.short),
    ["0", "2.732", "12.35k", "3e-4", "\u22121.5", "2M", "1e20", "-"]);
  assert.equal(script.bytes(9018496), "8.601 MiB");
  assert.deepEqual([12, 192, 7500, 90000].map(script.duration),
    ["12 s", "3 m 12 s", "2 h 05 m", "1 d 01 h"]);
});

test("ticks are round and lie within the range", () => {
  assert.deepEqual(plain(script.ticks(0, 10, 5)), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(plain(script.ticks(2.1, 2.9, 4)), [2.2, 2.4, 2.6, 2.8]);
  assert.deepEqual(plain(script.logTicks(0.5, 2000, 4)), [1, 10, 100, 1000]);
  assert.deepEqual(plain(script.ticks(3, 3, 5)), [3]);
});

test("a scale leads back, and knows one value, none, and zero on a log scale", () => {
  const up = script.scaleOf([1, 100], [200, 0], {log: true});
  assert(Math.abs(up.from(up.to(7)) - 7) < 1e-9);
  for (const values of [[], [5], [0], [null, NaN], [-1]])
    for (const log of [false, true])
      for (const exact of [false, true]) {
        const scale = script.scaleOf(values, [0, 100], {log, exact});
        assert(scale.high > scale.low, JSON.stringify({values, log, exact}));
      }
});

test("smoothing corrects its start and keeps gaps", () => {
  assert.deepEqual(plain(script.smoothed([4, 4, null, 4], 0.9)).map((one) => one && one.toFixed(6)),
    ["4.000000", "4.000000", null, "4.000000"]);
});

test("joined points keep means and ranges", () => {
  const curve = {xs: [1, 2, 3, 4, 5], values: [1, 3, null, 5, 9], low: null, high: null};
  const joined = script.thinned(curve, 3);
  assert.deepEqual(plain([joined.xs, joined.values, joined.low, joined.high]),
    [[1.5, 3.5, 5], [2, 5, 9], [1, 5, 9], [3, 5, 9]]);
  assert.equal(script.thinned(curve, 5), curve);
});

test("new points follow the old ones, and another generation replaces them", () => {
  const old = points([5, 4, 3]);
  const got = {...points([3, 2], {val_loss: {mean: [null, 2.5]}}), first: 2, rows: 4,
    first_step: [3, 4], last_step: [3, 4]};
  const all = plain(script.merged(old, got));
  assert.deepEqual(all.series.loss.mean, [5, 4, 3, 2]);
  assert.deepEqual(all.series.val_loss.mean, [null, null, null, 2.5]);
  assert.deepEqual(all.last_step, [1, 2, 3, 4]);
  const anew = {...got, generation: 2};
  assert.equal(script.merged(old, anew), anew);
});

test("a range of tokens is one of steps, with a point to either side", () => {
  assert.deepEqual(plain(script.stepsOf(points([5, 4, 3, 2, 1]), "tokens", [1900, 3100])), [1, 4]);
});

test("a figure is saved with its curves' names, and its points as a table", () => {
  const {page, draw, get} = open();
  page.runs = [run("a"), run("b, \"two\"")];
  page.points = [points([3, 2, 1], {val_loss: {mean: [null, null, 1.5]}}), points([3, null, 1])];
  draw();
  const loss = get('figures.get("loss")');
  const keys = get("keysOf")(loss);
  assert.deepEqual(keys.map(([sample, label]) => [sample.attributes.class, label]),
    [["sample", "a"], ["sample", "b, \"two\""]]);
  assert.equal(get("csvOf")(loss), "curve,step,loss,validation\n"
    + "a,1,3,\na,2,2,\na,3,1,1.5\n"
    + "\"b, \"\"two\"\"\",1,3,\n\"b, \"\"two\"\"\",2,,\n\"b, \"\"two\"\"\",3,1,\n");
  page.runs = [run("a")];
  page.points = [points([3, 2, 1], {"exposed_comm_ms": {mean: [1, 2, 3]},
    "exposed_comm_ms/z": {mean: [1, 1, 1]}})];
  draw();
  const parts = get('figures.get("exposed_comm_ms")');
  assert.deepEqual(get("keysOf")(parts).map(([, label]) => label), ["all", "z"]);
  const text = get("fileHead")({title: "Loss", unit: "nats", keys: []}, 500);
  assert.deepEqual(plain(text.nodes.map((node) => node.textContent)), ["Loss", "nats"]);
});

test("configurations differ in what differs, but for the folder", () => {
  const one = {"training.steps": "5", "output.dir": "a"}, two = {"training.steps": "6",
    "output.dir": "b", "lora.rank": "8"};
  assert.deepEqual(plain(script.differences([one, two])), ["lora.rank", "training.steps"]);
  assert.deepEqual(plain(script.differences([one])), ["output.dir", "training.steps"]);
});

test("the page shows runs, hides curves and marks losses that are not finite", () => {
  const {page, byId, draw, get} = open();
  page.runs = [run("a"), run("b<b>", {state: "failed", reason: "why", not_finite: 1})];
  page.points = [points([3, 2, 1], {"exposed_comm_ms": {mean: [1, 2, 3]},
    "exposed_comm_ms/z": {mean: [1, 1, 1]}, fresh: {mean: [1, 2, 3]}}), points([3, null, 1])];
  draw();
  const loss = get('figures.get("loss")'), waits = get('figures.get("exposed_comm_ms")');
  assert.equal(loss.plot.withClass("curve").length, 2);
  assert.equal(loss.plot.withClass("nan").length, 1);
  assert.equal(waits.plot.withClass("curve").length, 1, "a curve a run");
  assert(get('figures.has("fresh")'), "a series that the page does not know");
  assert(get('figures.get("grad_norm")').box.hidden, "no run has it");
  assert(byId("runs").textContent.includes("b<b>failed"));
  assert(byId("runs").textContent.includes("why"));
  assert(byId("notes").textContent.includes("1 steps with a loss that was not finite"));
  byId("legend").children[1].listeners.click();
  assert.equal(loss.plot.withClass("curve").length, 1);
  assert.equal(byId("legend").children[1].attributes["aria-pressed"], "false");
  assert.equal(waits.plot.withClass("curve").length, 2, "of one run, a curve an axis");
  assert(loss.plot.attributes["aria-label"].includes("a: 1"));
});

test("a chart of zeros alone is not shown", () => {
  const {page, draw, get} = open();
  page.runs = [run("a")];
  page.points = [points([3, 2, 1], {exposed_comm_ms: {mean: [0, 0, null]}, lr: {mean: [0, 0, 0]}})];
  draw();
  assert(get('figures.get("exposed_comm_ms")').box.hidden);
  assert(!get('figures.get("lr")').box.hidden);
});

test("the pointer shows no run where it has no steps", () => {
  const {page, draw, get} = open();
  const values = Array.from({length: 100}, (_, i) => 100 - i);
  page.runs = [run("short"), run("long")];
  page.points = [points(values.slice(0, 10)), points(values)];
  draw();
  const loss = get('figures.get("loss")');
  const shown = (at) => {
    loss.at = at;
    get("showTip")(loss);
    return loss.tip.textContent;
  };
  assert.equal(shown(55), "step 55long46");
  assert.equal(shown(10), "step 10short91long91");
  assert.equal(shown(10.4), "step 10short91long91", "a few pixels beyond its end");
});

test("samples stand prompt by prompt, and stay while nothing changes", async () => {
  const {page, byId, draw, get} = open();
  const asked = [];
  get("globalThis").fetch = async (path) => {
    asked.push(path);
    const step = path.includes("&step=5") ? 5 : 9;
    const texts = [{prompt: "Once", text: `${step} <i>`, tokens: 1, end: "stop_token"}];
    return {status: 200, ok: true, json: async () => ({steps: [5, 9], step, samples: texts})};
  };
  page.runs = [run("a", {sample_step: 9}), run("b", {sample_step: 9}), run("c", {sample_step: 0})];
  for (const number of [0, 1, 2, 0]) await get("getSamples")(number);
  assert.deepEqual(asked, ["/api/samples?run=0", "/api/samples?run=1"]);
  draw();
  const shown = () => byId("samples").textContent;
  assert.equal(shown(), "Oncea" + "after step 9: 1 token, then the end of a text9 <i>"
    + "bafter step 9: 1 token, then the end of a text9 <i>");
  assert.equal(byId("sample-at").textContent, "9, the newest");
  const box = byId("samples").children[0];
  draw();
  assert.equal(byId("samples").children[0], box, "a selection in it would be lost");
  await get("showSamples")(5);
  assert(shown().includes("after step 5") && !shown().includes("after step 9"));
  byId("legend").children[0].listeners.click();
  assert(!shown().includes("Oncea"));
});

test("an answer that a run learned from is shown with its rewards", () => {
  const {page, byId, draw} = open();
  page.runs = [run("a")];
  page.samples = [{steps: [3], step: 3, samples: [{prompt: "1+2=", text: "4", tokens: 2,
    end: "stop_token", advantage: -0.5, rewards: [["number", 0], ["short", null]]}]}];
  draw();
  assert.equal(byId("samples").textContent, "1+2=aof step 3: 2 tokens, then the end of a text; "
    + "number 0, short -, advantage \u22120.54");
});

test("every unit, log scale and smoothing draw finite coordinates, of a single point too", () => {
  for (const losses of [[2], [null], [3, 2, 1], [0, 0], []])
    for (const unit of ["step", "tokens", "seconds"])
      for (const log of [false, true])
        for (const smooth of [0, 0.9]) {
          const {page, draw, get} = open();
          page.runs = [run("a")];
          page.points = [points(losses)];
          Object.assign(page, {unit, log, smooth});
          draw();
          const plot = get('figures.get("loss")').plot;
          for (const one of plot.all("*"))
            for (const value of Object.values(one.attributes))
              assert(!/NaN|Infinity|undefined/.test(value), `${losses} ${unit} ${log}: ${value}`);
        }
});

test("the page asks only for new points, and for a part in detail", async () => {
  const {page, byId, get} = open();
  const asked = [];
  const answers = {"/api/runs": {runs: [run("a", {rows: 4})], waiting: ["b does not exist yet"],
    left_out: 0, more: false}};
  const coarse = {...points([4, 3]), width: 2, rows: 4, first_step: [1, 3], last_step: [2, 4]};
  const context = get("globalThis");
  context.fetch = async (path) => {
    asked.push(path);
    const answer = answers[path] || (path.startsWith("/api/config") ? {version: 1, config: {}}
      : path.includes("from=") ? points([5, 4, 3, 2]) : coarse);
    return {ok: true, status: 200, json: async () => answer};
  };
  await get("update()");
  await get("update()");
  assert.deepEqual(asked, ["/api/runs", "/api/rows?run=0&width=0&have=0", "/api/config?run=0",
    "/api/runs"], "nothing new, nothing asked");
  assert.equal(byId("message").textContent, "Waiting: b does not exist yet.");
  answers["/api/runs"].runs[0].rows = 5;
  await get("update()");
  assert.equal(asked.at(-1), "/api/rows?run=0&width=2&have=2");
  await get("zoomTo([2.5, 4])");
  assert.equal(asked.at(-1), "/api/rows?run=0&from=1&to=4");
  assert.equal(page.details[0].last_step.length, 4);
  assert.equal(byId("whole").hidden, false);
  await get("zoomTo(null)");
  assert.equal(byId("whole").hidden, true);
  context.fetch = async () => ({ok: false, status: 401});
  await get("update().catch(failed)");
  assert.equal(byId("keys").hidden, false);
  assert.equal(byId("message").textContent, "This board asks for its token.");
});
