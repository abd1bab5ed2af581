"use strict";

// The passages of the memorization report: how documents continue, and what the model writes. Uses
// page.js, which draws the page.

const kShortestRun = 4;  // any two texts share letters and short words

// Aligns two lists of characters by their longest common subsequence in runs of at least
// kShortestRun (or the whole of a shorter text). Returns for each text flags of its common
// characters. Time and memory grow with the product of the lengths. Source: Benson, Levy and
// Shalom, "Longest common subsequence in k length substrings", 2013 (LCSk), with the longer runs
// of Pavetic, Zuzic and Sikic, "LCSk++", 2014.
//
//   ends(i, j) = the larger of  best(i - k, j - k) + k   if the last k characters are equal
//                               ends(i - 1, j - 1) + 1   if more than the last k are equal
//   best(i, j) = the largest of best(i - 1, j), best(i, j - 1), ends(i, j)
function align(first, second) {
  const k = Math.min(kShortestRun, first.length, second.length), width = second.length + 1;
  const common = [Array(first.length).fill(false), Array(second.length).fill(false)];
  if (k === 0) return common;
  const kSkipFirst = 1, kSkipSecond = 2, kEnds = 4, kGoesOn = 8;  // how a cell was computed
  const steps = new Uint8Array((first.length + 1) * width);
  const row = () => ({best: new Int32Array(width), ends: new Int32Array(width),
    equal: new Int32Array(width)});  // equal: length of the equal suffix
  const rows = Array.from({length: k + 1}, row), at = (i) => rows[i % rows.length];
  for (let i = 1; i <= first.length; ++i) {
    const here = at(i), above = at(i - 1), start = at(i + 1);  // row i - k
    for (let j = 1; j < width; ++j) {
      const equal = first[i - 1] === second[j - 1] ? above.equal[j - 1] + 1 : 0;
      let step = 0, ends = equal >= k ? start.best[j - k] + k : 0;
      if (equal > k && above.ends[j - 1] + 1 >= ends) {
        ends = above.ends[j - 1] + 1;
        step = kGoesOn;
      }
      const best = Math.max(above.best[j], here.best[j - 1], ends);
      if (ends > 0 && best === ends) step |= kEnds;
      steps[i * width + j] = step | (best === above.best[j] ? kSkipFirst : kSkipSecond);
      [here.equal[j], here.ends[j], here.best[j]] = [equal, ends, best];
    }
  }
  for (let i = first.length, j = second.length; i > 0 && j > 0;) {
    const step = steps[i * width + j];
    if (step & kEnds) {
      let length = k;
      for (let at = i * width + j; steps[at] & kGoesOn; at -= width + 1) ++length;
      for (; length > 0; --length, --i, --j) common[0][i - 1] = common[1][j - 1] = true;
    } else if (step & kSkipFirst) {
      --i;
    } else {
      --j;
    }
  }
  return common;
}

// The pieces of a text as nodes, with the common ones marked.
function marked(characters, common, cut) {
  const nodes = [];
  for (let begin = 0, end = 0; begin < characters.length; begin = end) {
    while (end < characters.length && common[end] === common[begin]) ++end;
    const text = characters.slice(begin, end).join("");
    nodes.push(common[begin] ? html("mark", {}, text) : text);
  }
  return cut ? [...nodes, " \u2026"] : nodes;
}

// The end of the prompt; starts at a word if it had to be cut.
function endOf(before) {
  const kMost = 240, characters = Array.from(before.replace(/^ +/, ""));
  if (characters.length <= kMost) return characters.join("");
  const end = characters.slice(-kMost), blank = end.indexOf(" ");
  return "\u2026\u00a0" + end.slice(blank < kMost / 4 ? blank + 1 : 0).join("");
}

function facts(view, one) {
  const plain = one.exact ? [`\u2713 all ${count(view.suffix_tokens)} tokens`]
    : [`${one.longest_run} of ${view.suffix_tokens} tokens in a run`,
      `${fixed(100 * one.token_accuracy, 0)} % of tokens right`,
      `edit distance ${one.edit_distance}`];
  const rest = [...plain.slice(1), `loss ${fixed(one.loss, 3)}`,
    ...view.prompts.length > 1 ? [`prompt: ${promptText(view.prompt_lengths[one.prompt])}`] : [],
    ...view.severalTrials ? [`trial ${one.trial}`] : []];
  return html("p", {class: "facts"}, html("strong", {}, plain[0]),
    ...rest.map((text) => " \u00b7 " + text));
}

// ---- The reading view: every token of a document by its probability.

const kReadingSteps = [0.001, 0.01, 0.1, 0.5, 0.9];  // of probability; the class is their number

// A token with its background, and its probability as a tip. log_p: null for the first one, which
// the model is not asked for.
function readToken(text, log_p, rank) {
  if (log_p === null) return html("span", {class: "first", title: "not asked for"}, text);
  const p = Math.exp(log_p), step = kReadingSteps.filter((least) => p >= least).length;
  return html("span", {class: rank > 1 ? `p${step} other` : `p${step}`,
    title: `p = ${p < 0.001 ? p.toExponential(1) : p.toPrecision(3)}, choice ${count(rank)}`},
    text);
}

