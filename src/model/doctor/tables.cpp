// SPDX-License-Identifier: Apache-2.0
// The tables that the weights hold, against what the config means; and the tensors of what acts in
// the score, against what the schemes need: they are there, their sizes that do not depend on heads
// fit, and their numbers are finite. docs/doctor.md has a paragraph on each code.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <stdexcept>

#include "model/doctor/input.h"
#include "model/hugging_face/config_view.h"
#include "model/learned_tables.h"
#include "posenc/absolute/input_term.h"
#include "posenc/attention/plan.h"
#include "posenc/core/error.h"
#include "posenc/model/cells.h"
#include "posenc/model/weights.h"
#include "posenc/positions.h"

namespace posenc::inline v0 {
namespace {

constexpr const char* kSizes = "state the sizes of the checkpoint in the config";
constexpr const char* kDamaged =
    "the checkpoint is damaged, or was cast to float16 where it overflows";

struct Rows {
  const std::vector<double>& values;
  Index width;
  const double* at(Index r) const { return values.data() + r * width; }
  bool zero(Index r) const {
    return std::all_of(at(r), at(r) + width, [](double v) { return v == 0; });
  }
  bool finite(Index r) const {
    return std::all_of(at(r), at(r) + width, [](double v) { return std::isfinite(v); });
  }
};

// A parameter at one head of one channel, at two heads, at two channels: sizes that stay are fixed.
struct Needed {
  std::vector<Index> one, heads, channels;
  bool fixed(std::size_t axis) const {
    return one[axis] == heads[axis] && one[axis] == channels[axis];
  }
};

std::optional<Needed> needed(const Encoding& e, const std::string& name) {
  const AnyRelativeScheme scheme = relative_scheme(e);
  const auto shape = [&](Index heads, Index channels) -> std::vector<Index> {
    for (Parameter& p : scheme.parameters({.heads = heads, .head_dim = channels}))
      if (p.name == name) return std::move(p.shape);
    return {};
  };
  Needed n{shape(1, 1), shape(2, 1), shape(1, 2)};
  if (n.one.empty() || n.one.size() != n.heads.size() || n.one.size() != n.channels.size())
    return std::nullopt;
  return n;
}

class TableDoctor {
 public:
  TableDoctor(const ModelSpec& spec, ModelWeights& weights, Diagnostics& report)
      : gguf_(spec.reader == "llama_cpp"), weights_(weights), report_(report) {}

  void look(const InputEncoding& e, bool of_tower) {
    for (std::size_t k = 0; k < e.tensors.size(); ++k) {
      if (e.tensors[k].empty() || stacked(e.tensors, k).at > 0) continue;  // read already
      const std::vector<StoredTensor> found = weights_.find(e.tensors[k]);
      const bool sines = std::holds_alternative<Sinusoidal>(e.value.scheme) ||
                         std::holds_alternative<SinusoidalNd>(e.value.scheme);
      if (found.empty() && (!sines || (of_image(e) && !of_tower))) missing(e.tensors[k], sines);
      for (const StoredTensor& t : found) one(e, k, t, sines);
    }
  }

  // What acts in the score.
  void look(const std::vector<LayerSpec>& layers) {
    for (const LayerSpec& layer : layers)
      for (const LayerEncoding& e : layer.encodings)
        for (const auto& [parameter, tensor] : e.tensors)
          if (seen_.insert(tensor).second) one(layer, e, parameter, tensor);
  }

 private:
  void add(Severity severity, const char* code, const StoredTensor& t, const Sentence& text,
           const Sentence& fix, std::optional<double> value = {}) {
    report_.add(severity, code, {"{} {}", t.name, text.of("")}, t.file + "#" + t.name, fix, value);
  }

  // The model has a table of its own of the cells of an image.
  static bool of_image(const InputEncoding& e) { return e.grid && e.grid->of_model(); }

  // ViT-MAE's sinusoids (`sines`): run, the memory held NaN and 4.8e22.
  void missing(const std::string& name, bool sines) {
    report_.add(
        gguf_ && !sines ? Severity::error : Severity::warning, "table_missing",
        {"the weights have no tensor {}{}", name,
         sines ? ": transformers 5.23 does not fill it on loading and adds uninitialised memory to "
                 "the patches"
         : gguf_
             ? " for the learned positions: llama.cpp does not load the file"
             : " for the learned positions: transformers initialises it at random, with a warning"},
        weights_.place(),
        sines ? "use the tensor of the model's own checkpoint, or store the rows of posenc table "
                "under that name"
              : "");
  }

