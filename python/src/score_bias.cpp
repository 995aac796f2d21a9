// SPDX-License-Identifier: Apache-2.0
// What encodings add to the score whatever queries and keys hold, and its gradient.

#include <algorithm>
#include <array>

#include "arrays.h"
#include "bindings.h"
#include "plan_cache.h"
#include "posenc/attention/plan.h"
#include "posenc/core/error.h"
#include "posenc/registry.h"
#include "posenc/report/picture.h"
#include "posenc/report/text.h"

namespace posenc::python {
namespace {

constexpr const char* kBias = "bias";

// The arguments of one call, alive and lowered.
class BiasCall {
 public:
  BiasCall(nb::handle encodings, Index heads, Index head_dim, nb::handle positions,
           nb::handle key_positions, nb::handle parameters, nb::handle inputs, bool by_distance)
      : query_(positions, {kBias, "positions"}),
        parameters_(parameters, kBias),
        inputs_(inputs, kBias) {
    const std::vector<std::string> texts = scheme_texts(encodings, kBias);
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    const AttentionSizes sizes{.heads = heads, .head_dim = head_dim};
    plan_ = kept_plan(plan_key(texts, sizes, 0), [&] { return AttentionPlan(views, sizes); });
    require_parameters();
    if (by_distance) {
      require_distances(texts);
      if (!key_positions.is_none())
        refuse_field(kBias, "key_positions", "must not be given with by_distance");
      const std::int32_t axes = query_.value().axes;
      zero_ = explicit_positions(std::vector<Index>(static_cast<std::size_t>(axes), 0), 1, axes);
      keys_ = zero_;
    } else if (key_positions.is_none()) {
      keys_ = query_.value();
    } else {
      keys_ = key_.emplace(key_positions, Name{kBias, "key_positions"}).value();
    }
    lowered_ = plan_->lower(named(parameters_), distance_ranges(query_.value(), keys_));
    shape_ = {1, heads, query_.value().count, keys_.count};
    by_distance_ = by_distance;
  }

  nb::object bias() {
    const nb::object made = new_array(DType::f64, outer());
    const Borrowed to(made, {kBias, "bias"}, Use::write);
    const std::vector<NamedArray> in = named(inputs_);
    const nb::gil_scoped_release free;
    lowered_->bias(query_.value(), keys_, in, tensor(to.view().data, DType::f64, shape_));
    return made;
  }

  nb::dict gradient(nb::handle d_bias) {
    const Borrowed d(d_bias, {kBias, "d_bias"}, Use::read);
    const std::span<const Index> want = outer();
    const TensorView& v = d.view();
    if (v.rank != static_cast<std::int32_t>(want.size()) ||
        !std::equal(want.begin(), want.end(), v.shape.begin()))
      refuse_field(kBias, "d_bias", "must have the shape of the bias",
                   text_of(d_bias.attr("shape")));
    nb::dict of_parameters, of_inputs;
    std::vector<NamedGradient> gradients;
    const auto add = [&](const NamedBorrowed& from, nb::dict& into) {
      for (const auto& [name, array] : from.arrays) {
        const TensorView& of = array.view();
        if (!is_float(of.dtype)) continue;
        const nb::object made = new_array(
            DType::f64, std::span(of.shape.data(), static_cast<std::size_t>(of.rank)), true);
        into[name.c_str()] = made;
        gradients.push_back({name, Borrowed(made, {kBias, name.c_str()}, Use::write).view()});
      }
    };
    add(parameters_, of_parameters);
    add(inputs_, of_inputs);
    const std::vector<NamedArray> in = named(inputs_);
    ConstTensorView whole = d.const_view();
    whole.rank = 4;
    whole.shape = {1, shape_[1], shape_[2], shape_[3], 0};
    whole.stride = {0, v.stride[0], v.stride[1], by_distance_ ? 0 : v.stride[2], 0};
    {
      const nb::gil_scoped_release free;
      lowered_->bias_backward(query_.value(), keys_, in, whole, gradients);
    }
    nb::dict all;
    all["parameters"] = of_parameters;
    all["inputs"] = of_inputs;
    return all;
  }

