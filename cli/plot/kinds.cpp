// SPDX-License-Identifier: Apache-2.0
// posenc plot: what each kind of picture shows of a rotary encoding.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "chart.h"
#include "input.h"
#include "rotary.h"

namespace posenc::cli {
namespace {

Drawn drawn_of(const Subject& s, const PlotOptions& o) {
  Drawn d;
  d.spec = turned_by(s, o.subject);
  if (d.spec.blocks.empty()) throw InputError("this layer turns nothing: there is nothing to draw");
  const Encoding* encoding = s.encoding ? &*s.encoding : nullptr;
  if (s.model) {
    const LayerSpec& layer = chosen_layer(*s.model, o.subject);
    for (const auto& e : layer.encodings)
      if (is_rotary(e.value.scheme)) encoding = &e.value;
    // The decoder's own: a tower counts patches or frames.
    if (s.model->context.value > 0 && o.subject.tower.empty()) d.context = s.model->context.value;
    d.title = fmt::format("{},{} layer {}", s.title,
                          o.subject.tower.empty() ? "" : " " + o.subject.tower, layer.index);
  } else {
    d.title = s.title;
  }
  d.context_given = o.subject.context.has_value();
  if (d.context_given) d.context = o.subject.context;
  d.unscaled = encoding ? turned_by(Encoding{encoding->scheme, {}}, {}) : d.spec;
  d.scaled = encoding && !encoding->scalings.empty();
  return d;
}

// One frequency a pair: of head 0, the sum over axes (most columns have one axis).
std::vector<double> flat(const RotarySpec& spec) {
  std::vector<double> f;
  for (const RotaryBlock& b : spec.blocks)
    for (Index i = 0; i < b.pairs(); ++i) {
      double sum = 0;
      for (Index a = 0; a < b.spectrum.axes; ++a)
        sum += std::abs(b.spectrum.frequency[static_cast<std::size_t>(a * b.pairs() + i)]);
      f.push_back(sum);
    }
  return f;
}

// Positions a turn of the pairs that turn, along one axis or (axis < 0) all of them.
Series wavelengths(const std::string& name, const RotarySpec& spec, Index axis, bool dashed) {
  Series s{name, {}, {}, dashed, !dashed};
  Index pair = 0;
  for (const RotaryBlock& b : spec.blocks)
    for (Index i = 0; i < b.pairs(); ++i, ++pair) {
      double f = 0;
      for (Index a = 0; a < b.spectrum.axes; ++a)
        if (axis < 0 || a == axis)
          f += std::abs(b.spectrum.frequency[static_cast<std::size_t>(a * b.pairs() + i)]);
      if (f == 0) continue;  // never turns: no wavelength
      s.x.push_back(static_cast<double>(pair));
      s.y.push_back(2 * std::numbers::pi / f);
    }
  return s;
}

Figure figure(const LineChart& c, std::string caption) {
  return {svg(c), std::move(caption), data(c)};
}

std::vector<Figure> plot_wavelengths(const Drawn& d) {
  LineChart c;
  c.title = "Wavelength of every pair";
  c.subtitle = d.title;
  c.x = {"pair", "index", false, {}, {}, true};
  c.y = {"wavelength", "positions a turn", true};
  const std::string name = d.scaled ? "as the model turns" : "wavelength";
  const Index axes = d.spec.axes();
  for (Index a = 0; axes > 1 && a < axes; ++a) {
    Series s = wavelengths(fmt::format("{} along axis {}", name, a), d.spec, a, false);
    if (!s.x.empty()) c.series.push_back(std::move(s));
  }
  if (c.series.empty()) c.series.push_back(wavelengths(name, d.spec, -1, false));
  if (d.scaled) c.series.push_back(wavelengths("before scaling", d.unscaled, -1, true));
  if (d.context) c.rules.push_back(context_rule(*d.context, false));
  c.note = unturned(d.spec);
  return {figure(
      c, d.context
             ? "Pairs above the line never complete a turn within the context: they act as "
               "coarse position; pairs far below it turn many times and tell neighbours apart."
             : "Pairs whose wavelength is beyond a text's length never complete a turn in it: "
               "they act as coarse position; fast pairs tell neighbours apart. --context N "
               "draws a length.")};
}

// Log-spaced whole distances from 1 to last, and 0 left out: the axis is logarithmic.
std::vector<double> distances(Index last) {
  std::vector<double> d;
  const double steps = 400, top = std::log(static_cast<double>(std::max<Index>(last, 2)));
  for (int i = 0; i <= steps; ++i) {
    const double v = std::round(std::exp(top * i / steps));
    if (d.empty() || v > d.back()) d.push_back(v);
  }
  return d;
}

// The pairs that turn, and log2 of their decay by one position.
struct Turning {
  std::vector<double> frequency, rate;
};

Turning turning(const RotarySpec& spec) {
  Turning t;
  const std::vector<double> f = flat(spec);
  std::size_t at = 0;
  for (const RotaryBlock& b : spec.blocks)
    for (Index i = 0; i < b.pairs(); ++i, ++at) {
      if (f[at] == 0) continue;
      t.frequency.push_back(f[at]);
      t.rate.push_back(
          b.log2_decay.empty() ? 0 : b.log2_decay[static_cast<std::size_t>(i)] / b.decay_scale);
    }
  if (t.frequency.empty()) throw InputError("no pair turns: there is no decay to draw");
  return t;
}

std::vector<Figure> plot_decay(const Drawn& d) {
  require_two_tokens(d.context, "decay");
  LineChart c;
  c.title = "Score of equal q and k by distance";
  c.subtitle = d.title;
  c.x = {d.spec.axes() > 1 ? "distance along every axis" : "distance", "positions", true};
  c.y = {"score relative to distance 0", "", false};
  Series score{"all channels equal: mean of cos(distance x frequency)", {}, {}},
      bound{"shape of the long-term decay bound, RoFormer eq. 37", {}, {}, true};
  const auto [f, rate] = turning(d.spec);
  const auto n = static_cast<double>(f.size());
  for (const double delta : distances(d.context.value_or(4096))) {
    double sum = 0, s_re = 0, s_im = 0, total = 0;
    for (std::size_t i = 0; i < f.size(); ++i) {
      const double decay = std::exp2(rate[i] * delta);
      sum += decay * std::cos(delta * f[i]);
      s_re += decay * std::cos(delta * f[i]), s_im += decay * std::sin(delta * f[i]);
      total += std::hypot(s_re, s_im);
    }
    score.x.push_back(delta), score.y.push_back(sum / n);
    bound.x.push_back(delta), bound.y.push_back(2 * total / (n * (n + 1)));
  }
  c.series = {std::move(score)};
  if (d.spec.head_dim > 0) c.series.push_back(std::move(bound));  // of rotations
  c.rules.push_back({"", 0, false});
  c.note = unturned(d.spec);
  if (!c.note.empty()) c.note += "; drawn is the score of the others";
  if (d.spec.head_dim == 0)
    return {figure(c, "What the phases alone make of the score of two vectors of equal lengths.")};
  return {
      figure(c,
             "What rotation alone makes of the score of two equal vectors. Turned channels "
             "only; the bound's shape is the mean length of the partial sums, divided by its value "
             "at distance 0 (the bound itself is that times the largest step between pairs).")};
}

std::vector<Figure> plot_scaling(const Drawn& d) {
  if (!d.scaled) throw InputError("this encoding has no scaling: before and after are the same");
  const std::vector<double> before = flat(d.unscaled), after = flat(d.spec);
  if (before.size() != after.size())
    throw InputError("the scaling changes the number of pairs: nothing to compare");
  LineChart c;
  c.title = "What the scaling does to every pair";
  c.subtitle = d.title;
  c.x = {"pair", "index", false, {}, {}, true};
  c.y = {"frequency after over before", "ratio", false, 0.0};
  Series s{"ratio", {}, {}, false, true};
  for (std::size_t i = 0; i < before.size(); ++i)
    if (before[i] != 0) s.x.push_back(static_cast<double>(i)), s.y.push_back(after[i] / before[i]);
  c.series = {std::move(s)};
  const Spectrum& spectrum = d.spec.blocks.front().spectrum;
  c.rules.push_back({"unchanged", 1, false});
  c.note = unturned(d.spec);
  std::vector<Figure> out{figure(
      c, fmt::format("cos and sin are multiplied by {} (attention factor), the softmax "
                     "scale by {}.",
                     short_number(spectrum.gain, 8), short_number(spectrum.logit_factor, 8)))};
  for (Figure& f : plot_wavelengths(d)) out.push_back(std::move(f));
  return out;
}

std::vector<Figure> plot_turned(const Drawn& d, const PlotOptions& o) {
  if (o.kind == "wavelengths") return plot_wavelengths(d);
  if (o.kind == "decay") return plot_decay(d);
  if (o.kind == "error") return plot_error(d);
  if (o.kind == "scaling") return plot_scaling(d);
  if (o.kind == "rows") return plot_rotary_rows(d, o.positions);
  throw UsageError("--kind must be rows, wavelengths, decay, error, scaling or extend, got \"" +
                   o.kind + "\"");
}

// What draws a file of weights has no use for what chooses within a model.
void refuse_of_a_model(const SubjectOptions& s) {
  if (s.context || s.layer || s.input || !s.tower.empty() || !s.assume.empty() ||
      !s.reader.empty() || !s.arrays.empty() || s.start)
    throw UsageError(
        "--context, --layer, --input, --tower, --assume, --reader, --arrays and --start go with a "
        "model or SCHEME; --kind extend draws a file of weights");
}

// `title` gets the name of what is drawn, and a kind that was not given its default.
std::vector<Figure> figures_of(PlotOptions& o, std::string& title) {
  if (o.kind == "extend") {
    refuse_of_a_model(o.subject);
    return plot_extend(o);
  }
  if (o.extend_given) throw UsageError("--at and the options of a table go with --kind extend");
  const Subject subject = read_subject(o.subject);
  title = subject.title;
  const bool by_rows = is_drawn_by_rows(subject, o);
  if (!o.extend.grid.empty() && (!by_rows || !(o.kind.empty() || o.kind == "rows")))
    throw UsageError("--grid goes with --kind extend, and with rows of what acts at the input");
  if (o.kind.empty())
    o.kind = !o.positions.empty() || !o.extend.grid.empty() ? "rows"
             : by_rows                                      ? usual_kind(subject, o)
                                                            : "wavelengths";
  if (by_rows) return plot_input(subject, o, title);
  const Drawn d = drawn_of(subject, o);
  title = d.title;
  return plot_turned(d, o);
}

}  // namespace

int plot(PlotOptions o) {
  const std::string format = output_format({o.output, o.format}, "svg or html");
  if (format != "svg" && format != "html")
    throw UsageError("the picture must be .svg or .html, got \"" +
                     (o.format.empty() ? o.output : o.format) + "\"");
  if (o.json && is_stdout(o.output))
    throw UsageError("--json and the picture cannot both go to stdout");
  if (!o.positions.empty() && !o.kind.empty() && o.kind != "rows")
    throw UsageError("--positions goes with --kind rows; --context sets the range of the others");
  std::string title = o.subject.text;
  const std::vector<Figure> figures = figures_of(o, title);
  write_text(o.output,
             format == "svg" ? stacked_svg(figures) : html_page("posenc: " + title, figures));
  if (o.json) {
    Json all = Json::array();
    for (const Figure& f : figures) all.push(f.data);
    write_text("-", Json::object(
                        {{"schema", "posenc.plot/1"}, {"kind", o.kind}, {"figures", in_utf8(all)}})
                            .dump() +
                        "\n");
  } else if (!is_stdout(o.output)) {
    fmt::print(stderr, "{}: {}\n", o.output, o.kind);
  }
  return kSuccess;
}

}  // namespace posenc::cli
