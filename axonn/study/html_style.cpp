#include "axonn/study/html_parts.h"

namespace axonn {

namespace {

constexpr const char* kColorRules = R"(
:root {
  color-scheme: light dark;
  --page: #fdfdfb; --gpu: #ffffff; --ink: #1d2126; --soft: #5b636d; --line: #dcdfe3;
  --mark: #ffe9a8; --mark-line: #a87400; --link: #1b5a9e;
  --c0: #1f66ad; --c1: #c4540a; --c2: #0b7a5c; --c3: #8a3f94;
  --c4: #946c00; --c5: #b52a50; --c6: #0f7488; --c7: #5f6670;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --gpu: #1b1f24; --ink: #e7e9ec; --soft: #a0a8b2; --line: #363c44;
    --mark: #4a3d10; --mark-line: #e5b93c; --link: #84b9f0;
    --c0: #68aaf0; --c1: #f5955a; --c2: #4cc3a0; --c3: #c98ad3;
    --c4: #d8ad3e; --c5: #f0809c; --c6: #55bdd1; --c7: #a6aeb8;
  }
}
.c0 { --c: var(--c0) } .c1 { --c: var(--c1) } .c2 { --c: var(--c2) } .c3 { --c: var(--c3) }
.c4 { --c: var(--c4) } .c5 { --c: var(--c5) } .c6 { --c: var(--c6) } .c7 { --c: var(--c7) }
)";

constexpr const char* kPageRules = R"(
* { box-sizing: border-box }
body {
  margin: 0 auto; padding: 3rem 1.5rem 4rem; max-width: 66rem; background: var(--page);
  color: var(--ink); line-height: 1.5;
  font-family: system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, "DejaVu Sans", sans-serif;
}
h1, h2, h3, h4, h5 { line-height: 1.2; margin: 0; text-wrap: balance }
h1 { font-size: 2.1rem; letter-spacing: -.015em }
h2 { font-size: 1.35rem; margin: 3.2rem 0 .9rem; padding-top: .9rem;
     border-top: 2px solid var(--ink) }
h3 { font-size: 1.2rem; margin: 2.4rem 0 .2rem }
h4 { font-size: 1rem; margin: 1.6rem 0 .8rem; padding-bottom: .35rem;
     border-bottom: 1px solid var(--line) }
h4::first-letter, .runs th::first-letter, .loss::first-letter { text-transform: uppercase }
h5 { font-size: 1rem; overflow-wrap: anywhere }
p { margin: 0 }
a { color: var(--link); text-underline-offset: .2em; text-decoration-thickness: 1px }
.model { color: var(--soft); margin-top: .4rem }
.lede { font-size: 1.22rem; line-height: 1.45; margin: 1.6rem 0 1.2rem; max-width: 48rem;
        text-wrap: pretty }
.notes { margin: 0; padding-left: 1.15rem; max-width: 48rem; color: var(--soft) }
.notes li { margin: .2rem 0 }
.soft, .hint { color: var(--soft) }
.hint { font-size: .9rem; max-width: 48rem; margin: .6rem 0 }
.share { font-weight: 400; color: var(--soft); font-size: .9rem; margin-left: .7rem }
.wide { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-size: .92rem;
        font-variant-numeric: tabular-nums }
th, td { padding: .42rem .7rem; text-align: right; border-bottom: 1px solid var(--line);
         white-space: nowrap }
thead th { vertical-align: bottom; white-space: normal; color: var(--soft); font-weight: 600;
           border-bottom: 1.5px solid var(--ink); line-height: 1.25 }
th.name, tbody th { text-align: left }
tbody th { font-weight: 500; white-space: normal; overflow-wrap: anywhere; min-width: 7rem }
th.loss { font-weight: 700; padding-top: 1.1rem }
th:first-child { padding-left: 0 }
td:last-child, th:last-child { padding-right: 0 }
.runs { width: auto } .runs th, .runs td { padding-right: 1.6rem }
)";

constexpr const char* kPictureRules = R"(
figure { margin: 0; overflow-x: auto }
figcaption { font-weight: 600; font-size: .95rem; margin-bottom: .3rem }
figcaption::first-letter { text-transform: uppercase }
.curves { display: grid; gap: 1.5rem 2rem;
          grid-template-columns: repeat(auto-fit, minmax(24rem, 1fr)) }