 private:
  void require_parameters() const {
    std::string names;
    bool missing = false;
    for (const Parameter& p : plan_->plan().parameters()) {
      names += (names.empty() ? "" : ", ") + p.name;
      missing = missing || parameters_.find(p.name) == nullptr;
    }
    if (missing)
      refuse_field(kBias, "parameters",
                   "must hold what the encodings learn: " + names +
                       "; start=SEED draws it as before training");
  }
  static void require_distances(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      const Encoding parsed = parse_encoding(text);
      const Alibi* alibi = std::get_if<Alibi>(&parsed.scheme);
      if (alibi != nullptr && alibi->precision != AlibiPrecision::exact)
        refuse_field(kBias, "by_distance",
                     "must not be true of a bias that is rounded at the position of each "
                     "key: give the positions of queries and keys, or leave precision out for the "
                     "exact bias",
                     text);
    }
  }
  static std::vector<NamedArray> named(const NamedBorrowed& from) {
    std::vector<NamedArray> list;
    for (const auto& [name, array] : from.arrays) list.push_back({name, array.const_view()});
    return list;
  }
  // [heads, queries, keys], or [heads, distances].
  std::span<const Index> outer() const {
    return std::span(shape_).subspan(1, by_distance_ ? 2 : 3);
  }

  PositionsArgument query_;
  std::optional<PositionsArgument> key_;
  OwnedPositions zero_;
  Positions keys_;
  NamedBorrowed parameters_, inputs_;
  std::shared_ptr<KeptPlan> plan_;
  std::optional<LoweredAttention> lowered_;
  std::array<Index, 4> shape_{};
  bool by_distance_ = false;
};

}  // namespace

void add_score_bias(nb::module_& m) {
  m.def(
      "positions_of_text",
      [](const std::string& text) { return to_python(report::positions_of_text(text)); },
      nb::arg("text"), nb::sig("def positions_of_text(text: str) -> Any"));
  m.def(
      "png_of_svg",
      [](const std::string& svg) {
        std::string png;
        {
          const nb::gil_scoped_release free;
          png = report::png_of_svg(svg);
        }
        return nb::bytes(png.data(), png.size());
      },
      nb::arg("svg"), nb::sig("def png_of_svg(svg: str) -> bytes"));
  m.def(
      "score_bias",
      [](nb::handle encodings, Index heads, Index head_dim, nb::handle positions, nb::handle keys,
         nb::handle parameters, nb::handle inputs, bool by_distance) {
        return BiasCall(encodings, heads, head_dim, positions, keys, parameters, inputs,
                        by_distance)
            .bias();
      },
      nb::arg("encodings").none(), nb::arg("heads"), nb::arg("head_dim"), nb::arg("positions"),
      nb::arg("key_positions").none(), nb::arg("parameters").none(), nb::arg("inputs").none(),
      nb::arg("by_distance"),
      nb::sig("def score_bias(encodings: Any, heads: int, head_dim: int, positions: PositionsLike, "
              "key_positions: PositionsLike | None, parameters: Mapping[str, Any] | None, inputs: "
              "Mapping[str, Any] | None, by_distance: bool) -> Any"));
  m.def(
      "score_bias_gradient",
      [](nb::handle encodings, nb::handle d_bias, Index heads, Index head_dim, nb::handle positions,
         nb::handle keys, nb::handle parameters, nb::handle inputs, bool by_distance) {
        return BiasCall(encodings, heads, head_dim, positions, keys, parameters, inputs,
                        by_distance)
            .gradient(d_bias);
      },
      nb::arg("encodings").none(), nb::arg("d_bias"), nb::arg("heads"), nb::arg("head_dim"),
      nb::arg("positions"), nb::arg("key_positions").none(), nb::arg("parameters").none(),
      nb::arg("inputs").none(), nb::arg("by_distance"),
      nb::sig("def score_bias_gradient(encodings: Any, d_bias: Any, heads: int, head_dim: int, "
              "positions: PositionsLike, key_positions: PositionsLike | None, parameters: "
              "Mapping[str, Any] | None, inputs: Mapping[str, Any] | None, by_distance: bool) -> "
              "dict[str, dict[str, Any]]"));
}

}  // namespace posenc::python
