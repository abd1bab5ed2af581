"use strict";

// The charts of axonn board: texts, scales, curves, and the pointer on them. page.js has the rest
// of the page.

// ---- Texts.

const kMinus = "\u2212";
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

// Four digits: 2.732, 12.5k, 3e-4.
function short(value) {
  if (!isNumber(value)) return "-";
  const size = Math.abs(value), sign = value < 0 ? kMinus : "";
  if (size === 0) return "0";
  if (size < 1e-2 || size >= 1e18)
    return sign + size.toExponential(2).replace(/\.?0*e\+?/, "e");
  const [scale, suffix] = size < 9999.5 ? [1, ""]
    : [[1e3, "k"], [1e6, "M"], [1e9, "G"], [1e12, "T"], [1e15, "P"]].findLast(
      ([scale]) => size >= scale * 0.99995);
  return sign + String(+(size / scale).toPrecision(4)) + suffix;
}

function bytes(value) {
  if (!isNumber(value)) return "-";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(4, Math.max(0, Math.floor(Math.log2(Math.max(1, value)) / 10)));
  return `${+(value / 1024 ** power).toPrecision(4)} ${units[power]}`;
}

function duration(seconds) {
  if (!isNumber(seconds)) return "-";
  const whole = Math.round(seconds), two = (n) => String(Math.floor(n)).padStart(2, "0");
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} m ${two(whole % 60)} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${two(whole % 3600 / 60)} m`;
  return `${Math.floor(whole / 86400)} d ${two(whole % 86400 / 3600)} h`;
}

// ---- Scales.

// Round numbers from low to high, about `most`.
function ticks(low, high, most) {
  if (!(high > low)) return [low];
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= rough * 0.8);
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  return Array.from({length: last - first + 1}, (_, i) => +((first + i) * step).toPrecision(12));
}

// Powers of ten, with their 2 and 5 if there are few; for less than a decade, round numbers.
function logTicks(low, high, most) {
  const found = [];
  const decades = Math.log10(high / low), stride = Math.max(1, Math.ceil(decades / most));
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); ++power)
    for (const one of decades > most / 2 ? [1] : [1, 2, 5])
      if (power % stride === 0) found.push(+(one * 10 ** power).toPrecision(12));
  const inside = found.filter((one) => one >= low * 0.9999 && one <= high * 1.0001);
  return inside.length >= 2 ? inside : ticks(low, high, most).filter((one) => one > 0);
}

// A scale from values to pixels: {to(value), from(pixel), ticks, low, high}.
function scaleOf(values, pixels, {log = false, zero = false, exact = false, most = 5} = {}) {
  let low = Infinity, high = -Infinity;
  for (const value of values)
    if (isNumber(value) && (!log || value > 0)) {
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  if (low > high) [low, high] = log ? [0.1, 1] : [0, 1];
  if (zero && !log) low = Math.min(0, low);
  if (low === high) {
    const room = exact ? 1 : Math.abs(low) * 0.1 || 1;
    [low, high] = log ? [low / 1.2, high * 1.2] : [zero ? low : low - room, high + room];
  } else if (!exact) {
    const room = 0.05 * (high - low);
    [low, high] = log ? [low / (high / low) ** 0.05, high * (high / low) ** 0.05]
      : [zero && low === 0 ? 0 : low - room, high + room];
  }
  const bend = log ? Math.log : (value) => value, back = log ? Math.exp : bend;
  const slope = (pixels[1] - pixels[0]) / (bend(high) - bend(low));
  return {
    low, high, ticks: (log ? logTicks : ticks)(low, high, most),
    to: (value) => pixels[0] + (bend(value) - bend(low)) * slope,
    from: (pixel) => back(bend(low) + (pixel - pixels[0]) / slope),
  };
}

// Exponential moving average over points, corrected for its start. Keeps gaps.
function smoothed(values, keep) {
  let sum = 0, weight = 0;
  return values.map((value) => {
    if (!isNumber(value)) return value;
    sum = keep * sum + (1 - keep) * value;
    weight = keep * weight + 1 - keep;
    return sum / weight;
  });
}

// Joins points so that about `most` are left, which do not hide each other: their means, with the
// range of each. A joined value is null only if all are.
function thinned(curve, most) {
  const step = Math.ceil(curve.xs.length / most);
  if (step <= 1) return curve;
  const groups = Array.from({length: Math.ceil(curve.xs.length / step)}, (_, i) => i * step);
  const join = (values, how) => groups.map((from) => {
    const part = values.slice(from, from + step).filter(isNumber);
    return part.length ? how(part) : null;
  });
  const mean = (part) => part.reduce((sum, one) => sum + one, 0) / part.length;
  return {...curve, xs: join(curve.xs, mean), values: join(curve.values, mean),
    low: join(curve.low || curve.values, (part) => Math.min(...part)),
    high: join(curve.high || curve.values, (part) => Math.max(...part)),
    validation: curve.validation && join(curve.validation, (part) => part.at(-1))};
}

// ---- Points of a run: {generation, width, first_step, last_step, series}.

const haveOf = (points) => points ? points.first_step.length : 0;

// Adds new points to those that the page has; new ones replace old ones with the same number.
function merged(old, got) {
  if (!old || got.first === 0 || got.generation !== old.generation || got.width !== old.width)
    return got;
  const join = (before, after) => [...before.slice(0, got.first), ...after];
  const series = {};
  for (const [name, parts] of Object.entries(got.series)) {
    series[name] = {};
    for (const [part, values] of Object.entries(parts)) {
      const before = old.series[name] ? old.series[name][part] : Array(got.first).fill(null);
      series[name][part] = join(before, values);
    }
  }
  return {...got, first: 0, series, first_step: join(old.first_step, got.first_step),
    last_step: join(old.last_step, got.last_step)};
}

function xsOf(points, unit) {
  if (unit === "step") return points.last_step.map((last, i) => (last + points.first_step[i]) / 2);
  return points.series[unit] ? points.series[unit].mean : [];
}

// The steps that a range of x covers, with a point to either side.
function stepsOf(points, unit, [low, high]) {
  const xs = xsOf(points, unit);
  const from = Math.max(0, xs.findIndex((x) => x >= low) - 1);
  const to = Math.min(xs.length - 1, xs.findLastIndex((x) => x <= high) + 1);
  return [points.first_step[from], points.last_step[to]];
}

// ---- What the page shows.

const kUnits = {
  step: {title: "step", text: (x) => `step ${count(Math.round(x))}`},
  tokens: {title: "tokens", text: (x) => `${short(x)} tokens`},
  seconds: {title: "time of training", text: (x) => duration(x)},
};

// A chart shows a series of every run. parts: of one run alone, the series with this prefix.
const kCharts = [
  {name: "loss", title: "Loss", unit: "nats per token", validation: "val_loss"},
  {name: "val_loss_ema", title: "Validation of averaged weights", unit: "nats per token",
    sparse: true},
  {name: "tokens_per_s", title: "Speed", unit: "tokens/s", zero: true},
  {name: "exposed_comm_ms", title: "Exposed communication", unit: "ms per step of rank 0",
    zero: true, parts: "exposed_comm_ms/", hidesZeros: true},  // one rank has no communication
  {name: "memory_bytes", title: "Memory", unit: "peak of rank 0", text: bytes, zero: true},
  {name: "grad_norm", title: "Gradient norm", unit: "before clipping"},
  {name: "lr", title: "Learning rate", unit: "", zero: true},
  {name: "mfu", title: "Model flops utilisation", unit: "share of the peak", zero: true},
  {name: "step_ms", title: "Step time", unit: "ms", zero: true},
  {name: "max_expert_load", title: "Load of experts", unit: "busiest over the mean of its layer"},
  {name: "balance_loss", title: "Balance of experts", unit: "1 if equally busy"},
  {name: "router_z_loss", title: "Logits of routers", unit: "mean squared log-sum"},
  {name: "goldfish_kept", title: "Goldfish loss", unit: "share of targets counted"},
];
// Not worth a chart: an axis, a product of others, or shown as a note.
const kNoChart = ["tokens", "seconds", "time", "model_tflops", "skipped", "no_targets",
  "save_failures", "val_loss"];

const page = {
  runs: [], points: [], details: [], configs: [], samples: [], hidden: new Set(),
  sampleStep: null,  // of the samples that are shown; null: the newest
  unit: "step", log: false, smooth: 0, zoom: null, drag: null,
};

// Dashes and marks together tell 16 curves apart without their colors.
const styleOf = (number) => `c${number % 8} dash${number % 4}`;

// The mark of a curve. The first four shapes come again in another order with the same colors.
const markOf = (number, x, y, more = "") =>
  mark((number + (number >> 2)) % 4, x, y, `c${number % 8} ${more}`.trim());

const sample = (number) => svg("svg",
  {class: "sample", viewBox: "0 0 34 12", "aria-hidden": "true"},
  svg("path", {class: `curve ${styleOf(number)}`, d: "M0 6H34"}), markOf(number, 17, 6));

// The points to draw of a run: in detail while a part of it is shown.
const pointsOf = (number) => page.zoom && page.details[number] || page.points[number];

// The curves of a chart: {number, label, xs, points, values, low, high, validation}.
function curvesOf(chart) {
  const shown = page.runs.map((run, number) => number)
    .filter((number) => !page.hidden.has(number) && haveOf(pointsOf(number)) > 0);
  const curve = (number, style, label, name) => {
    const points = pointsOf(number), series = points.series[name];
    const has = series && (series.mean.some(isNumber) || name === "loss");
    if (!has || chart.hidesZeros && series.mean.every((value) => !value)) return [];
    const validation = chart.validation && points.series[chart.validation];
    return [{number: style, label, points, xs: xsOf(points, page.unit), values: series.mean,
      low: series.low, high: series.high, validation: validation ? validation.mean : null,
      sparse: chart.sparse}];
  };
  const curves = shown.flatMap((number) =>
    curve(number, number, page.runs[number].name, chart.name));
  if (!chart.parts || shown.length !== 1) return curves;
  const names = Object.keys(pointsOf(shown[0]).series).filter((one) => one.startsWith(chart.parts));
  if (names.length === 0) return curves;
  return [...curves.map((one) => ({...one, label: "all", isPart: true})),
    ...names.flatMap((name, i) => curve(shown[0], shown[0] + i + 1,
      name.slice(chart.parts.length), name)).map((one) => ({...one, isPart: true}))];
}

// ---- A chart.

const kPixelsPerPoint = 2;
const kMostBands = 2;  // ranges of more curves would hide each other; the pointer shows them
const kFrame = {left: 56, right: 12, top: 10, bottom: 34, height: 236};

// Draws with M and L; a gap where a value is missing.
function line(xs, values, across, up, skipsGaps = false) {
  let d = "", draws = false;
  values.forEach((value, i) => {
    const y = isNumber(value) && isNumber(xs[i]) ? up.to(value) : NaN;
    if (Number.isFinite(y))
      d += `${draws ? "L" : "M"}${across.to(xs[i]).toFixed(1)} ${y.toFixed(1)}`;
    draws = Number.isFinite(y) || draws && skipsGaps;
  });
  return d;
}

function band(curve, across, up) {
  const there = [], back = [];
  curve.xs.forEach((x, i) => {
    if (!isNumber(x) || !isNumber(curve.low[i])) return;
    const low = up.to(Math.max(up.low, curve.low[i]));
    const high = up.to(Math.min(up.high, curve.high[i]));
    if (!Number.isFinite(low + high)) return;
    there.push(`${across.to(x).toFixed(1)} ${high.toFixed(1)}`);
    back.unshift(`${across.to(x).toFixed(1)} ${low.toFixed(1)}`);
  });
  return there.length > 1 ? `M${there.join("L")}L${back.join("L")}Z` : "";
}

function drawCurve(curve, across, up) {
  const parts = [];
  const style = `curve ${styleOf(curve.number)}`;
  if (curve.hasBand) parts.push(svg("path", {class: `band c${curve.number % 8}`,
    d: band(curve, across, up)}));
  if (page.smooth > 0) parts.push(svg("path", {class: `${style} raw`,
    d: line(curve.xs, curve.values, across, up)}));
  parts.push(svg("path", {class: style, d: line(curve.xs, curve.main, across, up, curve.sparse)}));
  const isDrawn = (values, i) => isNumber(curve.xs[i]) && isNumber(values[i])
    && Number.isFinite(up.to(values[i]));  // a log scale has no place for 0
  const marked = (values, i, more) =>
    markOf(curve.number, across.to(curve.xs[i]), up.to(values[i]), more);
  const {main, validation} = curve;
  if (validation) {
    parts.push(svg("path", {class: `${style} validation`,
      d: line(curve.xs, validation, across, up, true)}));
    const at = [...validation.keys()].filter((i) => isDrawn(validation, i));
    const stride = Math.ceil(at.length / 25);
    for (const i of at.filter((_, n) => (at.length - 1 - n) % stride === 0))
      parts.push(marked(validation, i, "open"));
  }
  const last = main.findLastIndex((_, i) => isDrawn(main, i));
  if (last >= 0) parts.push(marked(main, last));
  return parts;
}

// Crosses at the top, where a loss was not finite.
function crosses({all}, across) {
  const at = all.values.map((value, i) => [value, all.xs[i]])
    .filter(([value, x]) => value === null && isNumber(x)).map(([, x]) => across.to(x));
  const apart = at.filter((x, i) => i === 0 || x - at[i - 1] > 6).slice(0, 200);
  const d = apart.map((x) => `M${(x - 4).toFixed(1)} ${kFrame.top + 2}l8 8m0-8l-8 8`).join("");
  return d ? [svg("path", {class: "nan", d}, svg("title", {}, "not finite"))] : [];
}

function axes(chart, across, up, size, xText) {
  const text = chart.text || short, bottom = kFrame.height - kFrame.bottom;
  const parts = up.ticks.flatMap((tick) => [
    svg("path", {class: "grid", d: `M${kFrame.left} ${up.to(tick).toFixed(1)}H${size.right}`}),
    svg("text", {x: kFrame.left - 7, y: up.to(tick) + 4, "text-anchor": "end"}, text(tick))]);
  for (const tick of across.ticks)
    parts.push(svg("path", {class: "axis", d: `M${across.to(tick).toFixed(1)} ${bottom}v4`}),
      svg("text", {x: across.to(tick), y: bottom + 17, "text-anchor": "middle"}, xText(tick)));
  parts.push(svg("path", {class: "axis", d: `M${kFrame.left} ${bottom}H${size.right}`}),
    svg("text", {x: (kFrame.left + size.right) / 2, y: bottom + 31, "text-anchor": "middle"},
      across.title));
  return parts;
}

// The scale of x with its title; times in the unit that suits their length.
function acrossOf(curves, width) {
  const values = page.zoom || curves.flatMap((one) => one.xs);
  const most = Math.max(2, Math.floor((width - kFrame.left) / 85));
  const across = scaleOf(values, [kFrame.left, width - kFrame.right], {exact: true, most});
  if (page.unit !== "seconds") {
    across.ticks = across.ticks.filter((tick) => Number.isInteger(tick) && tick >= 0);
    return [across, kUnits[page.unit].title, short];
  }
  const [scale, name] = [[1, "s"], [60, "min"], [3600, "h"], [86400, "days"]].findLast(
    ([one]) => across.high >= 3 * one) || [1, "s"];
  across.ticks = ticks(across.low / scale, across.high / scale, most).map((one) => one * scale);
  return [across, `time of training (${name})`, (tick) => short(tick / scale)];
}

// The points within the part that is shown, with one to either side.
function shownPart(curve) {
  if (!page.zoom) return curve;
  const inside = curve.xs.map((x) => x >= page.zoom[0] && x <= page.zoom[1]);
  const keep = (values) => values && values.filter((_, i) =>
    inside[i] || inside[i - 1] || inside[i + 1]);
  return {...curve, xs: keep(curve.xs), values: keep(curve.values), low: keep(curve.low),
    high: keep(curve.high), validation: keep(curve.validation)};
}

// Draws a chart into its figure, and keeps what the pointer needs.
function drawChart(figure) {
  const {chart, plot} = figure;
  const all = curvesOf(chart);
  figure.box.hidden = all.length === 0;
  if (all.length === 0) return;
  const width = plot.clientWidth || 520, size = {right: width - kFrame.right};
  const [across, title, xText] = acrossOf(all, width);
  across.title = title;
  const curves = all.map((one) => {
    const part = shownPart(one), ends = [part.xs.find(isNumber), part.xs.findLast(isNumber)];
    const most = (across.to(ends[1]) - across.to(ends[0])) / kPixelsPerPoint;
    return {...thinned(part, Math.max(1, most || 1)), all: one};
  });
  for (const curve of curves) {
    curve.main = page.smooth > 0 ? smoothed(curve.values, page.smooth) : curve.values;
    curve.hasBand = curve.low && curves.length <= kMostBands;
  }
  const heights = curves.flatMap((one) => [...one.main, ...one.validation || []]);
  const up = scaleOf(heights, [kFrame.height - kFrame.bottom, kFrame.top],
    {log: page.log, zero: chart.zero});
  if (chart.text === bytes && !page.log) up.ticks = byteTicks(up);
  const clip = `clip-${chart.name}`.replace(/[^\w-]/g, "_");
  const parts = [
    svg("clipPath", {id: clip}, svg("rect", {x: kFrame.left, y: kFrame.top - 6,
      width: Math.max(0, size.right - kFrame.left) + 8,
      height: kFrame.height - kFrame.bottom - kFrame.top + 12})),
    ...axes(chart, across, up, size, xText),
    svg("g", {"clip-path": `url(#${clip})`},
      ...curves.flatMap((curve) => drawCurve(curve, across, up)),
      ...chart.name === "loss" ? curves.flatMap((curve) => crosses(curve, across)) : [])];
  plot.replaceChildren(...parts);
  filled(plot, {viewBox: `0 0 ${width} ${kFrame.height}`, height: kFrame.height, role: "img",
    "aria-label": `${chart.title}. ` + curves.map((curve) => `${curve.label}: `
      + (chart.text || short)(curve.main.findLast(isNumber))).join("; ")}, []);
  figure.keys.replaceChildren(...curves.filter((one) => one.isPart).map((one) =>
    html("span", {}, sample(one.number), one.label)));
  Object.assign(figure, {across, up, curves});
  showTip(figure);
}

