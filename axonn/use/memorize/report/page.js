"use strict";

// Draws the page of a memorization report (page.html) from the JSON in its element "report".

// ---- Texts, as the terminal prints them.

// A number with so many digits; a tie goes to the even digit. JSON has null for nan.
function fixed(value, digits) {
  if (value === null) return "nan";
  const scaled = value * 10 ** digits, tie = value * 2 ** (digits + 1) % 2 === 1;
  return (tie ? 2 * Math.round(scaled / 2) / 10 ** digits : value).toFixed(digits);
}

function duration(seconds) {
  if (!(seconds > 0)) return "";
  if (seconds < 59.95) return fixed(seconds, 1) + "s";
  const whole = Math.round(seconds), two = (n) => String(Math.floor(n)).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${two(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h ${two(whole % 3600 / 60)}m`;
  return `${Math.floor(whole / 86400)}d ${two(whole % 86400 / 3600)}h`;
}

// Approximate width of a text: East Asian characters and pictographs take two columns, combining
// marks none.
function columns(text) {
  const wide = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60]/u;
  const one = (c) => /[\p{M}\p{Cf}]/u.test(c) ? 0
    : wide.test(c) || /[\u{1f300}-\u{1faff}\u{20000}-\u{3fffd}]/u.test(c) ? 2 : 1;
  return Array.from(text, one).reduce((sum, width) => sum + width, 0);
}

function shortened(text, most) {
  const kept = Array.from(text);
  if (columns(text) <= most) return text;
  while (columns(kept.join("")) > most - 3) kept.pop();
  return kept.join("") + "...";
}

const percent = (cell) => cell.trials > 0 ? fixed(cell.exact_percent, 1) : "-";

// The range over several trials, or the 95 % interval of one trial.
const range = (cell) => cell.trials === 1 ? [cell.exact_percent_low, cell.exact_percent_high]
  : [cell.exact_percent_min, cell.exact_percent_max];
const rangeText = (cell) =>
  cell.trials > 0 ? range(cell).map((end) => fixed(end, 1)).join(" to ") : "-";

const promptText = (length) => length === 0 ? "whole" : count(length);

// ---- The report, with lookups that several parts of the page share.

function viewOf(report) {
  const lengths = report.prompt_lengths, groups = report.groups.length;
  const rank = (prompt) => lengths[prompt] === 0 ? Number.MAX_VALUE : lengths[prompt];
  const offset = (prompt) => report.prompt_offsets[prompt] ?? -1;  // -1: before the suffix
  const suffix = (prompt) => report.prompt_suffixes[prompt] ?? report.suffix_tokens;
  const sorted = [...lengths.keys()].sort((a, b) =>
    rank(a) - rank(b) || offset(a) - offset(b) || suffix(a) - suffix(b));
  const prompts = sorted.filter((prompt) => offset(prompt) < 0  // shortest first
    && suffix(prompt) === report.suffix_tokens);
  const atOffsets = sorted.filter((prompt) => offset(prompt) >= 0);
  const bySuffix = sorted.filter((prompt) => offset(prompt) < 0 && sorted.some((other) =>
    offset(other) < 0 && lengths[other] === lengths[prompt] && suffix(other) !== suffix(prompt)));
  const variantText = (name) => name === "" || !report.by_loss ? name : name + " loss";
  const cell = (variant, group, prompt) =>
    report.summary[(variant * groups + group) * lengths.length + prompt];
  return {
    ...report, prompts, atOffsets, bySuffix, offset, suffix, cell, variantText,
    others: sorted.filter((prompt) => !prompts.includes(prompt)),
    shownP: report.p.includes(0.5) ? 0.5 : report.p[0],
    longest: (variant, group) => cell(variant, group, prompts.at(-1)),
    names: report.groups.map((group) => group.name),
    variantTexts: report.variants.map((variant) => variantText(variant.name)),
    severalTrials: report.variants.some((variant) => variant.trials > 1),
    label: (cell) => [cell.group, variantText(cell.variant)].filter((text) => text).join(", "),
  };
}

// ---- Charts.

const kLetter = 8;    // approximate pixels per column of text
const kPatterns = 4;  // fill patterns, dashes and marks tell colors apart for readers without them

// The shortest axis that covers `most`, with two to five steps; it ends between 5 and 100.
function percentAxis(most) {
  for (const step of [1, 2, 5, 10, 20]) {
    const top = step * Math.ceil(Math.max(most, 5) / step - 1e-9);
    if (top > 5 * step) continue;
    return {top, ticks: Array.from({length: top / step + 1}, (_, i) => i * step)};
  }
}

// Names a chart for readers that do not see it.
function describe(chart, id, title, text) {
  filled(chart, {"aria-labelledby": `${id}-title ${id}-desc`},
    [svg("title", {id: id + "-title"}, title), svg("desc", {id: id + "-desc"}, text)]);
}

const kBar = 21, kBetweenBars = 5, kBetweenGroups = 24;

function bar(variant, x, y, width, height) {
  const style = variant % kPatterns > 0 ? {style: `fill:url(#fill${variant})`} : {};
  return svg("rect", {class: `bar c${variant % 8}`, ...style, x, y, width, height});
}

function fillPatterns(variants) {
  const lines = (v) => v % kPatterns === 2 ? svg("circle", {cx: 4, cy: 4, r: 1.2})
    : svg("path", {d: v % kPatterns === 1 ? "M-2 2 2-2M0 8 8 0M6 10 10 6" : "M0 4H8"});
  const pattern = (v) => svg("pattern",
    {id: `fill${v}`, class: `c${v % 8}`, width: 8, height: 8, patternUnits: "userSpaceOnUse"},
    svg("rect", {class: "tint", width: 8, height: 8}), svg("g", {class: "hatch"}, lines(v)));
  const numbers = [...Array(variants).keys()].filter((v) => v % kPatterns > 0);  // 0 is solid
  return svg("defs", {}, ...numbers.map(pattern));
}

// The bar of a cell with its whiskers and its value.
function cellBar(view, cell, variant, frame, y) {
  const middle = y + kBar / 2;
  if (cell.trials === 0)
    return svg("text", {class: "soft", x: frame.left + 6, y: middle + 4.5}, "not tested");
  const end = frame.across(cell.exact_percent), [low, high] = range(cell).map(frame.across);
  const group = svg("g", {},
    svg("title", {}, `${view.label(cell)}: ${percent(cell)} % (${rangeText(cell)})`),
    bar(variant, frame.left, y, end - frame.left, kBar));
  const d = `M${fixed(low, 1)} ${middle}H${fixed(high, 1)}`
    + [low, high].map((x) => `M${fixed(x, 1)} ${middle - 4}v8`).join("");
  if (high - low >= 0.5)
    group.append(svg("path", {class: "halo", d}), svg("path", {class: "whisker", d}));
  group.append(svg("text", {class: "value", x: Math.max(end, high) + 8, y: middle + 4.5},
    percent(cell)));
  return group;
}

// One bar per group and variant, for the longest prompt. From top to bottom: legend, bars, axis.
function drawBars(view, chart) {
  const names = view.names.map((name) => shortened(name, 30));
  const variants = view.variants.length, cells = names.map((_, group) =>
    view.variants.map((_, variant) => view.longest(variant, group)));
  const left = kLetter * Math.max(0, ...names.map(columns)) + 20, right = 1000 - 52;
  const top = view.variantTexts.some((text) => text) ? 40 : 6;
  const height = variants * (kBar + kBetweenBars) - kBetweenBars + kBetweenGroups;
  const bottom = top + names.length * height;
  const ends = cells.flat().filter((cell) => cell.trials > 0).map((cell) => range(cell)[1]);
  const axis = percentAxis(Math.max(0, ...ends));
  const frame = {left, across: (value) => left + (right - left) * value / axis.top};
  filled(chart, {viewBox: `0 0 1000 ${bottom + 50}`}, []);
  describe(chart, "bars", "Exact match by group", cells.flat().map((cell) =>
    `${view.label(cell)}: ${cell.trials ? percent(cell) + " %" : "not tested"}. `).join(""));
  chart.append(fillPatterns(variants));
  let x = left;
  view.variantTexts.forEach((text, variant) => {
    if (text === "") return;
    const name = shortened(text, 30);
    chart.append(bar(variant, x, 6, 22, 13), svg("text", {x: x + 29, y: 17}, name));
    x += 56 + kLetter * columns(name);
  });
  for (const tick of axis.ticks) {
    const x = frame.across(tick);
    chart.append(
      svg("line", {class: tick ? "grid" : "axis", x1: x, x2: x, y1: top, y2: bottom}),
      svg("text", {class: "soft", x, y: bottom + 18, "text-anchor": "middle"}, `${tick}`));
  }
  chart.append(svg("text",
    {class: "soft", x: (left + right) / 2, y: bottom + 40, "text-anchor": "middle"},
    "exact match, % of the documents"));
  names.forEach((name, group) => {
    const y = top + group * height;
    chart.append(
      svg("text", {x: left - 10, y: y + height / 2 + 4.5, "text-anchor": "end"}, name),
      ...cells[group].map((cell, variant) => cellBar(view, cell, variant, frame,
        y + kBetweenGroups / 2 + variant * (kBar + kBetweenBars))));
  });
}

const kTop = 14, kBottom = 270, kCurveLeft = 48;

// The mark of a group, filled for the first four groups, open for the next four.
const markOf = (group, x, y) =>
  mark(group % kPatterns, x, y, Math.floor(group / kPatterns) % 2 ? "open" : "");

// Places labels near the heights that they want: moves them down until none overlap, then up if
// they went below the chart. Returns their heights.
function spread(wanted) {
  const line = 17, order = [...wanted.keys()].sort((a, b) => wanted[a] - wanted[b]), y = [];
  let free = -Infinity, floor = kBottom + 4;
  for (const i of order) free = (y[i] = Math.max(wanted[i], free)) + line;
  for (const i of order.reverse()) floor = (y[i] = Math.min(y[i], floor)) - line;
  return y;
}

// The horizontal grid and the labels of the x axis; labels that would overlap are left out, except
// the last one.
function curveGrid({axis, names, title}, frame) {
  const parts = axis.ticks.flatMap((tick) => {
    const y = frame.up(tick);
    const [x1, x2] = [kCurveLeft, frame.right + 8];
    return [
      svg("line", {class: tick ? "grid" : "axis", x1, x2, y1: y, y2: y}),
      svg("text", {class: "soft", x: x1 - 8, y: y + 4.5, "text-anchor": "end"}, `${tick}`)];
  });
  let free = -Infinity;
  const last = names.length - 1;
  names.forEach((name, i) => {
    const x = frame.across(i), half = kLetter * name.length / 2 + 4;
    if (x - half < free || (i < last && x + half > frame.across(last) - 24)) return;
    free = x + half;
    parts.push(svg("text", {class: "soft", x, y: kBottom + 20, "text-anchor": "middle"}, name));
  });
  return [...parts, svg("text",
    {class: "soft", x: (kCurveLeft + frame.right) / 2, y: kBottom + 44, "text-anchor": "middle"},
    title)];
}

// Wilson's 95 % interval of a share, in percent, as the report computes it.
function wilson(found, of) {
  const z = 1.959963984540054, p = found / of, weight = 1 / (1 + z * z / of);
  const half = weight * z * Math.sqrt(p * (1 - p) / of + z * z / (4 * of * of));
  const center = weight * (p + z * z / (2 * of));
  return [found === 0 ? 0 : 100 * (center - half), found === of ? 100 : 100 * (center + half)];
}
// The 95 % interval of a mean with a standard error; none if that is not known.
const aroundMean = (mean, error) =>
  error === null ? [] : [Math.max(0, mean - 1.96 * error), mean + 1.96 * error];

// The band between the ends of the intervals of a line's points, as far as they have one.
function band(points, frame) {
  const known = points.filter(({ends}) => ends?.length === 2);
  const at = (end) => ({i, ends}) =>
    `${fixed(frame.across(i), 1)},${fixed(frame.up(ends[end]), 1)}`;
  return known.length < 2 ? [] : [svg("polygon", {class: "band",
    points: [...known.map(at(1)), ...known.map(at(0)).reverse()].join(" ")})];
}

// A chart of lines over equal steps. `names`: of the steps; `title`: of their axis; axis: makes
// that of the values from the largest one. A line has a name, a color, the number of its dashes and
// marks, and points {i, value, tip, ends}: the step, the value, both in words, and the ends of its
// interval if it has one, which are drawn as a band.
function lineChart({id, label, alone, axis: axisOf, names, title, lines}) {
  const axis = axisOf(Math.max(0, ...lines.flatMap(({points}) =>
    points.map(({value, ends = []}) => Math.max(value, ...ends)))));
  const legend = lines.map((line) => shortened(line.name, 22));
  const width = alone ? 1000 : 490, last = names.length - 1;
  const right = width - kLetter * Math.max(0, ...legend.map(columns)) - 38;
  const frame = {right,
    across: (i) => kCurveLeft + 14 + (right - kCurveLeft - 14) * i / Math.max(last, 1),
    up: (value) => kBottom - (kBottom - kTop) * value / axis.top};
  const chart = svg("svg", {class: alone ? "alone" : "", viewBox: `0 0 ${width} 330`, role: "img"});
  describe(chart, id, label, lines.map(({name, points}) =>
    `${name}: ${points.map(({tip}) => tip).join(", ") || "not tested"}. `).join(""));
  chart.append(...curveGrid({axis, names, title}, frame));
  const at = ({i, value}) => [frame.across(i), frame.up(value)];
  for (const {name, color, number, points} of lines)
    chart.append(svg("g", {class: `c${color % 8}`}, ...band(points, frame),
      svg("polyline", {class: `curve dash${number % kPatterns}`,
        points: points.map((point) => at(point).map((v) => fixed(v, 1)).join()).join(" ")}),
      ...points.map((point) => svg("g", {}, svg("title", {}, `${name}: ${point.tip}`),
        markOf(number, ...at(point))))));
  const ends = lines.map((line, i) => ({...line, legend: legend[i], end: line.points.at(-1)}))
    .filter(({end}) => end?.i === last);
  const heights = spread(ends.map(({end}) => frame.up(end.value)));
  ends.forEach(({color, number, legend: text}, i) => chart.append(svg("g", {class: `c${color % 8}`},
    markOf(number, right + 20, heights[i]),
    svg("text", {x: right + 30, y: heights[i] + 4.5}, text))));
  return chart;
}

// Exact matches over prompts, one line per group, for one variant. The first two colors are left to
// the variants. tip: what follows the percentage of a prompt of this name.
function promptChart(view, {variant, id, alone, prompts, names, title, tip}) {
  const suffix = view.variantTexts[variant] && ", " + view.variantTexts[variant];
  return lineChart({
    id: id + variant, alone, names, title, label: `Exact match by ${title}${suffix}`,
    axis: () => percentAxis(Math.max(...view.summary.map((cell) => range(cell)[1]))),
    lines: view.names.map((name, group) => ({name, color: 2 + group, number: group,
      points: prompts.map((prompt, i) => ({cell: view.cell(variant, group, prompt), i}))
        .filter(({cell}) => cell.trials > 0)
        .map(({cell, i}) => ({i, value: cell.exact_percent, ends: range(cell),
          tip: `${percent(cell)} % ${tip(names[i])}`}))}))});
}

// The charts by prompt length, one per variant.
const promptFigures = (view) => view.variantTexts.map((text, variant) =>
  figure({...kExactMatch, caption: text, title: ["Exact match", text].filter(Boolean).join(", ")},
    promptChart(view, {variant, id: "prompt", alone: view.variants.length === 1,
      prompts: view.prompts, title: "tokens of the prompt",
      names: view.prompts.map((prompt) => promptText(view.prompt_lengths[prompt])),
      tip: (name) => `with ${name === "whole" ? "the whole prompt" : name + " tokens"}`}),
    `exact-match-by-prompt-${variant + 1}`));

// Charts of prompts that differ in `of` them; one per variant and caption: what they share.
const sweepFigures = (view, {all, caption, of, id, title, tip}) => view.variantTexts.flatMap(
  (text, variant) => [...new Set(all.map(caption))].map((same, number) => {
    const prompts = all.filter((prompt) => caption(prompt) === same);
    const words = [same, text].filter(Boolean).join(", ");
    return figure({...kExactMatch, caption: words, title: `Exact match, ${words}`},
      promptChart(view, {variant, id: `${id}${number}-`, alone: false, prompts, title, tip,
        names: prompts.map((prompt) => count(of(prompt)))}),
      `exact-match-by-${id}-${number + 1}-${variant + 1}`);
  }));

const promptCaption = (view, prompt) => view.prompt_lengths[prompt] === 0 ? "The whole prompt"
  : `A prompt of ${count(view.prompt_lengths[prompt])} tokens`;
// By the place of the prompt in the document.
const offsetFigures = (view) => sweepFigures(view, {all: view.atOffsets, of: view.offset,
  id: "offset", title: "tokens before the prompt", tip: (name) => `after ${name} tokens`,
  caption: (prompt) => promptCaption(view, prompt) + (view.suffix(prompt) === view.suffix_tokens
    ? "" : ` and a suffix of ${count(view.suffix(prompt))}`)});

// By the length of the suffix.
const suffixFigures = (view) => sweepFigures(view, {all: view.bySuffix, of: view.suffix,
  id: "suffix", title: "tokens of the suffix", tip: (name) => `of all ${name} tokens`,
  caption: (prompt) => promptCaption(view, prompt)});

// The shortest axis from 0 that covers `most`, with two to five steps.
function axisTo(most) {
  for (let power = 10 ** Math.floor(Math.log10(most > 0 ? most : 1) - 1); ; power *= 10)
    for (const step of [1, 2, 5].map((factor) => factor * power)) {
      const steps = Math.max(2, Math.ceil(most / step - 1e-9));
      if (steps > 5) continue;
      const ticks = Array.from({length: steps + 1}, (_, i) => +(i * step).toPrecision(6));
      return {top: ticks.at(-1), ticks};
    }
}

const kExactMatch = {title: "Exact match", unit: "% of the documents"};

// The figures that epochs change, for the longest prompt.
const figuresOver = (view) => [
  {...kExactMatch, id: "exact", of: (cell) => cell.exact_percent, digits: 1, axis: percentAxis,
    ends: range},
  {id: "run", title: "Longest run", unit: `tokens, of ${count(view.suffix_tokens)}`,
    of: (cell) => cell.longest_run, digits: 1, axis: axisTo,
    ends: (cell) => aroundMean(cell.longest_run, cell.longest_run_error)},
  {id: "loss", title: "Loss", unit: "nats a token", of: (cell) => cell.loss, digits: 3,
    axis: axisTo, ends: (cell) => aroundMean(cell.loss, cell.loss_error)}];

// A figure over the epochs of the groups, one line per variant, with the color of its bars.
function epochChart(view, figure) {
  const epochs = view.groups.map((group) => group.epochs);
  const order = [...epochs.keys()].sort((a, b) => epochs[a] - epochs[b]);
  const names = order.map((group) => count(epochs[group]));
  const lines = view.variants.map(({name}, variant) => ({name, color: variant, number: variant,
    points: order.map((group, i) => ({cell: view.longest(variant, group), i}))
      .filter(({cell}) => cell.trials > 0 && figure.of(cell) !== null)
      .map(({cell, i}) => ({i, value: figure.of(cell), ends: figure.ends(cell),
        tip: `${fixed(figure.of(cell), figure.digits)} after ${names[i]} epochs`}))}));
  return lineChart({id: `epochs-${figure.id}`, alone: false, names, title: "epochs", lines,
    label: `${figure.title}, ${figure.unit}, by epochs`,
    axis: figure.axis});
}

// ---- Figures with a button that saves them.

const figure = ({caption = "", title, unit}, chart, name) => html("figure", {},
  ...caption ? [html("figcaption", {}, caption)] : [], chart,
  svgButton(chart, name, () => ({title, unit})));

// ---- Tables.

const headRow = (titles) => html("thead", {}, html("tr", {}, ...titles.map((title, i) =>
  html("th", {scope: "col", ...i === 0 && {class: "name"}}, title))));
const bodyRow = (first, rest) => html("tr", {}, html("th", {scope: "row"}, first),
  ...rest.map((text) => html("td", {}, text)));

function figures(cell) {
  if (cell.trials === 0) return Array(6).fill("-");
  return [percent(cell), rangeText(cell), fixed(cell.longest_run, 1),
    fixed(100 * cell.token_accuracy, 1), fixed(cell.edit_distance, 1), fixed(cell.loss, 3)];
}

// The meaning of the ranges, as a title and in words; the last one if the cells differ.
function rangeMeaning(view) {
  const tested = view.summary.filter((cell) => cell.trials > 0);
  const once = tested.filter((cell) => cell.trials === 1).length;
  if (once === 0) return ["Range over trials", "the range over trials"];
  if (once === tested.length) return ["95 % interval", "the 95 % interval (Wilson) of the share"];
  return ["Range or interval",
    "the range over trials, or the 95 % interval (Wilson) where there is one trial"];
}

function cellsTable(view, table) {
  const several = view.prompt_lengths.length > 1;
  const titles = ["Group", ...several ? ["Prompt"] : [], "Documents", "Exact match\u00a0%",
    rangeMeaning(view)[0], "Longest run", "Tokens right\u00a0%", "Edit distance",
    "Loss, nats a\u00a0token"];
  table.append(headRow(titles), ...view.variantTexts.map((text, variant) => html("tbody", {},
    ...text ? [html("tr", {}, html("th",
      {class: "variant", scope: "rowgroup", colspan: titles.length}, text))] : [],
    ...view.names.flatMap((name, group) => [...view.prompts, ...view.others].map((prompt) => {
      const cell = view.cell(variant, group, prompt);
      const length = promptText(view.prompt_lengths[prompt]);
      const at = (view.offset(prompt) < 0 ? "" : ` after ${count(view.offset(prompt))}`)
        + (view.suffix(prompt) === view.suffix_tokens ? ""
          : `, suffix ${count(view.suffix(prompt))}`);
      return bodyRow(html("a", {href: `#group-${group}`}, name),
        [...several ? [length + at] : [], count(cell.documents),
          ...figures(cell)]);
    })))));
}

// The runs, without columns that are empty in all of them.
function runsTable(view, table) {
  const rows = [["Loss", "Trial", "Seed", "Validation loss", "Tokens kept %",
    "Training after warm-up", "Testing"], ...view.runs.map((run) => [
    view.variantText(run.variant), count(run.trial), run.seed,
    run.validation_loss === null ? "" : fixed(run.validation_loss, 3),
    run.kept_fraction === null ? "" : fixed(100 * run.kept_fraction, 1),
    duration(run.train_seconds), duration(run.test_seconds)])];
  const used = rows[0].map((_, i) => rows.slice(1).some((row) => row[i] !== ""));
  const [titles, ...body] = rows.map((row) => row.filter((_, i) => used[i]));
  table.append(headRow(titles),
    html("tbody", {}, ...body.map(([first, ...rest]) => bodyRow(first, rest))));
}

// ---- Origin.

function originTable({origin}, table) {
  const rows = [["Program", origin.program], ["Date", origin.date], ["Command", origin.command],
    ["Machine", origin.machine]].filter(([, text]) => text !== "");
  table.append(html("tbody", {}, ...rows.map(([name, text]) => bodyRow(name, [text]))));
}

// ---- The page.

function show(report) {
  const view = viewOf(report), tokens = count(report.suffix_tokens);
  document.title = `${report.title}: ${report.model}`;
  filled(byId("title"), {}, [report.title]);
  filled(byId("model"), {}, [report.model]);
  const stamp = [report.origin.program, report.origin.date].filter((text) => text);
  filled(byId("stamp"), {}, [stamp.join(", ")]);
  const headline = report.headline.replace(/"([^"]*)"/g, "\u201c$1\u201d");
  filled(byId("headline"), {}, [headline.replaceAll(" %", "\u00a0%")]);
  byId("notes").append(...report.notes.map((note) => html("li", {}, note)));
  originTable(report, byId("origin"));
  if (report.origin.config === "") byId("config").remove();
  else filled(byId("config-text"), {}, [report.origin.config]);
  if (report.summary.length === 0) return byId("main").remove();

  const prompt = view.prompts.length === 1 ? "" : " Shown for the longest prompt ("
    + promptText(view.prompt_lengths[view.prompts.at(-1)]) + ").";
  filled(byId("bars-hint"), {}, ["Share of documents for which the model writes all "
    + `${tokens} tokens exactly. Bars are means over trials; whiskers show `
    + `${rangeMeaning(view)[1]}.${prompt}`]);
  drawBars(view, byId("bars"));
  byId("bars-figure").append(svgButton(byId("bars"), "exact-match", () => kExactMatch));
  const parts = view.groups.some(({from}) => from !== undefined);
  if (parts) byId("times").append(...doseFigures(view));
  else byId("by-times").remove();
  if (view.curves.length === 0) byId("by-step").remove();
  else byId("steps").append(...measuredFigures(view));
  if (parts || view.groups.some(({epochs}) => epochs === undefined)) byId("by-epochs").remove();
  else byId("epochs").append(...figuresOver(view).map((one) =>
    figure({...one, caption: `${one.title}, ${one.unit}`}, epochChart(view, one),
      `${one.id}-by-epochs`)));
  if (view.prompts.length === 1) byId("by-prompt").remove();
  else byId("curves").append(...promptFigures(view));
  if (!view.bySuffix.length) byId("by-suffix").remove();
  else byId("suffixes").append(...suffixFigures(view));
  if (view.atOffsets.length === 0) byId("by-offset").remove();
  else byId("offsets").append(...offsetFigures(view));
  if (view.suffixes.length === 0) byId("extraction").remove();
  else byId("policies").append(...policyFigures(view));
  for (const [key, table, fill] of [["near", "near-rates", nearTable],
    ["capacity", "capacities", capacityTable], ["exposure", "exposures", exposureTable],
    ["matched", "matched-rates", matchedTable], ["membership", "separations", separationsTable],
    ["against_reference", "reference-distances", distancesTable],
    ["references", "reference-figures", referencesTable],
    ["influences", "influence-pairs", influencesTable]]) {
    if (view[key].length === 0) byId(key).remove();
    else fill(view, byId(table));
  }
  cellsTable(view, byId("cells"));
  filled(byId("cells-hint"), {}, ["Means over documents and trials. Longest run: tokens of the "
    + `longest common run, of ${tokens}. Tokens right: share of positions with equal tokens. Edit `
    + "distance: tokens inserted, deleted or replaced. Loss: of the document\u2019s own tokens."]);
  runsTable(view, byId("runs"));
  if (report.runs.every((run) => run.kept_fraction === null)) byId("runs-hint").remove();
  byId("passages").append(...passages(view));
}

const report = JSON.parse(byId("report").textContent);
if (report) show(report);
