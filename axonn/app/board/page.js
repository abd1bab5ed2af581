"use strict";

// Fills the page of axonn board (page.html) from what its server tells (board.h); charts.js draws.

// ---- The parts of the page.

const figures = new Map();  // by the name of the series

function figureOf(chart) {
  if (figures.has(chart.name)) return figures.get(chart.name);
  const figure = {chart, at: null, overlay: [],
    plot: svg("svg", {class: "plot", tabindex: "0"}), keys: html("span", {class: "keys"}),
    tip: html("div", {class: "tip", role: "status"})};
  const unit = chart.validation ? `${chart.unit}; open marks: validation` : chart.unit;
  const file = chart.name.replace(/[^\w-]/g, "_");
  figure.box = html("figure", {id: `chart-${chart.name}`},
    html("figcaption", {}, html("h3", {}, chart.title), html("span", {class: "soft"}, unit),
      figure.keys, html("span", {class: "saves"},
        svgButton(figure.plot, file, () => ({title: chart.title, unit, keys: keysOf(figure)})),
        saveButton("Save as CSV", `${file}.csv`, "text/csv", () => csvOf(figure)))),
    figure.plot, figure.tip);
  byId("charts").append(figure.box);
  listen(figure);
  figures.set(chart.name, figure);
  return figure;
}

// The curves of a figure: [sample, label], from the page, where they have their colors.
const keysOf = (figure) => figure.curves.map((curve, i) =>
  [(curve.isPart ? figure.keys.children[i] : byId("legend").children[curve.number]).children[0],
    curve.label]);

