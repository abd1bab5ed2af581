"use strict";

// Figures of the memorization report that follow from buckets in parts of the steps, and from
// measurements during the training. Uses page.js, which draws the page.

// How a group comes: "80-100 % of the steps, 3 paraphrases".
const partText = ({from, to, form}) =>
  `${fixed(100 * from, 0)}\u2013${fixed(100 * to, 0)} % of the steps${form && ", " + form}`;

// A chart over the numbers of times, one line per part of the steps, for one variant. of: the value
// of a group; ends: those of its interval.
function doseChart(view, {variant, id, label, of, ends}) {
  const learned = view.groups.map((group, number) => ({...group, number}))
    .filter(({control}) => !control);
  const doses = [...new Set(learned.map(({epochs}) => epochs))].sort((a, b) => a - b);
  const parts = [...new Set(learned.map(partText))];
  const lines = parts.map((name, number) => ({name, color: 2 + number, number,
    points: learned.filter((group) => partText(group) === name)
      .sort((a, b) => a.epochs - b.epochs)
      .map((group) => ({i: doses.indexOf(group.epochs), value: of(group.number),
        ends: ends(group.number),
        tip: `${fixed(of(group.number), 1)} % after ${count(group.epochs)} times`}))
      .filter(({value}) => value !== null)}));
  return lineChart({id: `${id}-${variant}`, alone: false, names: doses.map(count), title: "times",
    lines, label, axis: percentAxis});
}

// The number of a group's suffixes that 1,000 samples of the first policy contain with probability
// 0.5, and of all; null without records.
function extractableIn1000(view, variant) {
  const least = Math.log10(-Math.expm1(Math.log1p(-0.5) / 1000));
  return (group) => {
    const of = view.suffixes.find((one) => one.variant === variant && one.group === group);
    return of === undefined ? null
      : [of.log10_p.filter((one) => one !== null && one >= least).length, of.log10_p.length];
  };
}

const doseFigures = (view) => view.variantTexts.flatMap((text, variant) => {
  const cell = (group) => view.longest(variant, group), found = extractableIn1000(view, variant);
  const one = (caption, name, of, ends) => figure({
    caption: [caption, text].filter(Boolean).join(", "),
    title: [caption, text].filter(Boolean).join(", "), unit: kExactMatch.unit},
    doseChart(view, {variant, id: name, of, ends,
      label: `${caption} by number of times, ${text}`}),
    `${name}-by-times-${variant + 1}`);
  return [one("Exact match, %", "exact", (group) => cell(group).exact_percent,
    (group) => range(cell(group))),
  one("In 1,000 samples with probability 0.5, %", "extractable",
    (group) => found(group) && 100 * found(group)[0] / found(group)[1],
    (group) => found(group) && wilson(...found(group)))];
});

// A chart over the measured steps, one line per group, of one variant; means over trials, with the
// range over these, or the interval of a single one.
function measuredChart(view, {variant, id, label, of, ends, axis, digits, unit}) {
  const rows = view.curves.filter((row) => row.variant === view.variants[variant].name);
  const steps = [...new Set(rows.map(({step}) => step))].sort((a, b) => a - b);
  const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
  const lines = view.names.map((name, number) => ({name, color: 2 + number, number,
    points: steps.map((step, i) => ({i, step,
      all: rows.filter((row) => row.group === name && row.step === step)}))
      .map((point) => ({...point, found: point.all.map(of)}))
      .filter(({found}) => found.length > 0 && found.every((value) => value !== null))
      .map(({i, step, all, found}) => ({i, value: mean(found),
        ends: found.length > 1 ? [Math.min(...found), Math.max(...found)] : ends(all[0]),
        tip: `${fixed(mean(found), digits)} ${unit} after step ${count(step)}`}))}));
  return lineChart({id: `${id}-${variant}`, alone: false, names: steps.map(count), title: "step",
    lines, label, axis});
}

const measuredFigures = (view) => view.variantTexts.flatMap((text, variant) => {
  if (!view.curves.some((row) => row.variant === view.variants[variant].name)) return [];
  const one = (caption, name, more) => figure({caption: [caption, text].filter(Boolean).join(", "),
    title: [caption, text].filter(Boolean).join(", "), unit: more.unit},
    measuredChart(view, {variant, id: name, label: `${caption} by step, ${text}`, ...more}),
    `${name}-by-step-${variant + 1}`);
  return [one("Greedy exact match, %", "measured-exact", {of: (row) => row.exact_percent,
    axis: percentAxis, digits: 1, unit: "%",
    ends: (row) => wilson(Math.round(row.exact_percent * row.documents / 100), row.documents)}),
  one("Loss of the suffix, nats a token", "measured-loss", {of: (row) => row.loss,
    axis: axisTo, digits: 3, unit: "nats", ends: (row) => aroundMean(row.loss, row.loss_error)})];
});
