// SPDX-License-Identifier: Apache-2.0
#include "chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "png.h"
#include "scale.h"

namespace posenc::cli {
namespace {

constexpr double kWidth = 860, kHeight = 480, kLeft = 84, kRight = 26, kTop = 64, kBottom = 62;
// Okabe and Ito, 2008, darkest first.
constexpr std::array<const char*, 7> kColors{"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                             "#56B4E9", "#E69F00", "#000000"};

const char* color_of(const std::vector<Series>& all, std::size_t i) {
  const auto at = static_cast<std::size_t>(all[i].color.value_or(static_cast<int>(i)));
  return kColors[at % kColors.size()];
}

std::string axis_title(const Axis& a) {
  return a.unit.empty() ? a.label : a.label + " [" + a.unit + "]";
}

std::string text(double x, double y, const char* anchor, int size, std::string_view words,
                 std::string_view more = {}) {
  return fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\" {}>{}</text>\n", x, y,
      anchor, size, more, escape_xml(words));
}

std::string open_svg(double height, const std::string& title, const Json& numbers) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 "
      "0 {0:.0f} "
      "{1:.0f}\" role=\"img\" aria-label=\"{2}\" font-family=\"Helvetica, Arial, sans-serif\">\n"
      "<title>{2}</title>\n<metadata>{3}</metadata>\n"
      "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"#ffffff\"/>\n",
      kWidth, height, escape_xml(title), escape_xml(numbers.dump()));
}

// As many characters as fit beside each other; what is cut ends in dots.
std::string fitting(const std::string& words, double width, double character) {
  const auto most = static_cast<std::size_t>(width / character);
  return words.size() <= most ? words : words.substr(0, most - 3) + "...";
}

std::string heading(const std::string& title, const std::string& subtitle) {
  return text(kLeft, 26, "start", 17, title, "font-weight=\"bold\"") +
         text(kLeft, 46, "start", 12, fitting(subtitle, kWidth - kLeft - kRight, 6.6),
              "fill=\"#555\"");
}

std::string frame(const Scale& sx, const Scale& sy, const Axis& x, const Axis& y, double bottom,
                  double right) {
  std::string s = "<g stroke=\"#dddddd\" stroke-width=\"1\">\n";
  for (double t : sx.ticks())
    s += fmt::format("<path d=\"M{0:.1f} {1}V{2}\"/>\n", sx(t), kTop, bottom);
  for (double t : sy.ticks())
    s += fmt::format("<path d=\"M{1} {0:.1f}H{2}\"/>\n", sy(t), kLeft, right);
  s += "</g>\n<g fill=\"#333\">\n";
  for (double t : sx.ticks()) s += text(sx(t), bottom + 17, "middle", 11, sx.tick_text(t));
  for (double t : sy.ticks()) s += text(kLeft - 8, sy(t) + 4, "end", 11, sy.tick_text(t));
  s += text((kLeft + right) / 2, bottom + 42, "middle", 13, axis_title(x), "class=\"x-label\"");
  s += fmt::format(
      "<text class=\"y-label\" font-size=\"13\" text-anchor=\"middle\" transform=\"translate(20 "
      "{:.1f}) rotate(-90)\">{}</text>\n</g>\n",
      (kTop + bottom) / 2, escape_xml(axis_title(y)));
  s += fmt::format("<path d=\"M{} {}V{}H{}\" fill=\"none\" stroke=\"#333\"/>\n", kLeft, kTop,
                   bottom, right);
  return s;
}

struct Extent {
  double x0 = INFINITY, x1 = -INFINITY, y0 = INFINITY, y1 = -INFINITY;
};

Extent extent(const LineChart& c) {
  Extent e;
  for (const Series& s : c.series)
    for (std::size_t i = 0; i < s.x.size(); ++i) {
      const bool shown = std::isfinite(s.x[i]) && std::isfinite(s.y[i]) &&
                         !(c.x.logarithmic && s.x[i] <= 0) && !(c.y.logarithmic && s.y[i] <= 0);
      if (!shown) continue;
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
    const bool shown = std::isfinite(s.y[i]) && !(c.x.logarithmic && s.x[i] <= 0) &&
                       !(c.y.logarithmic && s.y[i] <= 0);
    if (!shown) {
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
    s += text(x + 28, y, "start", 12, c.series[i].name);
    x += width;
  }
  used = y - top + 20;
  return s + "</g>\n";
}

}  // namespace

std::string escape_xml(std::string_view t) {
  std::string out;
  for (const char ch : t) switch (ch) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += ch;
    }
  return out;
}

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
  return j;
}