// The points of a figure's curves, of the part that is shown, as the server sent them.
function csvOf({chart, curves}) {
  const cell = (value) => value === null || value === undefined ? ""
    : /[",\n]/.test(value) ? `"${value.replaceAll("\"", "\"\"")}"` : value;
  const all = curves.map((curve) => shownPart(curve.all));
  const columns = ["low", "high", "validation"].filter((name) => all.some((one) => one[name]));
  const rows = all.flatMap((one) => one.xs.map((x, i) =>
    [one.label, x, one.values[i], ...columns.map((name) => one[name]?.[i])]));
  return [["curve", page.unit, chart.name, ...columns], ...rows]
    .map((row) => `${row.map(cell).join()}\n`).join("");
}

// The charts of all series; of those that the page does not know, under their own names.
function charts() {
  const known = [...kCharts.map((chart) => chart.name), ...kNoChart];
  const others = new Set(page.points.flatMap((points) => points ? Object.keys(points.series) : []));
  return [...kCharts, ...[...others].filter((name) => !known.includes(name) && !name.includes("/"))
    .slice(0, 12).map((name) => ({name, title: name.replaceAll("_", " "), unit: ""}))];
}

function drawLegend() {
  byId("legend").replaceChildren(...page.runs.map((run, number) => {
    const pressed = String(!page.hidden.has(number));
    const button = html("button", {type: "button", "aria-pressed": pressed}, sample(number),
      run.name);
    button.addEventListener("click", () => {
      if (!page.hidden.delete(number)) page.hidden.add(number);
      draw();
      byId("legend").children[number].focus();
    });
    return button;
  }));
}

function stepCell(run) {
  if (!run.steps) return [count(run.step)];
  const share = run.step / run.steps;
  return [html("progress", {max: 1, value: share, "aria-label": "share of the run"}),
    ` ${count(run.step)} of ${count(run.steps)}`];
}

function runRows(run, number) {
  const over = ["ended", "stopped", "failed"].includes(run.state);
  const cells = [["state", run.state], ["step", ...stepCell(run)], ["loss", short(run.last.loss)],
    ["validation", short(run.last.val_loss)], ["tokens/s", short(run.last.tokens_per_s)],
    ["left", over ? "-" : duration(run.seconds_left)],
    ["last step", run.age === null ? "-" : duration(run.age) + " ago"],
    ["trained for", duration(run.seconds)], ["memory", bytes(run.last.memory_bytes)],
    ["checkpoint", run.checkpoints.length ? count(run.checkpoints[0]) : "-"]];
  const tone = {failed: "bad", stalled: "bad", running: "good"}[run.state] || "";
  const row = html("tr", {class: run.reason ? "noted" : ""},
    html("th", {scope: "row"}, sample(number), run.name),
    ...cells.map(([label, ...parts]) => html("td", {"data-label": label,
      class: (label === "state" ? tone : "") + (parts[0] === "-" ? " none" : "")}, ...parts)));
  if (!run.reason) return html("tbody", {}, row);
  return html("tbody", {}, row,
    html("tr", {class: "why"}, html("td", {colspan: "11"}, run.reason)));
}

function drawRuns() {
  byId("about-runs").hidden = page.runs.length === 0;
  const titles = ["run", "state", "step", "loss", "validation", "tokens/s", "left", "last step",
    "trained for", "memory", "checkpoint"];
  byId("runs").replaceChildren(
    html("thead", {}, html("tr", {}, ...titles.map((one) => html("th", {scope: "col"}, one)))),
    ...page.runs.map(runRows));
}

// Facts of a run that are no figures.
function factsOf(run) {
  const facts = [];
  if (run.not_finite) facts.push(`${count(run.not_finite)} steps with a loss that was not finite`);
  if (run.slowest) facts.push(run.slowest);
  if (run.last.save_failures)
    facts.push(`${count(run.last.save_failures)} checkpoints could not be written`);
  if (run.damaged) facts.push(`${count(run.damaged)} damaged lines in metrics.jsonl, left out`);
  if (run.checkpoints.length)
    facts.push("checkpoints of steps " + run.checkpoints.slice(0, 10).map(count).join("; ")
      + (run.checkpoints.length > 10 ? ` and ${run.checkpoints.length - 10} more` : ""));
  return [...facts, ...run.warnings];
}

function drawNotes() {
  const open = new Set([...byId("notes").children].filter((one) => one.open).map((one) => one.id));
  byId("notes").replaceChildren(...page.runs.flatMap((run, number) => {
    const facts = factsOf(run), id = `notes-${number}`;
    if (facts.length === 0) return [];
    return [html("details", {id, open: open.has(id) ? "" : undefined},
      html("summary", {}, `${run.name}: ${facts.length} note${facts.length > 1 ? "s" : ""}`),
      html("ul", {}, ...facts.map((fact) => html("li", {}, fact))))];
  }));
}

// The keys whose values differ between configs; of one config, all.
function differences(configs) {
  const keys = [...new Set(configs.flatMap((config) => Object.keys(config)))].sort();
  return keys.filter((key) => configs.length === 1
    || key !== "output.dir" && configs.some((config) => config[key] !== configs[0][key]));
}

function drawConfigs() {
  const shown = page.runs.map((run, number) => ({run, config: page.configs[number]}))
    .filter(({run, config}, number) => config && run && !page.hidden.has(number)
      && Object.keys(config.config).length > 0);
  byId("about-configs").hidden = shown.length === 0;
  if (shown.length === 0) return;
  const keys = differences(shown.map(({config}) => config.config));
  if (shown.length > 1 && !drawConfigs.opened) {
    byId("about-configs").setAttribute("open", "");
    drawConfigs.opened = true;  // the user may close it
  }
  byId("configs-title").textContent = shown.length === 1 ? "Configuration"
    : keys.length ? "Differences of the configurations" : "The configurations are the same";
  byId("configs").replaceChildren(...keys.length === 0 ? [] : [
    html("thead", {}, html("tr", {}, html("th", {scope: "col"}, "key"),
      ...shown.map(({run}) => html("th", {scope: "col"}, run.name)))),
    html("tbody", {}, ...keys.map((key) => html("tr", {}, html("th", {scope: "row"}, key),
      ...shown.map(({config}) => html("td", {}, config.config[key] ?? "-")))))]);
}

// The samples of the shown runs, prompt by prompt: [[prompt, [{number, step, sample}, ...]], ...].
function samplesByPrompt() {
  const prompts = new Map();
  page.samples.forEach((one, number) => {
    if (!one || page.hidden.has(number)) return;
    for (const sample of one.samples) {
      if (!prompts.has(sample.prompt)) prompts.set(sample.prompt, []);
      prompts.get(sample.prompt).push({number, step: one.step, sample});
    }
  });
  return [...prompts];
}

const kEnds = {stop_token: "the end of a text", stop_string: "the end of a turn",
  context: "no room was left", not_finite: "its logits were not finite"};

// Of an answer that the run wrote to learn from: "number 1, short -, advantage 0.87".
function rewardsOf({rewards, advantage}) {
  return [...rewards, ["advantage", advantage]].map(([name, value]) => `${name} ${short(value)}`)
    .join(", ");
}

function sampleBox({number, step, sample: answer}) {
  const {text, tokens, end, rewards} = answer;
  const about = `${rewards ? "of" : "after"} step ${count(step)}: ${count(tokens)} token`
    + (tokens === 1 ? "" : "s") + (kEnds[end] ? `, then ${kEnds[end]}` : "")
    + (rewards ? `; ${rewardsOf(answer)}` : "");
  return html("article", {}, html("header", {}, sample(number), html("b", {},
    page.runs[number].name), html("span", {class: "soft"}, about)),
  html("p", {class: "words", tabindex: "0"}, text || "(nothing)"));
}

function drawSamples() {
  const prompts = samplesByPrompt();
  const steps = [...new Set(page.samples.flatMap((one, number) =>
    one && !page.hidden.has(number) ? one.steps : []))].sort((a, b) => a - b);
  byId("about-samples").hidden = prompts.length === 0;
  const key = JSON.stringify([prompts, steps, page.sampleStep, page.runs.map((run) => run.name)]);
  if (drawSamples.key === key || prompts.length === 0) return;  // a selection of text stays
  drawSamples.key = key;
  const at = page.sampleStep === null ? steps.length - 1
    : Math.max(0, steps.findLastIndex((step) => step <= page.sampleStep));
  const slider = byId("sample-step");
  slider.max = steps.length - 1;
  slider.value = at;
  byId("sample-at").textContent =
    count(steps[at]) + (page.sampleStep === null ? ", the newest" : "");
  drawSamples.steps = steps;
  byId("samples").replaceChildren(...prompts.flatMap(([prompt, boxes]) =>
    [html("h3", {class: "prompt"}, prompt),
      html("div", {class: "texts"}, ...boxes.map(sampleBox))]));
}

function draw() {
  drawLegend();
  for (const chart of charts()) drawChart(figureOf(chart));
  drawRuns();
  drawNotes();
  drawSamples();
  drawConfigs();
  byId("whole").hidden = !page.zoom;
}

// ---- The server.

async function get(path) {
  const key = byId("key").value;
  const response = await fetch(path, {headers: key ? {Authorization: `Bearer ${key}`} : {}});
  byId("keys").hidden = response.status !== 401 && !key;
  if (response.status === 401) throw new Error("This board asks for its token.");
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error.message);
  return answer;
}

