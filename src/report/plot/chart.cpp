// SPDX-License-Identifier: Apache-2.0
#include "chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "labels.h"
#include "png.h"
#include "scale.h"
#include "svg_text.h"

namespace posenc::report {
namespace {

const char* color_of(const std::vector<Series>& all, std::size_t i) {
  const auto at = static_cast<std::size_t>(all[i].color.value_or(static_cast<int>(i)));
  return kColors[at % kColors.size()];
}

std::string axis_title(const Axis& a) {
  return a.unit.empty() ? a.label : a.label + " [" + a.unit + "]";
}

struct Tick {
  double at;  // pixels
  std::string name;
};

std::vector<Tick> ticks_of(const Scale& s) {
  std::vector<Tick> all;
  for (const double t : s.ticks()) all.push_back({s(t), s.tick_text(t)});
  return all;
}

// Lines across the plot; over a heat map they would look like values: small marks outside it.
std::string grid(const std::vector<Tick>& across, const std::vector<Tick>& down, double bottom,
                 double right, bool lines) {
  std::string s =
      fmt::format("<g stroke=\"{}\" stroke-width=\"1\">\n", lines ? "#dddddd" : "#333333");
  for (const Tick& t : across)
    s += fmt::format("<path d=\"M{:.1f} {}V{}\"/>\n", t.at, lines ? kTop : bottom,
                     lines ? bottom : bottom + 4);
  for (const Tick& t : down)
    s += fmt::format("<path d=\"M{} {:.1f}H{}\"/>\n", lines ? kLeft : kLeft - 4, t.at,
                     lines ? right : kLeft);
  return s + "</g>\n";
}

std::string frame(const std::vector<Tick>& across, const std::vector<Tick>& down, const Axis& x,
                  const Axis& y, double bottom, double right, bool lines) {
  std::string s = grid(across, down, bottom, right, lines) + "<g fill=\"#333\">\n";
  for (const Tick& t : across) s += svg_words(t.at, bottom + 17, "middle", 11, t.name);
  for (const Tick& t : down)
    s += svg_words(kLeft - 8, t.at + 4, "end", 11, t.name, "class=\"y-tick\"");
  s +=
      svg_words((kLeft + right) / 2, bottom + 42, "middle", 13, axis_title(x), "class=\"x-label\"");
  s += fmt::format(
      "<text class=\"y-label\" font-size=\"13\" text-anchor=\"middle\" transform=\"translate(20 "
      "{:.1f}) rotate(-90)\">{}</text>\n</g>\n",
      (kTop + bottom) / 2, escape_xml(axis_title(y)));
  s += fmt::format("<path d=\"M{} {}V{}H{}\" fill=\"none\" stroke=\"#333\"/>\n", kLeft, kTop,
                   bottom, right);
  return s;
}

bool is_shown(const Series& s, std::size_t i, const LineChart& c) {
  return std::isfinite(s.x[i]) && std::isfinite(s.y[i]) && !(c.x.logarithmic && s.x[i] <= 0) &&
         !(c.y.logarithmic && (s.y[i] <= 0 || s.y[i] < c.y.min.value_or(0)));
}

struct Extent {
  double x0 = INFINITY, x1 = -INFINITY, y0 = INFINITY, y1 = -INFINITY;
};

Extent extent(const LineChart& c) {
  Extent e;
  for (const Series& s : c.series)
    for (std::size_t i = 0; i < s.x.size(); ++i) {
      if (!is_shown(s, i, c)) continue;
      e.x0 = std::min(e.x0, s.x[i]), e.x1 = std::max(e.x1, s.x[i]);
      e.y0 = std::min(e.y0, s.y[i]), e.y1 = std::max(e.y1, s.y[i]);
    }
  for (const Rule& r : c.rules) {
    double& low = r.vertical ? e.x0 : e.y0;
    double& high = r.vertical ? e.x1 : e.y1;
    low = std::min(low, r.at), high = std::max(high, r.at);
  }
  if (!std::isfinite(e.x0)) e.x0 = e.x1 = 1;
  if (!std::isfinite(e.y0)) e.y0 = e.y1 = 1;
  return e;
}

std::string line(const Series& s, const LineChart& c, const Scale& sx, const Scale& sy,
                 const char* color) {
  std::string path, dots;
  bool pen = false;
  for (std::size_t i = 0; i < s.x.size(); ++i) {
    if (!is_shown(s, i, c)) {
      pen = false;
      continue;
    }
    path += fmt::format("{}{:.2f} {:.2f}", pen ? 'L' : 'M', sx(s.x[i]), sy(s.y[i]));
    pen = true;
    if (s.points)
      dots +=
          fmt::format("<circle cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"2.4\"/>", sx(s.x[i]), sy(s.y[i]));
  }
  std::string out = fmt::format(
      "<g class=\"series\" data-name=\"{}\"><path d=\"{}\" fill=\"none\" stroke=\"{}\" "
      "stroke-width=\"2\"{}/>",
      escape_xml(s.name), path, color, s.dashed ? " stroke-dasharray=\"6 4\"" : "");
  if (!dots.empty()) out += fmt::format("<g fill=\"{}\">{}</g>", color, dots);
  return out + "</g>\n";
}

// Bars of series k as strokes, each on what the series before it have at that place.
std::string bars(const LineChart& c, std::size_t k, const Scale& sx, const Scale& sy) {
  const Series& s = c.series[k];
  std::string path;
  for (std::size_t i = 0; i < s.x.size(); ++i) {
    double below = 0;
    for (std::size_t n = 0; n < k; ++n) below += c.series[n].y[i];
    path += fmt::format("M{:.2f} {:.2f}V{:.2f}", sx(s.x[i]), sy(below), sy(below + s.y[i]));
  }
  return fmt::format(
      "<g class=\"series\" data-name=\"{}\"><path d=\"{}\" fill=\"none\" stroke=\"{}\" "
      "stroke-width=\"{:.2f}\"/></g>\n",
      escape_xml(s.name), path, color_of(c.series, k), 0.8 * (sx(1) - sx(0)));
}

// Below the plot when there are many words; a row of keys wraps.
std::string legend(const LineChart& c, double top, double& used) {
  std::string s = "<g class=\"legend\">\n";
  double x = kLeft, y = top;
  for (std::size_t i = 0; i < c.series.size(); ++i) {
    const double width = 40 + 7.0 * static_cast<double>(c.series[i].name.size());
    if (x + width > kWidth - kRight && x > kLeft) x = kLeft, y += 20;
    s += fmt::format("<path d=\"M{:.0f} {:.0f}h22\" stroke=\"{}\" stroke-width=\"3\"{}/>\n", x,
                     y - 4, color_of(c.series, i),
                     c.series[i].dashed ? " stroke-dasharray=\"6 4\"" : "");
    s +=
        svg_words(x + 28, y, "start", 12, fitting(c.series[i].name, kWidth - kRight - x - 28, 6.6));
    x += width;
  }
  used = y - top + 20;
  return s + "</g>\n";
}

}  // namespace

Json data(const LineChart& c) {
  Json j = Json::object({{"title", c.title}, {"x", axis_title(c.x)}, {"y", axis_title(c.y)}});
  Json all = Json::array();
  for (const Series& s : c.series) {
    Json x = Json::array(), y = Json::array();
    for (double v : s.x) x.push(Json(v));
    for (double v : s.y) y.push(std::isfinite(v) ? Json(v) : Json());
    all.push(Json::object({{"name", s.name}, {"x", std::move(x)}, {"y", std::move(y)}}));
  }
  j.set("series", std::move(all));
  if (!c.note.empty()) j.set("note", c.note);
  return j;
}

namespace {

// Rules and their labels, each where it hides least.
std::string rules(const LineChart& c, const Scale& sx, const Scale& sy, const Box& plot) {
  std::vector<std::vector<Point>> lines;
  for (const Series& s : c.series) {
    auto& line = lines.emplace_back();
    for (std::size_t i = 0; i < s.x.size(); ++i)
      if (is_shown(s, i, c)) line.push_back({sx(s.x[i]), sy(s.y[i])});
  }
  for (const Rule& r : c.rules)
    lines.push_back(r.vertical ? std::vector<Point>{{sx(r.at), plot.top}, {sx(r.at), plot.bottom}}
                               : std::vector<Point>{{plot.left, sy(r.at)}, {plot.right, sy(r.at)}});
  Labels labels(plot, std::move(lines));
  std::string s;
  for (const Rule& r : c.rules) {
    const double at = r.vertical ? sx(r.at) : sy(r.at);
    s += "<path class=\"rule\" d=\"" +
         (r.vertical ? fmt::format("M{:.1f} {}V{}", at, plot.top, plot.bottom)
                     : fmt::format("M{} {:.1f}H{}", plot.left, at, plot.right)) +
         "\" stroke=\"#777\" stroke-dasharray=\"3 3\"/>\n";
    if (r.label.empty()) continue;
    const Point p = labels.place(r.label, at, r.vertical);
    s += svg_words(p.x, p.y, "start", 11, r.label,
                   "class=\"rule-label\" fill=\"#444\" stroke=\"#fff\" stroke-width=\"3\" "
                   "paint-order=\"stroke\"");
  }
  return s;
}

}  // namespace

std::string svg(const LineChart& c) {
  const Extent e = extent(c);
  const double bottom = kHeight - kBottom, right = kWidth - kRight;
  const Scale sx(c.x, e.x0, e.x1, kLeft, right), sy(c.y, e.y0, e.y1, bottom, kTop);
  double used = 0;
  std::string below = legend(c, kHeight + 8, used);
  below += note_text(c.note, kHeight + 8, used);
  std::string s = open_svg(kHeight + used, c.title, data(c)) + heading(c.title, c.subtitle) +
                  frame(ticks_of(sx), ticks_of(sy), c.x, c.y, bottom, right, true);
  for (std::size_t i = 0; i < c.series.size(); ++i)
    s +=
        c.series[i].bars ? bars(c, i, sx, sy) : line(c.series[i], c, sx, sy, color_of(c.series, i));
  return s + rules(c, sx, sy, {kLeft, kTop, right, bottom}) + below + "</svg>\n";
}

Json data(const HeatMap& h) {
  Json rows = Json::array();
  std::size_t at = 0;
  for (int r = 0; r < h.rows; ++r) {
    Json row = Json::array();
    for (int c = 0; c < h.columns; ++c, ++at)
      row.push(std::isfinite(h.values[at])
                   ? Json(std::round(1e4 * static_cast<double>(h.values[at])) / 1e4)
                   : Json());
    rows.push(std::move(row));
  }
  Json j = Json::object({{"title", h.title},
                         {"x", axis_title(h.x)},
                         {"y", axis_title(h.y)},
                         {"value", h.value_label},
                         {"x_range", Json::array({Json(0), Json(h.columns)})},
                         {"y_range", Json::array({Json(0), Json(h.rows)})},
                         {"rows", std::move(rows)}});
  if (h.positions.is_array()) j.set("positions", h.positions);
  if (!h.note.empty()) j.set("note", h.note);
  return j;
}

namespace {

std::array<std::uint8_t, 3> diverging(double v) {  // -1 blue, 0 white, 1 orange
  if (!std::isfinite(v)) return {128, 128, 128};
  const double t = std::clamp(v, -1.0, 1.0), a = std::abs(t);
  const double end[2][3] = {{0, 96, 178}, {213, 94, 0}};
  std::array<std::uint8_t, 3> c{};
  for (std::size_t i = 0; i < 3; ++i)
    c[i] = static_cast<std::uint8_t>(255 + a * (end[t > 0][i] - 255));
  return c;
}

// The colour key: limit on top.
std::string colour_key(const HeatMap& h, double bottom, double right) {
  std::vector<std::uint8_t> key;
  for (int i = 0; i < 128; ++i)
    for (const std::uint8_t channel : diverging(1 - 2 * i / 127.0)) key.push_back(channel);
  std::string s = fmt::format(
      "<g class=\"legend\"><image x=\"{}\" y=\"{}\" width=\"16\" height=\"{}\" "
      "preserveAspectRatio=\"none\" href=\"data:image/png;base64,{}\"/>\n",
      right + 24, kTop + 20, bottom - kTop - 40, base64(png(key, 1, 128)));
  return s + svg_words(right + 46, kTop + 26, "start", 11, fmt::format("{:.3g}", h.limit)) +
         svg_words(right + 46, (kTop + bottom) / 2 + 4, "start", 11, "0") +
         svg_words(right + 46, bottom - 20, "start", 11, fmt::format("{:.3g}", -h.limit)) +
         svg_words(right + 24, kTop + 10, "start", 12, h.value_label) + "</g>\n";
}

}  // namespace

std::string svg(const HeatMap& h) {
  const double bottom = kHeight - kBottom, right = kWidth - 110;
  // The number of a row or column stands at its middle.
  const auto numbers = [](int count, double from, double to) {
    return Scale({"", "", false, -0.5, count - 0.5, true}, 0, 0, from, to);
  };
  std::vector<Tick> down;
  const Scale sy = numbers(h.rows, kTop, bottom);
  for (const RowName& n : h.row_names) down.push_back({sy(static_cast<double>(n.row)), n.name});
  if (down.empty()) down = ticks_of(sy);
  std::vector<std::uint8_t> pixels;
  pixels.reserve(3 * h.values.size());
  for (const float v : h.values)
    for (const std::uint8_t channel : diverging(static_cast<double>(v) / h.limit))
      pixels.push_back(channel);
  double used = 0;
  const std::string below = note_text(h.note, kHeight + 8, used);
  std::string s = open_svg(kHeight + used, h.title, data(h)) + heading(h.title, h.subtitle);
  s += fmt::format(
      "<image class=\"heat\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
      "preserveAspectRatio=\"none\" "
      "image-rendering=\"optimizeSpeed\" style=\"image-rendering:pixelated\" "
      "href=\"data:image/png;base64,{}\"/>\n",
      kLeft, kTop, right - kLeft, bottom - kTop, base64(png(pixels, h.columns, h.rows)));
  s += frame(ticks_of(numbers(h.columns, kLeft, right)), down, h.x, h.y, bottom, right, false);
  return s + colour_key(h, bottom, right) + below + "</svg>\n";
}

std::string svg(const Figure& f) {
  return std::visit([](const auto& chart) { return svg(chart); }, f.chart);
}
Json data(const Figure& f) {
  return std::visit([](const auto& chart) { return data(chart); }, f.chart);
}
void retitle(std::vector<Figure>& figures, const std::string& title) {
  for (Figure& f : figures)
    std::visit(
        [&](auto& chart) {
          chart.subtitle = chart.title + (chart.subtitle.empty() ? "" : "; ") + chart.subtitle;
          chart.title = title;
        },
        f.chart);
}

}  // namespace posenc::report