  void one(const LayerSpec& layer, const LayerEncoding& e, const std::string& parameter,
           const std::string& tensor) {
    const std::vector<StoredTensor> found = weights_.find(tensor);
    const std::string what = parameter + " of " + std::string(card(e.value.scheme).name);
    if (found.empty())
      report_.add(gguf_ ? Severity::error : Severity::warning, "table_missing",
                  {"the weights have no tensor {}, {} in layer {}{}", tensor, what, layer.index,
                   gguf_ ? ": llama.cpp needs it"
                         : ": transformers initialises it at random, with a warning"},
                  weights_.place());
    for (const StoredTensor& t : found) {
      if (!fits(e, parameter, what, t) || !t.readable) continue;
      const std::vector<double> values = weights_.values(t);
      const auto bad = std::ranges::find_if(values, [](double v) { return !std::isfinite(v); });
      if (bad != values.end())
        add(Severity::error, "not_finite", t,
            {"contains infinities or NaN; the first is element {}", bad - values.begin()},
            kDamaged);
      else if (!values.empty() && std::ranges::all_of(values, [](double v) { return v == 0; }))
        zero(e, parameter, what, t);
    }
  }

  // Zeros of what carries positions; biases and gates may be zero by right, and so may tables that
  // their classes start at zero (the table of models has which: run, transformers 5.23).
  void zero(const LayerEncoding& e, const std::string& parameter, const std::string& what,
            const StoredTensor& t) {
    const Json& start = hf::table_member("tables_start_at_zero");
    const auto lists = [&](std::string_view scheme) {
      const Json* names = start.find(scheme);
      return names && contains(names->as_array(), Json(parameter));
    };
    if (lists("never_carries") || parameter.ends_with("bias") || parameter.starts_with("b")) return;
    if (lists(card(e.value.scheme).name))
      add(Severity::note, "table_zero", t,
          {"({}) is all zero, so positions add nothing. Classes of this scheme initialise it with "
           "zeros",
           what},
          "nothing to do before training; otherwise load the checkpoint's table");
    else
      add(Severity::error, "table_zero", t,
          {"({}) is all zero, so positions add nothing to the score. The class initialises it at "
           "random",
           what},
          "load the checkpoint's table; this one was not loaded");
  }

  bool fits(const LayerEncoding& e, const std::string& parameter, const std::string& what,
            const StoredTensor& t) {
    const std::optional<Needed> n = needed(e.value, parameter);
    if (!n) return true;
    bool fine = t.shape.size() == n->one.size();
    for (std::size_t i = 0; fine && i < t.shape.size(); ++i)
      fine = !n->fixed(i) || t.shape[i] == n->one[i];
    if (fine) return true;
    std::vector<std::string> wanted;
    for (std::size_t i = 0; i < n->one.size(); ++i)
      wanted.push_back(n->fixed(i)                ? std::to_string(n->one[i])
                       : n->one[i] != n->heads[i] ? "heads"
                                                  : "head_dim");
    add(Severity::error, "table_shape", t,
        {"has shape {}, {} needs [{}]", shape_text(t.shape), what, listed(wanted)}, kSizes);
    return false;
  }

  void one(const InputEncoding& e, std::size_t k, const StoredTensor& t, bool sines) {
    const std::vector<Index> shape = as_rows(t.shape);
    const std::vector<Index> wanted = expected(e, k, shape);
    if (shape != wanted || shape.size() != 2) {
      misshapen(e, t, shape, wanted);
      return;
    }
    if (!t.readable) {
      add(Severity::note, "weights_unreadable", t, {"is {}: its rows are not checked", t.dtype},
          "store the table of positions as f32, f16 or bf16");
      return;
    }
    const std::vector<double> values = weights_.values(t);
    const Rows rows{values, shape[1]};
    if (!finite(rows, shape[0], t)) return;
    if (zeros(e, rows, shape[0], t)) return;
    if (sines) {
      formula(e, rows, shape[0], t);
      return;
    }
    equal(e, rows, shape[0], t);
    if (e.padding_row && *e.padding_row < shape[0] && !rows.zero(*e.padding_row))
      add(Severity::note, "padding_row", t,
          {"row {}, which padding reads, is not zero: programs that train the table keep it zero",
           *e.padding_row},
          "nothing to do if padding is masked everywhere; pooling over all slots includes it",
          static_cast<double>(*e.padding_row));
  }