std::string svg(const LineChart& c) {
  const Extent e = extent(c);
  const double bottom = kHeight - kBottom, right = kWidth - kRight;
  const Scale sx(c.x, e.x0, e.x1, kLeft, right), sy(c.y, e.y0, e.y1, bottom, kTop);
  double used = 0;
  const std::string keys = legend(c, kHeight + 8, used);
  std::string s = open_svg(kHeight + used, c.title, data(c)) + heading(c.title, c.subtitle) +
                  frame(sx, sy, c.x, c.y, bottom, right);
  for (const Rule& r : c.rules) {
    if (r.vertical) {
      s += fmt::format(
          "<path class=\"rule\" d=\"M{:.1f} {}V{}\" stroke=\"#777\" stroke-dasharray=\"3 3\"/>\n",
          sx(r.at), kTop, bottom);
      s += text(sx(r.at) - 5, kTop + 14, "end", 11, r.label, "fill=\"#555\"");
    } else {
      s += fmt::format(
          "<path class=\"rule\" d=\"M{} {:.1f}H{}\" stroke=\"#777\" stroke-dasharray=\"3 3\"/>\n",
          kLeft, sy(r.at), right);
      s += text(kLeft + 8, sy(r.at) - 5, "start", 11, r.label, "fill=\"#555\"");
    }
  }
  for (std::size_t i = 0; i < c.series.size(); ++i)
    s += line(c.series[i], c, sx, sy, color_of(c.series, i));
  return s + keys + "</svg>\n";
}

Json data(const HeatMap& h) {
  Json rows = Json::array();
  std::size_t at = 0;
  for (int r = 0; r < h.rows; ++r) {
    Json row = Json::array();
    for (int c = 0; c < h.columns; ++c)
      row.push(Json(std::round(1e4 * static_cast<double>(h.values[at++])) / 1e4));
    rows.push(std::move(row));
  }
  return Json::object({{"title", h.title},
                       {"x", axis_title(h.x)},
                       {"y", axis_title(h.y)},
                       {"value", h.value_label},
                       {"x_range", Json::array({Json(h.x_min), Json(h.x_max)})},
                       {"y_range", Json::array({Json(h.y_min), Json(h.y_max)})},
                       {"rows", std::move(rows)}});
}

namespace {
std::array<std::uint8_t, 3> diverging(double v) {  // -1 blue, 0 white, 1 orange
  const double t = std::clamp(v, -1.0, 1.0), a = std::abs(t);
  const double end[2][3] = {{0, 96, 178}, {213, 94, 0}};
  std::array<std::uint8_t, 3> c{};
  for (std::size_t i = 0; i < 3; ++i)
    c[i] = static_cast<std::uint8_t>(255 + a * (end[t > 0][i] - 255));
  return c;
}
}  // namespace

std::string svg(const HeatMap& h) {
  const double bottom = kHeight - kBottom, right = kWidth - 110;
  const Axis x{h.x.label, h.x.unit, false, h.x_min, h.x_max, h.x.whole},
      y{h.y.label, h.y.unit, false, h.y_min, h.y_max};
  const Scale sx(x, h.x_min, h.x_max, kLeft, right), sy(y, h.y_min, h.y_max, kTop, bottom);
  std::vector<std::uint8_t> pixels;
  for (const float v : h.values)
    for (const std::uint8_t channel : diverging(static_cast<double>(v) / h.limit))
      pixels.push_back(channel);
  std::string s = open_svg(kHeight, h.title, data(h)) + heading(h.title, h.subtitle);
  s += fmt::format(
      "<image class=\"heat\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
      "preserveAspectRatio=\"none\" "
      "image-rendering=\"pixelated\" href=\"data:image/png;base64,{}\"/>\n",
      kLeft, kTop, right - kLeft, bottom - kTop, base64(png(pixels, h.columns, h.rows)));
  s += frame(sx, sy, x, y, bottom, right);
  // The colour key: limit on top.
  std::vector<std::uint8_t> key;
  for (int i = 0; i < 128; ++i)
    for (const std::uint8_t channel : diverging(1 - 2 * i / 127.0)) key.push_back(channel);
  s += fmt::format(
      "<g class=\"legend\"><image x=\"{}\" y=\"{}\" width=\"16\" height=\"{}\" "
      "preserveAspectRatio=\"none\" href=\"data:image/png;base64,{}\"/>\n",
      right + 24, kTop + 20, bottom - kTop - 40, base64(png(key, 1, 128)));
  s += text(right + 46, kTop + 26, "start", 11, fmt::format("{:g}", h.limit)) +
       text(right + 46, (kTop + bottom) / 2 + 4, "start", 11, "0") +
       text(right + 46, bottom - 20, "start", 11, fmt::format("{:g}", -h.limit)) +
       text(right + 24, kTop + 10, "start", 12, h.value_label) + "</g>\n";
  return s + "</svg>\n";
}

}  // namespace posenc::cli