// Round numbers of bytes.
function byteTicks(up) {
  const unit = 1024 ** Math.floor(Math.log2(Math.max(1, up.high)) / 10);
  return ticks(up.low / unit, up.high / unit, 5).map((one) => one * unit);
}

// ---- The pointer on a chart.

function nearest(xs, x) {
  let best = -1;
  xs.forEach((one, i) => {
    if (isNumber(one) && (best < 0 || Math.abs(one - x) < Math.abs(xs[best] - x))) best = i;
  });
  return best;
}

// The point of a curve at an x, or -1 if x lies more than a few pixels beyond the curve's ends.
function pointAt(figure, curve, x) {
  const kReach = 12, i = nearest(curve.xs, x);
  const isInside = curve.xs.some((one) => isNumber(one) && one <= x)
    && curve.xs.some((one) => isNumber(one) && one >= x);
  const pixels = (one) => figure.across.to(one);
  return i < 0 || isInside || Math.abs(pixels(curve.xs[i]) - pixels(x)) <= kReach ? i : -1;
}

// The rows of values at an x: [curve's number, label, text].
function valuesAt(figure, x) {
  const text = figure.chart.text || short;
  return figure.curves.flatMap((curve) => {
    const i = pointAt(figure, curve, x);
    if (i < 0) return [];
    const value = curve.main[i], rows = [];
    const spread = curve.low && isNumber(curve.low[i])
      ? ` (${text(curve.low[i])} to ${text(curve.high[i])})` : "";
    rows.push([curve.number, curve.label, isNumber(value) ? text(value) + spread : "not finite"]);
    if (curve.validation && isNumber(curve.validation[i]))
      rows.push([curve.number, `${curve.label}, validation`, text(curve.validation[i])]);
    return rows;
  });
}