svg { display: block; width: 100%; height: auto; font-size: 14px }
.alone { min-width: 38rem }
svg text { fill: var(--ink); font-variant-numeric: tabular-nums }
svg .soft { fill: var(--soft) }
svg .value { font-weight: 600; paint-order: stroke; stroke: var(--page); stroke-width: 4px;
             stroke-linejoin: round }
.grid { stroke: var(--line) } .axis { stroke: var(--soft) }
.bar { fill: var(--c); stroke: var(--c); stroke-width: 1 }
.tint { fill: var(--page) } .tint, .hatch { stroke: none }
.hatch path { stroke: var(--c); stroke-width: 2.4; fill: none } .hatch circle { fill: var(--c) }
.whisker { stroke: var(--ink); stroke-width: 1.6; fill: none }
.halo { stroke: var(--page); stroke-width: 4.4; fill: none }
.curve { fill: none; stroke: var(--c); stroke-width: 2.2; stroke-linejoin: round }
.dash1 { stroke-dasharray: 7 4 } .dash2 { stroke-dasharray: 2 3.5 }
.dash3 { stroke-dasharray: 9 3 2 3 }
.mark { fill: var(--c); stroke: var(--page); stroke-width: 1.2 }
.mark.open { fill: var(--page); stroke: var(--c); stroke-width: 1.8 }
)";

constexpr const char* kPassageRules = R"(
.passage { background: var(--gpu); border: 1px solid var(--line); border-radius: .5rem;
           padding: 1rem 1.2rem 1.1rem; margin: 0 0 .9rem }
.passage header { display: flex; flex-wrap: wrap; gap: .15rem 1rem; align-items: baseline;
                  justify-content: space-between; margin-bottom: .7rem }
.facts { color: var(--soft); font-size: .88rem; font-variant-numeric: tabular-nums }
.facts strong { color: var(--ink); font-weight: 600 }
.what { color: var(--soft); font-size: .8rem; margin-bottom: .15rem }
.text { font-family: "Iowan Old Style", Charter, Georgia, "DejaVu Serif", serif;
        font-size: .97rem; line-height: 1.55; white-space: pre-wrap; overflow-wrap: anywhere }
.before { margin-bottom: .8rem } .before .text { color: var(--soft) }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1.8rem }
.pair > div { min-width: 0; border-left: 2px solid var(--line); padding-left: .9rem }
mark { background: var(--mark); color: inherit; text-decoration: underline 1.5px var(--mark-line);
       text-underline-offset: .22em; text-decoration-skip-ink: none; border-radius: 2px;
       -webkit-box-decoration-break: clone; box-decoration-break: clone }
details > summary { cursor: pointer; color: var(--link); margin: .2rem 0 1rem; width: max-content }
@media (max-width: 44rem) {
  body { padding: 1.5rem 1rem 3rem }
  h1 { font-size: 1.6rem } .lede { font-size: 1.08rem }
  .pair { grid-template-columns: 1fr; gap: .9rem }
  .curves { grid-template-columns: 1fr }
}
)";

constexpr const char* kPrintRules = R"(
@media print {
  @page { margin: 16mm 15mm }
  :root {
    color-scheme: light;
    --page: #fff; --gpu: #fff; --ink: #000; --soft: #444; --line: #bbb; --mark: transparent;
    --mark-line: #000; --link: #000;
    --c0: #1f66ad; --c1: #c4540a; --c2: #0b7a5c; --c3: #8a3f94;
    --c4: #946c00; --c5: #b52a50; --c6: #0f7488; --c7: #5f6670;
  }
  html { font-size: 9.5pt }
  body { padding: 0; max-width: none }
  a { text-decoration: none }
  h2 { margin-top: 1.8rem } .alone { min-width: 0 }
  h2, h3, h4, summary { break-after: avoid }
  figure, .passage, tbody, tr, .notes li { break-inside: avoid }
  .curves { grid-template-columns: 1fr 1fr; gap: 1rem }
  .curves figure:only-child { grid-column: span 2 }
  .wide, figure { overflow: visible } th, td { padding: .25rem .45rem }
  .passage { border-width: 0 0 1px; border-radius: 0; padding: .3rem 0 .7rem }
  details:not([open]) { display: none }
}
)";

}  // namespace

std::string html_style() {
  return std::string(kColorRules) + kPageRules + kPictureRules + kPassageRules + kPrintRules;
}

}  // namespace axonn