// The text of a document, token by token, with its extracted spans marked.
function readText({tokens, log_p, rank, extracted}) {
  const shown = tokens.map((text, i) =>
    readToken(text, i === 0 ? null : log_p[i - 1], i === 0 ? 1 : rank[i - 1]));
  const nodes = [];
  let done = 0;
  for (const [first, end] of extracted) {
    nodes.push(...shown.slice(done, first), html("mark", {class: "span"},
      ...shown.slice(first, end)));
    done = end;
  }
  return html("p", {class: "text read", dir: "auto"}, ...nodes, ...shown.slice(done));
}

const readLegend = () => html("p", {class: "hint"},
  "Probability of each token after all before it: ", ...kReadingSteps.flatMap((least, i) =>
    [html("span", {class: `p${i + 1}`}, `\u00a0${least} or more\u00a0`), " "]),
  "\u2026; ", html("span", {class: "other"}, "dotted"),
  ": another token is likelier. ", html("mark", {class: "span"}, "Marked"),
  ": spans that 1,000 samples contain with probability 0.5.");

// A fold with the whole document, which it gets when it is opened.
function reading(of) {
  const marked = of.extracted.reduce((sum, [first, end]) => sum + end - first, 0);
  const fold = html("details", {class: "reading"}, html("summary", {},
    `The whole document, token by token: ${count(marked)} of ${count(of.tokens.length)} `
    + "in extracted spans"));
  fold.addEventListener("toggle", () => fold.append(readLegend(), readText(of)), {once: true});
  return fold;
}

function passage(view, one) {
  const kMost = 2000;  // characters; 50 tokens are about 250
  const spaces = one.truth.startsWith(" ") && one.written.startsWith(" ") ? 1 : 0;
  const all = [one.truth, one.written].map((text) => Array.from(text).slice(spaces));
  const texts = all.map((characters) => characters.slice(0, kMost)), common = align(...texts);
  const shown = (title, ...children) => [html("p", {class: "what"}, title),
    html("p", {class: "text", dir: "auto"}, ...children)];
  return html("article", {class: "passage"},
    html("header", {}, html("h5", {}, one.name), facts(view, one)),
    html("div", {class: "before"}, ...shown("End of the prompt", endOf(one.before))),
    html("div", {class: "pair"}, ...["The document", "The model"].map((title, i) => html("div", {},
      ...shown(title, ...marked(texts[i], common[i], all[i].length > kMost))))),
    ...view.readings.filter(({variant, trial, document}) => variant === one.variant
      && trial === one.trial && document === one.document).slice(0, 1).map(reading));
}

// Passages: the first `open` ones, and a fold of the others. When it is opened, it gets the next
// ones, and a fold of the rest.
function unfolded(view, shown, open, documents) {
  const kInAFold = 50, nodes = shown.slice(0, open).map((one) => passage(view, one));
  const rest = shown.slice(open);
  if (rest.length === 0) return nodes;
  const fold = html("details", {},
    html("summary", {}, `${count(rest.length)} more of ${count(documents)} documents`));
  fold.addEventListener("toggle",
    () => fold.append(...unfolded(view, rest, kInAFold, documents)), {once: true});
  return [...nodes, fold];
}

// The best recitations of a group and variant.
function passagesOf(view, shown, documents) {
  const kOpen = 6, soft = (text) => html("p", {class: "soft"}, text);
  if (shown.length === 0) return [soft("No document was tested.")];
  const left = documents > shown.length
    ? [soft(`Those of ${count(documents - shown.length)} more are in the JSON.`)] : [];
  return [...unfolded(view, shown, kOpen, documents), ...left];
}

// The groups' numbers: those with the longest matches first, and the control last.
function passageOrder(view) {
  const most = (group) => view.variants.map((_, variant) => view.longest(variant, group))
    .map((cell) => [cell.exact_percent, cell.longest_run])
    .reduce((a, b) => a.map((value, i) => Math.max(value, b[i])), [0, 0]);
  const rank = view.groups.map(({control}, group) =>
    [control ? 1 : 0, ...most(group).map((value) => -value)]);
  const compare = (a, b) => a.map((value, i) => value - b[i]).find((difference) => difference) ?? 0;
  return [...view.groups.keys()].sort((a, b) => compare(rank[a], rank[b]));
}

function passages(view) {
  return passageOrder(view).map((group) => html("section", {class: "group"},
    html("h3", {id: `group-${group}`}, view.names[group]),
    ...view.variantTexts.flatMap((text, variant) => {
      const cell = view.longest(variant, group);
      const share = cell.trials ? [html("span", {class: "share"}, `${percent(cell)} % exact`)] : [];
      return [html("h4", {}, (text || "Most recited documents") + " ", ...share),
        ...passagesOf(view, view.passages[variant * view.names.length + group].map((one) =>
          ({...one, variant: view.variants[variant].name})), cell.documents)];
    })));
}