function showTip(figure) {
  for (const old of figure.overlay) old.remove();
  figure.overlay = [];
  figure.tip.hidden = figure.at === null;
  if (figure.at === null) return;
  const {across} = figure, bottom = kFrame.height - kFrame.bottom;
  const x = Math.min(across.high, Math.max(across.low, figure.at)), pixel = across.to(x);
  const first = figure.curves.find((curve) => pointAt(figure, curve, x) >= 0);
  const at = first ? first.xs[pointAt(figure, first, x)] : x;
  const upright = `M${pixel.toFixed(1)} ${kFrame.top}V${bottom}`;
  figure.overlay.push(svg("path", {class: "cursor", d: upright}));
  if (page.drag && page.drag.figure === figure) {
    const from = across.to(page.drag.from);
    figure.overlay.push(svg("rect", {class: "select", x: Math.min(from, pixel), y: kFrame.top,
      width: Math.abs(pixel - from), height: bottom - kFrame.top}));
  }
  figure.plot.append(...figure.overlay);
  figure.tip.replaceChildren(html("div", {class: "soft"}, kUnits[page.unit].text(at)),
    ...valuesAt(figure, x).map(([number, label, text]) =>
      html("div", {}, sample(number), html("span", {class: "who"}, label), html("b", {}, text))));
  const isLeft = pixel > (figure.plot.clientWidth || 520) / 2;
  figure.tip.setAttribute("style", isLeft ? "left:.6rem" : "right:.6rem");
}

