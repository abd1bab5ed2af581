#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "axonn/study/code_points.h"
#include "axonn/study/html_parts.h"
#include "axonn/study/html_text.h"
#include "axonn/study/report_words.h"

namespace axonn {

namespace {

constexpr double kHeight = 330, kTop = 14, kBottom = 270, kLeft = 48;
constexpr double kAlone = 1000, kBeside = 490;  // width of a chart alone, and of one beside another
constexpr double kCurveLetter = 8, kLineHeight = 17;
constexpr int kMostCurveLabel = 22;
constexpr int kCurveColors = 8, kFirstColor = 2;  // the first ones are the losses' colors

struct CurveFrame {
  double width, right;
  std::size_t prompts;
  PercentAxis axis;

  explicit CurveFrame(const PageData& data) : prompts(data.summary.prompts.size()) {
    int columns = 0;
    double most = 0;
    for (const std::string& group : data.report.groups)
      columns = std::max(columns, columns_of(code_points(shortened(group, kMostCurveLabel))));
    for (const RecitationCell& cell : data.summary.cells)
      most = std::max(most, cell.exact_percent.mean);
    width = data.losses() > 1 ? kBeside : kAlone;
    right = width - kCurveLetter * columns - 38;
    axis = percent_axis(most);
  }
  double across(std::size_t prompt) const {
    return kLeft + 14 +
           (right - kLeft - 14) * static_cast<double>(prompt) /
               static_cast<double>(std::max<std::size_t>(prompts - 1, 1));
  }
  double up(double percent) const { return kBottom - (kBottom - kTop) * percent / axis.top; }
};

std::string grid(const PageData& data, const CurveFrame& frame) {
  std::string svg;
  for (int i = 0; i * frame.axis.step <= frame.axis.top + 1e-9; ++i) {
    const double y = frame.up(i * frame.axis.step);
    svg += fmt::format(
        "<line class=\"{}\" x1=\"{}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text "
        "class=\"soft\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>\n",
        i == 0 ? "axis" : "grid", kLeft, frame.right + 8, y, y, kLeft - 8, y + 4.5,
        i * frame.axis.step);
  }
  // Labels that would overlap are left out, except the label of the longest prompt.
  double free = -1e9;
  const double last = frame.across(frame.prompts - 1);
  for (std::size_t i = 0; i < frame.prompts; ++i) {
    const std::string name = prompt_text(data.report.prompt_lengths[data.summary.prompts[i]]);
    const double half = kCurveLetter * static_cast<double>(name.size()) / 2 + 4,
                 x = frame.across(i);
    if (x - half < free || (i + 1 < frame.prompts && x + half > last - 24)) continue;
    free = x + half;
    svg += fmt::format(
        "<text class=\"soft\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", x,
        kBottom + 20, name);
  }
  return svg + fmt::format(
                   "<text class=\"soft\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">tokens "
                   "of the prompt</text>\n",
                   (kLeft + frame.right) / 2, kBottom + 44);
}

/// A marker whose shape shows the group, for readers without color.
std::string mark(std::int64_t group, double x, double y) {
  constexpr std::array<const char*, 4> kShapes = {"m-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z",
                                                  "m-4.2-4.2h8.4v8.4h-8.4z", "m0-5.6 5 9h-10z",
                                                  "m0-5.8 5.8 5.8-5.8 5.8-5.8-5.8z"};
  return fmt::format("<path class=\"mark{}\" d=\"M{:.1f} {:.1f}{}\"/>",
                     group / std::ssize(kShapes) % 2 == 0 ? "" : " open", x, y,
                     kShapes[group % std::ssize(kShapes)]);
}

struct Label {
  std::int64_t group;
  double wanted, y;
};

/// Moves labels down until none overlap, then up if they went below the chart.
void spread(std::vector<Label>& labels) {
  std::ranges::stable_sort(labels, {}, &Label::wanted);
  for (std::size_t i = 0; i < labels.size(); ++i)
    labels[i].y =
        i == 0 ? labels[i].wanted : std::max(labels[i].wanted, labels[i - 1].y + kLineHeight);
  double floor = kBottom + 4;
  for (std::size_t i = labels.size(); i-- > 0;) {
    labels[i].y = std::min(labels[i].y, floor);
    floor = labels[i].y - kLineHeight;
  }
}

std::string curve(const PageData& data, const CurveFrame& frame, std::int64_t variant,
                  std::int64_t group) {
  std::string points, marks;
  for (std::size_t i = 0; i < frame.prompts; ++i) {
    const RecitationCell& cell = data.summary.at(variant, group, data.summary.prompts[i]);
    if (cell.trials == 0) continue;
    const double x = frame.across(i), y = frame.up(cell.exact_percent.mean);
    points += fmt::format("{}{:.1f},{:.1f}", points.empty() ? "" : " ", x, y);
    marks += fmt::format("<g><title>{}, {} tokens: {} %</title>{}</g>",
                         escaped(data.report.groups[group]),
                         prompt_text(data.report.prompt_lengths[cell.prompt]), percent_text(cell),
                         mark(group, x, y));
  }
  return fmt::format("<g class=\"c{}\"><polyline class=\"curve dash{}\" points=\"{}\"/>{}</g>\n",
                     (kFirstColor + group) % kCurveColors, group % 4, points, marks);
}

/// The markers and names of the groups, beside the ends of their lines.
std::string labels_of(const PageData& data, const CurveFrame& frame, std::int64_t variant) {
  std::vector<Label> labels;
  for (std::int64_t group = 0; group < data.groups(); ++group) {
    const RecitationCell& cell = data.longest(variant, group);
    if (cell.trials > 0)
      labels.push_back({.group = group, .wanted = frame.up(cell.exact_percent.mean), .y = 0});
  }
  spread(labels);
  std::string svg;
  for (const Label& label : labels)
    svg +=
        fmt::format("<g class=\"c{}\">{}<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text></g>\n",
                    (kFirstColor + label.group) % kCurveColors,
                    mark(label.group, frame.right + 20, label.y), frame.right + 30, label.y + 4.5,
                    escaped(shortened(data.report.groups[label.group], kMostCurveLabel)));
  return svg;
}

std::string description(const PageData& data, std::int64_t variant) {
  std::string text;
  for (std::int64_t group = 0; group < data.groups(); ++group) {
    text += (group == 0 ? "" : ". ") + data.report.groups[group] + ": ";
    for (std::size_t i = 0; i < data.summary.prompts.size(); ++i) {
      const RecitationCell& cell = data.summary.at(variant, group, data.summary.prompts[i]);
      text += fmt::format("{}{} % with {}", i == 0 ? "" : ", ", percent_text(cell),
                          prompt_text(data.report.prompt_lengths[cell.prompt]));
    }
  }
  return text;
}

}  // namespace

std::string curves_svg(const PageData& data, std::int64_t variant) {
  const CurveFrame frame(data);
  const std::string loss = loss_text(data.loss(variant));
  std::string svg = fmt::format(
      R"(<svg{} viewBox="0 0 {} {}" role="img" aria-labelledby="curve{}-title curve{}-desc">)"
      "\n<title id=\"curve{}-title\">Exact match by tokens of the prompt{}</title>"
      "<desc id=\"curve{}-desc\">{}</desc>\n",
      data.losses() > 1 ? "" : " class=\"alone\"", frame.width, kHeight, variant, variant, variant,
      loss.empty() ? "" : ", " + escaped(loss), variant, escaped(description(data, variant)));
  svg += grid(data, frame);
  for (std::int64_t group = 0; group < data.groups(); ++group)
    svg += curve(data, frame, variant, group);
  return svg + labels_of(data, frame, variant) + "</svg>\n";
}

}  // namespace axonn
