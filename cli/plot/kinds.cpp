// SPDX-License-Identifier: Apache-2.0
// posenc plot: what each kind of picture shows of a rotary encoding.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "chart.h"
#include "input.h"
#include "verbs.h"

namespace posenc::cli {
namespace {

struct Drawn {
  RotarySpec spec, unscaled;
  bool scaled = false;
  std::string title;
  Index context = 0;
};

Drawn drawn_of(const Subject& s, const PlotOptions& o) {
  Drawn d;
  d.spec = turned_by(s, o.subject);
  if (d.spec.blocks.empty()) throw InputError("this layer turns nothing: there is nothing to draw");
  const Encoding* encoding = s.encoding ? &*s.encoding : nullptr;
  if (s.model) {
    const LayerSpec& layer = chosen_layer(*s.model, o.subject);
    for (const auto& e : layer.encodings)
      if (is_rotary(e.value.scheme)) encoding = &e.value;
    d.context = s.model->context.value;
    d.title = fmt::format("{}, layer {}", s.title, layer.index);
  } else {
    d.title = s.title;
  }
  if (o.subject.context) d.context = *o.subject.context;
  if (d.context <= 0) d.context = 4096;
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

Series wavelengths(const std::string& name, const std::vector<double>& f, bool dashed) {
  Series s{name, {}, {}, dashed, !dashed};
  for (std::size_t i = 0; i < f.size(); ++i) {
    if (f[i] == 0) continue;  // never turns: no wavelength
    s.x.push_back(static_cast<double>(i));
    s.y.push_back(2 * std::numbers::pi / f[i]);
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
  c.series.push_back(
      wavelengths(d.scaled ? "as the model turns" : "wavelength", flat(d.spec), false));
  if (d.scaled) c.series.push_back(wavelengths("before scaling", flat(d.unscaled), true));
  c.rules.push_back(
      {fmt::format("context {}", with_commas(d.context)), static_cast<double>(d.context), false});
  return {figure(
      c,
      "Pairs above the line never complete a turn within the context: they act as coarse position; "
      "pairs far below it turn many times and tell neighbours apart.")};
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

std::vector<Figure> plot_decay(const Drawn& d) {
  LineChart c;
  c.title = "Score of equal q and k by distance";
  c.subtitle = d.title;
  c.x = {"distance", "positions", true};
  c.y = {"score relative to distance 0", "", false};
  Series score{"all channels equal: mean of cos(distance x frequency)", {}, {}},
      bound{"shape of the long-term decay bound, RoFormer eq. 37", {}, {}, true};
  const std::vector<double> f = flat(d.spec);
  std::vector<double> rate;  // log2 of the decay by one position, pair by pair
  for (const RotaryBlock& b : d.spec.blocks)
    for (Index i = 0; i < b.pairs(); ++i)
      rate.push_back(
          b.log2_decay.empty() ? 0 : b.log2_decay[static_cast<std::size_t>(i)] / b.decay_scale);
  for (const double delta : distances(d.context)) {
    double sum = 0, s_re = 0, s_im = 0, total = 0;
    for (std::size_t i = 0; i < f.size(); ++i) {
      const double decay = std::exp2(rate[i] * delta);
      sum += decay * std::cos(delta * f[i]);
      s_re += decay * std::cos(delta * f[i]), s_im += decay * std::sin(delta * f[i]);
      total += std::hypot(s_re, s_im);
    }
    const double n = static_cast<double>(f.size());
    score.x.push_back(delta), score.y.push_back(sum / n);
    bound.x.push_back(delta), bound.y.push_back(2 * total / (n * (n + 1)));
  }
  c.series = {std::move(score)};
  if (d.spec.head_dim > 0) c.series.push_back(std::move(bound));  // of rotations
  c.rules.push_back({"0", 0, false});
  if (d.spec.head_dim == 0)
    return {figure(c, "What the phases alone make of the score of two vectors of equal lengths.")};
  return {
      figure(c,
             "What rotation alone makes of the score of two equal vectors. Turned channels "
             "only; the bound's shape is the mean length of the partial sums, divided by its value "
             "at distance 0 (the bound itself is that times the largest step between pairs).")};
}

double worst(const std::vector<double>& exact, const std::vector<double>& other) {
  double w = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) w = std::max(w, std::abs(exact[i] - other[i]));
  return w;
}

std::vector<double> row(const Spectrum& s, Index position, Precision precision, DType dtype) {
  const std::vector<Index> p(static_cast<std::size_t>(s.axes), position);
  Positions view = positions(std::span<const Index>(p.data(), 1));
  view.axes = static_cast<std::int32_t>(s.axes);
  view.axis_stride = 1;
  Array a = make_array(dtype, {1, 2 * s.pairs() * s.heads});
  phase_rows(s, view, a.view(), TableLayout::half, precision, inline_executor());
  return a.doubles();
}

std::vector<Figure> plot_error(const Drawn& d) {
  LineChart c;
  c.title = "Error of cos and sin by precision";
  c.subtitle = d.title;
  c.x = {"position", "tokens", true};
  c.y = {"largest error over the pairs", "absolute", true};
  struct Kind {
    const char* name;
    Precision precision;
    DType dtype;
  };
  std::vector<Kind> kinds{{"exact rows, f32", Precision::exact, DType::f32},
                          {"hf_float32", Precision::hf_float32, DType::f32},
                          {"hf_bfloat16_table", Precision::hf_bfloat16_table, DType::f32}};
  bool ggml = true;
  for (const RotaryBlock& b : d.spec.blocks) ggml = ggml && b.spectrum.ggml;
  if (ggml) kinds.push_back({"ggml", Precision::ggml, DType::f32});
  for (const Kind& k : kinds) c.series.push_back({k.name, {}, {}, false, true});
  for (double decade = 2; decade < 2e7; decade *= 2) {
    // The worst of a few neighbours: one position alone may be lucky.
    std::vector<double> w(kinds.size(), 0);
    for (Index j = 0; j < 8; ++j) {
      const Index p = static_cast<Index>(decade) - 1 - j * (decade >= 16 ? 1 : 0);
      for (const RotaryBlock& b : d.spec.blocks) {
        const std::vector<double> truth = row(b.spectrum, p, Precision::exact, DType::f64);
        for (std::size_t k = 0; k < kinds.size(); ++k)
          w[k] =
              std::max(w[k], worst(truth, row(b.spectrum, p, kinds[k].precision, kinds[k].dtype)));
      }
    }
    for (std::size_t k = 0; k < kinds.size(); ++k)
      c.series[k].x.push_back(decade), c.series[k].y.push_back(std::max(w[k], 1e-17));
  }
  c.rules.push_back(
      {fmt::format("context {}", with_commas(d.context)), static_cast<double>(d.context), true});
  return {figure(c,
                 "Against the exact rows in double. Float32 angles lose about 6e-8 of the "
                 "position; a bfloat16 "
                 "table loses eight bits everywhere.")};
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
  c.rules.push_back({"1: unchanged", 1, false});
  std::vector<Figure> out{figure(
      c, fmt::format("cos and sin are multiplied by {} (attention factor), the softmax "
                     "scale by {}.",
                     short_number(spectrum.gain, 8), short_number(spectrum.logit_factor, 8)))};
  for (Figure& f : plot_wavelengths(d)) out.push_back(std::move(f));
  return out;
}

Figure heat_map(const Spectrum& s, const Positions& view, bool sine, const std::string& title,
                bool tokens) {
  const Index rows = view.batch * view.count;
  Array a = make_array(DType::f32, {rows, s.pairs()});
  phase_rows(s, view, sine ? TensorView{} : a.view(), sine ? a.view() : TensorView{},
             TableLayout::half);
  HeatMap h;
  h.title = sine ? "Sine of every pair and position" : "Cosine of every pair and position";
  h.subtitle = title;
  h.x = {"pair", "index", false, {}, {}, true};
  h.y = {"position", tokens ? "tokens" : "tokens, row of the list"};
  h.value_label = sine ? "sin" : "cos";
  h.rows = static_cast<int>(rows), h.columns = static_cast<int>(s.pairs());
  h.x_max = static_cast<double>(s.pairs()), h.y_max = static_cast<double>(rows);
  h.limit = std::max(1.0, std::abs(s.gain));
  const std::vector<double> v = a.doubles();
  h.values.assign(v.begin(), v.end());
  return {svg(h), "Fast pairs on the left, slow ones on the right.", data(h)};
}

std::vector<Figure> plot_rows(const Drawn& d, const std::string& text) {
  PositionList list;
  if (text.empty()) {
    std::vector<Index> p(static_cast<std::size_t>(std::min<Index>(d.context, 256)));
    for (std::size_t i = 0; i < p.size(); ++i) p[i] = static_cast<Index>(i);
    list.shape = {static_cast<Index>(p.size())};
    list.owned.value = std::move(p);
  } else {
    list = read_positions(text);
  }
  std::vector<Figure> out;
  for (std::size_t b = 0; b < d.spec.blocks.size(); ++b) {
    const Spectrum& s = d.spec.blocks[b].spectrum;
    const Positions view = spread_over_axes(list, s.axes);
    const Index rows = view.batch * view.count;
    if (rows < 1 || rows > 2048) throw UsageError("rows draws 1 to 2048 positions");
    if (s.heads != 1) throw InputError("rows draws one spectrum for all heads");
    const std::string title =
        d.spec.blocks.size() == 1 ? d.title : fmt::format("{}, block {}", d.title, b);
    for (const bool sine : {false, true})
      out.push_back(heat_map(s, view, sine, title, text.empty()));
  }
  return out;
}

std::vector<Figure> plot_rotary(const Drawn& d, const PlotOptions& o) {
  if (o.kind == "wavelengths") return plot_wavelengths(d);
  if (o.kind == "decay") return plot_decay(d);
  if (o.kind == "error") return plot_error(d);
  if (o.kind == "scaling") return plot_scaling(d);
  if (o.kind == "rows") return plot_rows(d, o.positions);
  throw UsageError("--kind must be rows, wavelengths, decay, error, scaling or extend, got \"" +
                   o.kind + "\"");
}

// What draws a file of weights has no use for what chooses within a model.
void refuse_of_a_model(const SubjectOptions& s) {
  if (s.context || s.layer || s.input || !s.tower.empty() || !s.assume.empty() ||
      !s.reader.empty() || !s.arrays.empty())
    throw UsageError(
        "--context, --layer, --input, --tower, --assume, --reader and --arrays go with a model or "
        "SCHEME; --kind extend draws a file of weights");
}

std::vector<Figure> figures_of(const PlotOptions& o, std::string& title) {
  if (o.kind == "extend") {
    refuse_of_a_model(o.subject);
    return plot_extend(o);
  }
  if (o.extend_given) throw UsageError("--at and the options of a table go with --kind extend");
  const Subject subject = read_subject(o.subject);
  title = subject.title;
  if (is_drawn_by_rows(subject, o)) return plot_input(subject, o, title);
  const Drawn d = drawn_of(subject, o);
  title = d.title;
  return plot_rotary(d, o);
}

}  // namespace

int plot(const PlotOptions& o) {
  const std::string format = output_format({o.output, o.format}, "svg or html");
  if (format != "svg" && format != "html")
    throw UsageError("the picture must be .svg or .html, got \"" +
                     (o.format.empty() ? o.output : o.format) + "\"");
  if (o.json && is_stdout(o.output))
    throw UsageError("--json and the picture cannot both go to stdout");
  if (!o.positions.empty() && o.kind != "rows")
    throw UsageError("--positions goes with --kind rows; --context sets the range of the others");
  std::string title = o.subject.text;
  const std::vector<Figure> figures = figures_of(o, title);
  write_text(o.output,
             format == "svg" ? stacked_svg(figures) : html_page("posenc: " + title, figures));
  if (o.json) {
    Json all = Json::array();
    for (const Figure& f : figures) all.push(f.data);
    write_text(
        "-",
        Json::object({{"schema", "posenc.plot/1"}, {"kind", o.kind}, {"figures", all}}).dump() +
            "\n");
  } else if (!is_stdout(o.output)) {
    fmt::print(stderr, "{}: {}\n", o.output, o.kind);
  }
  return kSuccess;
}

}  // namespace posenc::cli
