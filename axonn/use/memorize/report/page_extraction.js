"use strict";

// Figures of the memorization report that follow from records of tokens: probabilities of suffixes,
// and how well scores separate members. Uses page.js, which draws the page.

// ---- Probabilities of suffixes.

// A chart of shares of the suffixes with the longest prompt, one line per group: those with at
// least the probability of each point, {name, least: log10 of it, tip}.
function suffixChart(view, {variant, policy, id, title, label, points, axis}) {
  const lines = view.names.map((name, group) => {
    const log10_p = view.suffixes.find((one) => one.variant === variant && one.group === group
      && one.policy === policy)?.log10_p ?? [];
    const found = (least) => log10_p.filter((one) => one !== null && one >= least).length;
    const share = (least) => 100 / log10_p.length * found(least);  // null: never
    return {name, color: 2 + group, number: group, points: log10_p.length === 0 ? []
      : points.map(({least, tip}, i) => ({i, value: share(least),
        ends: wilson(found(least), log10_p.length), tip: `${fixed(share(least), 1)} % ${tip}`}))};
  });
  return lineChart({id, alone: false, names: points.map(({name}) => name), title, lines,
    label: `${label}, ${policy}`, axis});
}

// By the number of samples of which one is the suffix with a probability or more.
const triesChart = (view, of) => suffixChart(view, {...of, id: "tries-" + of.id, axis: percentAxis,
  label: `Suffixes with a probability of ${view.shownP} or more in n samples`, title: "samples n",
  points: view.n.map((n) => ({name: count(n), tip: `in ${count(n)} samples`,
    least: Math.log10(-Math.expm1(Math.log1p(-view.shownP) / n))}))});

const survivalChart = (view, of) => suffixChart(view, {...of, id: "survival-" + of.id,
  label: "Suffixes with at least a probability", title: "log\u2081\u2080 of the probability",
  axis: () => percentAxis(100), points: Array.from({length: 16}, (_, i) => ({
    name: i ? `\u2212${2 * i}` : "0", least: -2 * i, tip: `with 10^${-2 * i} or more`}))});

function policyFigures(view) {
  const policies = [...new Set(view.suffixes.map(({policy}) => policy))];
  return view.variantTexts.flatMap((text, variant) => policies.flatMap((policy, number) => {
    const title = [text, `policy ${policy}`].filter(Boolean).join(", ");
    const of = {variant, policy, id: `${variant}-${number}`};
    const one = (caption, chart, name) => figure({caption, title: `${caption}, ${title}`,
      unit: "% of the suffixes"}, chart, `${name}-${variant + 1}-${number + 1}`);
    return [html("h4", {}, title), html("div", {class: "curves"},
      one(`Written with probability ${view.shownP} in n samples, %`, triesChart(view, of),
        "extraction"),
      one("At least this probability, %", survivalChart(view, of), "survival"))];
  }));
}

// Bounds of the suffixes of which n samples contain a text within a distance.
function nearTable(view, table) {
  const several = view.variants.some(({name}) => name);
  const shown = view.near.filter(({p}) => p === view.shownP);
  const tries = [...new Set(shown.map(({n}) => n))];
  const text = (rate) => [...new Set([rate.extractable_at_least, rate.extractable_at_most])]
    .map((found) => fixed(100 * found / rate.suffixes, 1)).join(" to ");
  table.append(headRow(["Group", ...several ? ["Loss"] : [], "Distance",
    ...tries.map((n) => `n = ${count(n)}`)]),
    html("tbody", {}, ...shown.filter(({n}) => n === tries[0]).map((row) =>
      bodyRow(row.group, [...several ? [row.variant] : [], count(row.epsilon),
        ...tries.map((n) => text(shown.find((one) => one.n === n && one.group === row.group
          && one.variant === row.variant && one.epsilon === row.epsilon)))]))));
  nearMassTable(view, byId("near-masses"));
}

// How probable texts within a distance are, the mean of a group.
function nearMassTable(view, table) {
  const several = view.variants.some(({name}) => name);
  const number = (value) => value === null ? "-" : value === 0 ? "0" : value.toPrecision(2);
  table.append(headRow(["Group", ...several ? ["Loss"] : [], "Distance", "At least", "At most",
    "Sampled", "95\u00a0% interval", "Samples"]), html("tbody", {}, ...view.near_mass.map((one) =>
    bodyRow(one.group, [...several ? [one.variant] : [], count(one.epsilon),
      ...[one.mean_low, one.mean_high, one.sampled].map(number), one.sampled === null ? "-"
        : `${number(one.sampled_low)} to ${number(one.sampled_high)}`, count(one.samples)]))));
}

