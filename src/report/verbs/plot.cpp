// SPDX-License-Identifier: Apache-2.0
// posenc plot: the choice of the picture, and the pictures of the frequencies of a rotary encoding.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>

#include "call_grid.h"
#include "plot/chart.h"
#include "plot/compare.h"
#include "plot/input.h"
#include "plot/language.h"
#include "plot/rotary.h"
#include "plot/score.h"
#include "posenc/report/picture.h"
#include "posenc/report/verb.h"

namespace posenc::report {
namespace {

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

// A line for each axis of the positions, or one.
void add_wavelengths(LineChart& c, const Drawn& d, const std::string& name,
                     const RotarySpec& spec) {
  const std::size_t before = c.series.size();
  const Index axes = spec.axes();
  for (Index a = 0; axes > 1 && a < axes; ++a) {
    Series s = wavelengths(name + " along " + d.axis_name(a), spec, a, false);
    if (!s.x.empty()) c.series.push_back(std::move(s));
  }
  if (c.series.size() == before) c.series.push_back(wavelengths(name, spec, -1, false));
}

std::vector<Figure> plot_wavelengths(const Drawn& d) {
  LineChart c;
  c.title = "Wavelength of every pair";
  c.subtitle = d.title;
  c.x = {"pair", "index", false, {}, {}, true};
  c.y = {"wavelength", "positions a rotation", true};
  if (d.layers.empty()) {
    add_wavelengths(c, d, d.scaled ? "as the model rotates" : "wavelength", d.spec);
    if (d.scaled) c.series.push_back(wavelengths("before scaling", d.unscaled, -1, true));
    c.note = unturned(d.spec);
  }
  for (const DrawnLayers& l : d.layers) add_wavelengths(c, d, l.name, l.spec);
  if (d.context) c.rules.push_back(context_rule(*d.context, false));
  std::string caption =
      d.context
          ? "Pairs above the line never complete a rotation within the context: they act as "
            "coarse position; pairs far below it rotate many times and tell neighbours apart."
          : "Pairs whose wavelength is beyond a text's length never complete a rotation in it: "
            "they act as coarse position; fast pairs tell neighbours apart. --context N "
            "draws a length.";
  return {Figure{std::move(c), std::move(caption)}};
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
  std::string caption =
      fmt::format("cos and sin are multiplied by {} (attention factor), the softmax scale by {}.",
                  short_number(spectrum.gain, 8), short_number(spectrum.logit_factor, 8));
  std::vector<Figure> out;
  out.push_back({std::move(c), std::move(caption)});
  for (Figure& f : plot_wavelengths(d)) out.push_back(std::move(f));
  return out;
}

std::vector<Figure> plot_turned(const Drawn& d, const PlotOptions& o) {
  if (o.kind == "wavelengths") return plot_wavelengths(d);
  if (o.kind == "decay") return plot_decay(d);
  if (o.kind == "error") return plot_error(d);
  if (o.kind == "scaling") return plot_scaling(d);
  if (o.kind == "rows") return plot_rotary_rows(d, o.positions);
  if (o.kind == "rotation") return plot_rotation(d, o.positions);
  throw UsageError("--kind " + o.kind + " draws what acts in the score, and this rotates");
}

void check_kind(const std::string& kind) {
  static constexpr std::string_view kinds[] = {"rows",     "wavelengths", "rotation", "decay",
                                               "error",    "scaling",     "bias",     "terms",
                                               "locality", "extend"};
  if (!kind.empty() && std::find(std::begin(kinds), std::end(kinds), kind) == std::end(kinds))
    throw UsageError(
        "--kind must be rows, wavelengths, rotation, decay, error, scaling, bias, terms, locality "
        "or extend, got \"" +
        kind + "\"");
}

// What draws a file of weights has no use for what chooses within a model.
void refuse_of_a_model(const SubjectOptions& s) {
  if (s.context || s.layer || s.input || !s.tower.empty() || !s.assume.empty() ||
      !s.reader.empty() || !s.arrays.empty() || s.start)
    throw UsageError(
        "--context, --layer, --input, --tower, --assume, --reader, --arrays and --start go with a "
        "model or SCHEME; --kind extend draws a file of weights");
}

void refuse_positions() {
  throw UsageError(
      "--positions goes with the kinds rows, rotation, bias, terms, locality and decay of a score; "
      "--context "
      "sets the range of the others");
}

// What attend reads has no place in pictures that run no attention.
void refuse_call_words(const PlotOptions& o, const std::string& kind) {
  const AttendOptions& a = o.call;
  const bool only_params = kind == "bias";
  if (!a.q.empty() || !a.k.empty() || !a.v.empty() || !o.extend.order.empty() || !a.masks.empty() ||
      !a.with.empty() || !a.token_types.empty() ||
      (!only_params && (!a.params.empty() || !a.inputs.empty())))
    throw UsageError(
        "--q, --k, --v, --order, --params, --input NAME=F, --mask, --token-types and --with go "
        "with "
        "the kinds terms, locality and decay of a score, not with --kind " +
        kind);
}

// What --heads, --head-dim, --q and --mask say of the model.
ModelSizes sizes_of(const PlotOptions& o) {
  ModelSizes sizes{.heads = o.heads, .head_dim = o.head_dim};
  if (!o.call.q.empty()) {
    AttendOptions a = o.call;
    a.order = o.extend.order;
    AttendCall call;
    sizes = sizes_of_call(call, a);
  }
  for (const std::string& m : o.call.masks)
    if (m == "causal") sizes.causal = true;
  return sizes;
}

// `title` gets the name of what is drawn, and a kind that was not given its default.
std::vector<Figure> figures_of(PlotOptions& o, std::string& title) {
  check_kind(o.kind);
  if (o.kind == "extend") {
    refuse_of_a_model(o.subject);
    return plot_extend(o);
  }
  if (o.extend_given) throw UsageError("--at and the options of a table go with --kind extend");
  o.subject.sizes = sizes_of(o);
  const bool of_score = o.kind == "terms" || o.kind == "locality" || o.kind == "decay";
  Subject subject = read_subject_on_grid(o.subject, of_score ? o.extend.grid : "");
  if (subject.is_model()) subject.title = file_name(o.subject.text) + ": " + subject.title;
  title = subject.title;
  if (o.kind.empty() && o.heads > 0) o.kind = "bias";
  if (o.kind.empty() && subject.encoding && is_relative(subject.encoding->scheme)) o.kind = "decay";
  if ((o.kind == "bias" || o.kind == "decay") && draws_table_rows(subject, o)) {
    refuse_call_words(o, o.kind);
    return plot_table_rows(subject, o);
  }
  if (o.kind == "bias") {
    refuse_call_words(o, o.kind);
    return plot_bias(subject, o);
  }
  if (is_score_kind(subject, o)) return plot_score(subject, o);
  refuse_call_words(o, o.kind.empty() ? "of this picture" : o.kind);
  if ((o.heads > 0 || o.head_dim > 0) && subject.filled.empty())
    throw UsageError("--heads goes with the kinds bias, terms, locality and decay of a score");
  if (o.kind == "decay" && !o.positions.empty()) refuse_positions();
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

// The pictures of the subject, with --compare as one.
std::vector<Figure> all_figures(PlotOptions& o, std::string& title) {
  std::vector<Compared> all{{"", figures_of(o, title)}};
  if (o.compare.empty()) return std::move(all.front().figures);
  all.front().name = title;
  for (const std::string& text : o.compare) {
    PlotOptions other = o;
    other.subject.text = text;
    Compared& one = all.emplace_back(Compared{text, {}});
    one.figures = figures_of(other, one.name);
  }
  return compared(all);
}

std::string picture(const std::vector<Figure>& figures, const std::string& format,
                    const std::string& title) {
  if (format == "html") return html_page(title, figures);
  const std::string svg = stacked_svg(figures);
  return format == "png" ? png_of_svg(svg) : svg;
}

}  // namespace

Report plot(PlotOptions o, const Request& r) {
  check_language(o.language);
  const std::initializer_list<const char*> takes_positions{"",      "rows",     "rotation", "bias",
                                                           "terms", "locality", "decay"};
  if (!o.positions.empty() &&
      std::find(takes_positions.begin(), takes_positions.end(), o.kind) == takes_positions.end())
    refuse_positions();
  std::string title = o.subject.text;
  std::vector<Figure> figures = all_figures(o, title);
  translate(figures, o.language);
  if (!o.title.empty()) {
    retitle(figures, o.title);
    title = o.title;
  }
  Report made{.bytes = picture(figures, r.format, o.title.empty() ? "posenc: " + title : title)};
  made.written = fmt::format("{}: {}\n", r.path, o.kind);
  if (!r.json) return made;
  Json all = Json::array();
  for (const Figure& f : figures) all.push(data(f));
  made.text =
      Json::object({{"schema", "posenc.plot/1"}, {"kind", o.kind}, {"figures", in_utf8(all)}})
          .dump() +
      "\n";
  return made;
}

namespace {

Verb::Run declare_plot(Words& w) {
  auto o = std::make_shared<PlotOptions>();
  add_plot_words(w, *o);
  return [o](const Request& r) { return plot(*o, r); };
}

}  // namespace

const Verb plot_verb{
    "plot", "draw rows, wavelengths, rotation, decay, error, scaling, bias, terms or locality",
    &declare_plot,
    "Examples:\n  posenc plot config.json\n"
    "  posenc plot models/gemma --title \"Local and global layers\" -o wavelengths.svg\n"
    "  posenc plot \"rope head_dim=64 pairing=interleaved\" --kind rows --positions 0:256 -o "
    "rows.html\n"
    "  posenc plot \"rope head_dim=8 pairing=half_split\" --kind rotation -o dials.png\n"
    "  posenc plot alibi --compare \"t5 bidirectional=false\" --start 1 --kind bias --heads 8 -o "
    "both.svg\n"
    "  posenc plot \"sinusoidal width=128\" --kind decay -o inner_products.svg\n"
    "  posenc plot models/bert --kind decay -o learned.svg\n"
    "  posenc plot models/detr --grid 12x16 -o cells.svg\n"
    "  posenc plot alibi --kind locality --mask causal -o local.svg\n"
    "  posenc plot \"deberta max_relative_positions=64 position_buckets=0\" --start 1 --kind "
    "terms -o terms.svg\n"
    "  posenc plot bert.safetensors --kind extend --tensor "
    "bert.embeddings.position_embeddings.weight \\\n"
    "    --to 1024 --how linear -o longer.svg"};

}  // namespace posenc::report