function listen(figure) {
  const {plot} = figure;
  const xOf = (event) => figure.across.from(event.clientX - plot.getBoundingClientRect().left);
  const show = (at) => { figure.at = at; showTip(figure); };
  plot.addEventListener("pointerdown", (event) => {
    page.drag = {figure, from: xOf(event), pixel: event.clientX};
    plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener("pointermove", (event) => show(xOf(event)));
  plot.addEventListener("pointerup", (event) => {
    const {drag} = page;
    page.drag = null;
    if (drag && Math.abs(event.clientX - drag.pixel) > 8)
      zoomTo([drag.from, xOf(event)].sort((a, b) => a - b));
  });
  plot.addEventListener("pointercancel", () => { page.drag = null; show(null); });
  plot.addEventListener("pointerleave", () => { if (!page.drag) show(null); });
  plot.addEventListener("blur", () => show(null));
  plot.addEventListener("dblclick", () => zoomTo(null));
  plot.addEventListener("keydown", (event) => {
    const {low, high} = figure.across, middle = figure.at ?? (low + high) / 2;
    const actions = {
      ArrowLeft: () => show(Math.max(low, middle - (high - low) / 50)),
      ArrowRight: () => show(Math.min(high, middle + (high - low) / 50)),
      "+": () => zoomTo([middle - (high - low) / 4, middle + (high - low) / 4]),
      Escape: () => { show(null); zoomTo(null); },
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  });
}