async function getPoints(number) {
  const run = page.runs[number], old = page.points[number];
  if (old && old.rows === run.rows && old.generation === run.generation) return;
  const width = old && old.generation === run.generation ? old.width : 0;
  page.points[number] = merged(old,
    await get(`/api/rows?run=${number}&width=${width}&have=${width ? haveOf(old) : 0}`));
  if (page.zoom) await getDetail(number);
}

// A run that is sent thinned comes in detail while a part of it is shown.
async function getDetail(number) {
  const points = page.points[number];
  page.details[number] = undefined;
  if (!points || points.width === 1 || haveOf(points) === 0) return;
  const [from, to] = stepsOf(points, page.unit, page.zoom);
  page.details[number] = await get(`/api/rows?run=${number}&from=${from}&to=${to}`);
}

async function getConfig(number) {
  const {config_version: version} = page.runs[number], old = page.configs[number];
  if (version > 0 && (!old || old.version !== version))
    page.configs[number] = await get(`/api/config?run=${number}`);
}

async function getSamples(number) {
  const {sample_step: newest, generation} = page.runs[number];
  const key = `${newest} ${generation} ${page.sampleStep}`;
  if (!newest) page.samples[number] = undefined;
  if (!newest || page.samples[number] && page.samples[number].key === key) return;
  const step = page.sampleStep === null ? "" : `&step=${page.sampleStep}`;
  page.samples[number] = {...await get(`/api/samples?run=${number}${step}`), key};
}

async function showSamples(step) {
  page.sampleStep = step;
  await Promise.all(page.runs.map((_, number) => getSamples(number))).catch(failed);
  drawSamples();
}

async function zoomTo(range) {
  page.zoom = range;
  if (range) await Promise.all(page.runs.map((_, number) => getDetail(number))).catch(failed);
  draw();
}

function failed(error) {
  byId("message").textContent = error instanceof TypeError
    ? "The board's server does not answer. The page asks again every few seconds." : error.message;
}

async function update() {
  const status = await get("/api/runs");
  page.runs = status.runs;
  for (const number of page.runs.keys()) {
    await getPoints(number);
    await getConfig(number);
    await getSamples(number);
  }
  const lines = status.waiting.map((one) => `Waiting: ${one}.`);
  if (status.left_out) lines.push(`${status.left_out} more runs are not shown.`);
  if (status.more) lines.push("Reading...");
  byId("message").textContent = lines.join("\n");
  draw();
  return status.more;
}

async function follow() {
  let wait = 2000;
  try {
    if (await update()) wait = 50;
  } catch (error) {
    failed(error);
  }
  setTimeout(follow, document.hidden ? 5 * wait : wait);
}

function start() {
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("controls").addEventListener("input", (event) => {
    if (event.target.id === "key") return;
    page.smooth = Number(byId("smooth").value);
    byId("smooth-value").textContent = byId("smooth").value;
    page.log = byId("log").checked;
    if (page.unit !== byId("unit").value) page.zoom = null;
    page.unit = byId("unit").value;
    draw();
  });
  byId("sample-controls").addEventListener("submit", (event) => event.preventDefault());
  byId("sample-step").addEventListener("input", (event) => {
    const steps = drawSamples.steps, at = Number(event.target.value);
    showSamples(at === steps.length - 1 ? null : steps[at]);
  });
  byId("whole").addEventListener("click", () => zoomTo(null));
  byId("key").addEventListener("change", () => update().catch(failed));
  window.addEventListener("resize", draw);
  follow();
}

if (typeof fetch === "function") start();