  // Rows and channels that the config means; of a sinusoid that has no end whatever is stored.
  static std::vector<Index> expected(const InputEncoding& e, std::size_t k,
                                     const std::vector<Index>& stored) {
    const std::vector<Parameter> all = learned_parameters(e.value);
    if (k < all.size()) return stored_shape(all[k], stacked(e.tensors, k));
    const Index rows = e.positions.value_or(stored.empty() ? 0 : stored[0]);
    if (const auto* s = std::get_if<Sinusoidal>(&e.value.scheme)) return {rows, s->width};
    if (const auto* s = std::get_if<SinusoidalNd>(&e.value.scheme))
      return {rows, std::accumulate(s->widths.begin(), s->widths.end(), Index{0})};
    return stored;
  }

  void misshapen(const InputEncoding& e, const StoredTensor& t, const std::vector<Index>& shape,
                 const std::vector<Index>& wanted) {
    std::string fix = kSizes;
    const auto* learned = std::get_if<Learned>(&e.value.scheme);
    if ((learned || of_image(e)) && shape.size() == 2 && shape[1] == wanted[1]) {
      const Index kept = e.image_prefix.value_or(learned ? learned->offset : 0);
      const std::string sizes = e.rows_key.empty() ? "image_size" : e.rows_key;
      const auto stored = side_of_square(shape[0] - kept), side = side_of_square(wanted[0] - kept);
      if (!e.image_prefix && shape[0] > kept && !e.rows_key.empty())
        fix = "state " + e.rows_key + " " +
              std::to_string(e.counts == PositionRule::tokens ? shape[0] : shape[0] - kept) +
              (shape[0] < wanted[0]
                   ? ", or make the rows: " +
                         extend_command(t.file, t.name, kept, std::to_string(wanted[0]), "linear")
                   : "");
      else if (e.image_prefix && stored && side)
        fix = "state the checkpoint's " + sizes + ", or make the rows: " +
              extend_command(t.file, t.name, kept,
                             std::to_string(*side) + "x" + std::to_string(*side), "bicubic");
      else if (e.image_prefix)
        fix = "state the checkpoint's " + sizes + ", or make the rows by posenc extend";
    }
    const bool fewer = shape.size() == 2 && shape[0] < wanted[0];
    add(Severity::error, "table_shape", t,
        {"has shape {}, but the config requires {}{}", shape_text(t.shape), shape_text(wanted),
         fewer ? ": positions from row " + std::to_string(shape[0]) + " have none" : ""},
        fix, shape.empty() ? std::optional<double>() : static_cast<double>(shape[0]));
  }

  bool finite(const Rows& rows, Index count, const StoredTensor& t) {
    Index bad = 0, first = -1;
    for (Index r = 0; r < count; ++r)
      if (!rows.finite(r)) ++bad, first = first < 0 ? r : first;
    if (bad > 0)
      add(Severity::error, "not_finite", t,
          {"contains infinities or NaN in {} of {} rows, first in row {}", bad, count, first},
          kDamaged, static_cast<double>(first));
    return bad == 0;
  }

  // Rows that no token reads may be anything, and those in front of a grid of sines are zero. True
  // when every other one is zero.
  bool zeros(const InputEncoding& e, const Rows& rows, Index count, const StoredTensor& t) {
    const auto* learned = std::get_if<Learned>(&e.value.scheme);
    const Index skipped = learned ? learned->offset : of_image(e) ? e.image_prefix.value_or(0) : 0;
    const Index from = std::min(skipped, count);
    Index none = 0, first = -1, last = -1;
    for (Index r = from; r < count; ++r) {
      if (!rows.zero(r) || (e.padding_row && r == *e.padding_row)) continue;
      ++none, last = r, first = first < 0 ? r : first;
    }
    const bool all = none > 0 && none >= count - from - (e.padding_row && *e.padding_row >= from);
    if (all)
      add(Severity::error, "table_zero", t,
          {"is zero in all {}{}: positions add nothing, and the model cannot know the order of "
           "tokens",
           none, of_image(e) ? " rows of patches" : " rows"},
          "load the checkpoint's table; this one was not loaded or not trained",
          static_cast<double>(none));
    else if (none > 0)
      add(Severity::warning, "table_zero", t,
          {"is zero in {} of {} rows, from row {} to row {}: those positions add nothing", none,
           count, first, last},
          "use only the other positions, or make rows with posenc extend",
          static_cast<double>(none));
    return all;
  }