// The suffixes that are likelier than matched controls, with the longest prompt.
function matchedTable(view, table) {
  const several = view.variants.some(({name}) => name);
  const longest = view.prompt_lengths[view.prompts.at(-1)];
  const percent = (rate, key) => rate[key] === null ? "too few controls"
    : fixed(100 * rate[key] / rate.suffixes, 1);
  const range = (rate) => rate.memorized === null ? "-"
    : ["low", "high"].map((end) => fixed(rate[`memorized_percent_${end}`], 1)).join(" to ");
  table.append(headRow(["Group", ...several ? ["Loss"] : [], "Policy", "Alpha\u00a0%", "Controls",
    "Memorized\u00a0%", "95\u00a0% interval", "And extractable\u00a0%"]),
    html("tbody", {}, ...view.matched.filter((rate) => rate.prompt_tokens === longest
      && rate.offset === undefined && rate.suffix_tokens === undefined).map((rate) =>
      bodyRow(rate.group, [...several ? [rate.variant] : [], rate.policy, `${100 * rate.alpha}`,
        count(rate.controls), percent(rate, "memorized"), range(rate),
        percent(rate, "memorized_and_extractable")]))));
}

// ---- Canaries.

function exposureTable(view, table) {
  table.append(headRow(["Group", "Training", "Canaries", "Candidates", "Mean", "Median", "At most",
    "Rank 1\u00a0%"]), html("tbody", {}, ...view.exposure.map((one) => bodyRow(one.group,
    [one.variant, count(one.canaries), count(one.candidates), fixed(one.mean_bits, 2),
      fixed(one.median_bits, 2), fixed(one.most_bits, 2),
      fixed(100 * one.rank_1 / one.canaries, 1)]))));
}

// ---- Capacity.

function capacityTable(view, table) {
  const several = view.variants.some(({name}) => name);
  table.append(headRow(["Group", ...several ? ["Training", "Trial"] : [], "Documents", "Random",
    "Coded", "Memorized", "A parameter"]), html("tbody", {}, ...view.capacity.map((one) =>
    bodyRow(one.group ?? "all learned", [...several ? [one.variant, count(one.trial)] : [],
      count(one.documents), ...["random_bits", "coded_bits", "memorized_bits"].map((key) =>
        count(Math.round(one[key]))), one.bits_per_parameter === null ? "-"
        : fixed(one.bits_per_parameter, 4)]))));
}

// ---- Membership.

function separationsTable(view, table) {
  const span = (low, high, factor, digits) =>
    `${fixed(factor * low, digits)} to ${fixed(factor * high, digits)}`;
  const found = (result, rate) => {
    const at = result.at_false_positive_rates.find((one) => one.false_positive_rate === rate);
    return at ? `${fixed(100 * at.true_positive_rate, 1)} (${span(at.low, at.high, 100, 1)}) `
      + `[${span(at.bootstrap_low, at.bootstrap_high, 100, 1)}]` : "not measurable";
  };
  const several = view.variants.some(({name}) => name);
  table.append(headRow(["Group", ...several ? ["Loss", "Trial"] : [], "Score", "AUC",
    "95\u00a0% interval", "TPR\u00a0% at 0.1\u00a0% FPR", "TPR\u00a0% at 1\u00a0% FPR"]),
    html("tbody", {}, ...view.membership.map((result) => bodyRow(result.group,
      [...several ? [result.variant, count(result.trial)] : [], kScoreTexts[result.score],
        fixed(result.auc, 3), span(result.auc_low, result.auc_high, 1, 3),
        found(result, 0.001), found(result, 0.01)]))));
}

// ---- References.

const withError = (value, error) => `${fixed(value, 3)} \u00b1${fixed(error, 3)}`;

function referencesTable(view, table) {
  const known = (value, text) => value === null ? "-" : text(value);
  table.append(headRow(["Group", "Trial", "Documents", "References", "Nats a token", "LiRA AUC",
    "From", "To", "Right\u00a0%", "Flips\u00a0%"]),
    html("tbody", {}, ...view.references.map((one) => bodyRow(one.group, [
      ...["trial", "documents", "references"].map((key) => count(one[key])),
      withError(one.memorized_nats, one.memorized_error),
      ...["mean", "min", "max"].map((key) => known(one[`lira_auc_${key}`], (x) => fixed(x, 3))),
      ...["right", "flips"].map((key) => known(one[`lira_${key}`], (x) => fixed(100 * x, 1)))]))));
}

function distancesTable(view, table) {
  table.append(headRow(["Group", "Documents", "Loss", "By the reference", "KS distance", "p"]),
    html("tbody", {}, ...view.against_reference.map((one) => bodyRow(one.group,
      [count(one.documents), fixed(one.loss, 3), fixed(one.reference_loss, 3),
        fixed(one.ks_distance, 3), one.ks_p.toPrecision(2)]))));
}

function influencesTable(view, table) {
  table.append(headRow(["Learned", "Trial", "Asked", "Nats a token", "Deviations"]),
    html("tbody", {}, ...view.influences.map((one) => bodyRow(one.name, [count(one.trial),
      one.on_name, withError(one.nats, one.error), fixed(one.deviations, 1)]))));
}

const kScoreTexts = {loss: "loss", zlib: "loss / zlib", min_k: "min-k %", min_k_pp: "min-k %++",
  blind: "blind", ratio: "ratio to references", windows: "windows against references",
  lira_offline: "LiRA, offline", lira_online: "LiRA, online"};
