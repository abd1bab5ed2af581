"use strict";

// Figures of the memorization report that follow from buckets in parts of the steps, and from
// measurements during the training. Uses page.js, which draws the page.

// How a group comes: "80-100 % of the steps, 3 paraphrases".
const partText = ({from, to, form}) =>
  `${fixed(100 * from, 0)}\u2013${fixed(100 * to, 0)} % of the steps${form && ", " + form}`;

// A chart over the numbers of times, one line per part of the steps, for one variant. of: the value
// of a group.
function doseChart(view, {variant, id, label, of}) {
  const learned = view.groups.map((group, number) => ({...group, number}))
    .filter(({control}) => !control);
  const doses = [...new Set(learned.map(({epochs}) => epochs))].sort((a, b) => a - b);
  const parts = [...new Set(learned.map(partText))];
  const lines = parts.map((name, number) => ({name, color: 2 + number, number,
    points: learned.filter((group) => partText(group) === name)
      .sort((a, b) => a.epochs - b.epochs)
      .map((group) => ({i: doses.indexOf(group.epochs), value: of(group.number),
        tip: `${fixed(of(group.number), 1)} % after ${count(group.epochs)} times`}))
      .filter(({value}) => value !== null)}));
  const values = lines.flatMap(({points}) => points.map(({value}) => value));
  return lineChart({id: `${id}-${variant}`, alone: false, names: doses.map(count), title: "times",
    lines, label, axis: percentAxis(Math.max(0, ...values))});
}

// The share of a group's suffixes that 1,000 samples of the first policy contain with probability
// 0.5; null without records.
function extractableIn1000(view, variant) {
  const least = Math.log10(-Math.expm1(Math.log1p(-0.5) / 1000));
  return (group) => {
    const of = view.suffixes.find((one) => one.variant === variant && one.group === group);
    return of === undefined ? null
      : 100 * of.log10_p.filter((one) => one !== null && one >= least).length / of.log10_p.length;
  };
}

const doseFigures = (view) => view.variantTexts.flatMap((text, variant) => {
  const exact = (group) => view.longest(variant, group).exact_percent;
  const one = (caption, name, of) => figure({caption: [caption, text].filter(Boolean).join(", "),
    title: [caption, text].filter(Boolean).join(", "), unit: kExactMatch.unit},
    doseChart(view, {variant, id: name, label: `${caption} by number of times, ${text}`, of}),
    `${name}-by-times-${variant + 1}`);
  return [one("Exact match, %", "exact", exact),
    one("In 1,000 samples with probability 0.5, %", "extractable",
      extractableIn1000(view, variant))];
});

// A chart over the measured steps, one line per group, of one variant; means over trials.
function measuredChart(view, {variant, id, label, of, axis, digits, unit}) {
  const rows = view.curves.filter((row) => row.variant === view.variants[variant].name);
  const steps = [...new Set(rows.map(({step}) => step))].sort((a, b) => a - b);
  const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
  const lines = view.names.map((name, number) => ({name, color: 2 + number, number,
    points: steps.map((step, i) => ({i, step,
      found: rows.filter((row) => row.group === name && row.step === step).map(of)}))
      .filter(({found}) => found.length > 0 && found.every((value) => value !== null))
      .map(({i, step, found}) => ({i, value: mean(found),
        tip: `${fixed(mean(found), digits)} ${unit} after step ${count(step)}`}))}));
  const values = lines.flatMap(({points}) => points.map(({value}) => value));
  return lineChart({id: `${id}-${variant}`, alone: false, names: steps.map(count), title: "step",
    lines, label, axis: axis(Math.max(0, ...values))});
}

const measuredFigures = (view) => view.variantTexts.flatMap((text, variant) => {
  if (!view.curves.some((row) => row.variant === view.variants[variant].name)) return [];
  const one = (caption, name, more) => figure({caption: [caption, text].filter(Boolean).join(", "),
    title: [caption, text].filter(Boolean).join(", "), unit: more.unit},
    measuredChart(view, {variant, id: name, label: `${caption} by step, ${text}`, ...more}),
    `${name}-by-step-${variant + 1}`);
  return [one("Greedy exact match, %", "measured-exact", {of: (row) => row.exact_percent,
    axis: percentAxis, digits: 1, unit: "%"}),
  one("Loss of the suffix, nats a token", "measured-loss", {of: (row) => row.loss,
    axis: axisTo, digits: 3, unit: "nats"})];
});