  // Every position the same: what a resize of a single column makes in some programs.
  void equal(const InputEncoding& e, const Rows& rows, Index count, const StoredTensor& t) {
    const auto* learned = std::get_if<Learned>(&e.value.scheme);
    const Index from = e.image_prefix.value_or(learned ? learned->offset : 0);
    if (count - from < 2) return;
    for (Index r = from + 1; r < count; ++r)
      if (!std::equal(rows.at(r), rows.at(r) + rows.width, rows.at(from))) return;
    add(Severity::warning, "table_constant", t,
        {"has equal rows from row {} on: positions are indistinguishable", from},
        "resize with posenc extend; torch 2.15's antialiased resize of a grid of width one makes "
        "such tables",
        static_cast<double>(count - from));
  }

  // How far stored sines may be off by rounding alone. One axis: float32 angles of a long table
  // are off by 1e-3. A grid is short: 2e-5 for a hundred cells.
  static double rounding(const InputEncoding& e, const StoredTensor& t) {
    if (!of_image(e)) return 0.01;
    return t.dtype == "BF16" ? 4e-3 : t.dtype == "F16" ? 5e-4 : 1e-4;
  }

  // Coordinates of row r of a stored table.
  static OwnedPositions position_of(const InputEncoding& e, Index r) {
    if (of_image(e)) return cells(*e.grid, e.image_prefix.value_or(0), arange(r, 1));
    return arange(r - std::get<Sinusoidal>(e.value.scheme).offset, 1);
  }

  // A sinusoid that was stored, against the one that the class makes.
  void formula(const InputEncoding& e, const Rows& rows, Index count, const StoredTensor& t) {
    LoweredInput lowered;
    if (const auto* s = std::get_if<Sinusoidal>(&e.value.scheme)) s->lower({}, lowered);
    if (const auto* s = std::get_if<SinusoidalNd>(&e.value.scheme)) s->lower({}, lowered);
    std::vector<double> want(static_cast<std::size_t>(rows.width));
    double worst = 0;
    Index at = 0;
    for (Index r = 0; r < count; ++r) {
      apply_input({}, position_of(e, r), lowered, tensor(want.data(), {1, rows.width}));
      for (Index c = 0; c < rows.width; ++c) {
        const double far = std::abs(want[static_cast<std::size_t>(c)] - rows.at(r)[c]);
        if (far > worst) worst = far, at = r;
      }
    }
    if (worst <= rounding(e, t)) return;
    add(Severity::warning, "table_differs", t,
        {"differs from the sinusoid of the class by up to {}, in row {}", rounded(worst), at},
        "check which one the model was trained with: a program that computes the rows and one that "
        "loads them differ",
        worst);
  }

  bool gguf_;
  ModelWeights& weights_;
  Diagnostics& report_;
  std::set<std::string> seen_;  // tensors of the score
};

}  // namespace

void find_table_faults(const ModelSpec& spec, Diagnostics& report) {
  if (spec.weights.empty()) return;
  const auto unread = [&](const std::exception& problem, const char* fix) {
    report.warn("weights_unreadable",
                std::string("the weights could not be checked: ") + problem.what(), spec.weights,
                fix);
  };
  try {
    ModelWeights weights(spec.weights);
    if (!weights.any()) return;
    TableDoctor doctor(spec, weights, report);
    for (const InputEncoding& e : spec.input) doctor.look(e, false);
    for (const Tower& t : spec.towers)
      for (const InputEncoding& e : t.input) doctor.look(e, true);
    doctor.look(spec.layers);
    for (const Tower& t : spec.towers) doctor.look(t.layers);
  } catch (const FormatError& problem) {
    unread(problem, "download the file again: it may be cut off, or a git LFS pointer");
  } catch (const std::invalid_argument& problem) {  // sizes that make no table
    unread(problem, kSizes);
  }
}

std::vector<Finding> check_tables(const ModelSpec& spec) {
  Diagnostics report;
  find_table_faults(spec, report);
  return report.take();
}

}  // namespace posenc::v0
