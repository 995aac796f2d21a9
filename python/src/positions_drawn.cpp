// SPDX-License-Identifier: Apache-2.0
// Positions that training draws: CAPE, SHAPE, randomised positions and distances.

#include "arrays.h"
#include "bindings.h"
#include "posenc/positions/random.h"

namespace posenc::python {
namespace {

struct CapeFields {
  double global, local, scaling;
  std::string_view local_rule, padding;
  bool normalise;

  Cape cape() const {
    return {global,    local,
            scaling,   word_of<CapeLocal>(local_rule, {"cape", "local"}),
            normalise, word_of<CapePadding>(padding, {"cape", "padding"})};
  }
};

DrawKey key_of(Index seed, Index step, Index sequence) {
  return {static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(step),
          static_cast<std::uint64_t>(sequence)};
}
std::vector<Index> offsets_of(const ShapeShift& s, Index batch, Index tokens, const DrawKey& key) {
  return shape_offsets(s, batch, tokens, key);
}

void add_cape(nb::module_& m) {
  m.def(
      "cape_positions",
      [](Index batch, Index tokens, double global, double local, double scaling,
         std::string_view local_rule, bool normalise, std::string_view padding,
         const std::vector<double>& time_steps, const std::vector<double>& lengths,
         std::optional<Index> seed, Index step, Index sequence, Index padded) {
        const Cape c = CapeFields{global, local, scaling, local_rule, padding, normalise}.cape();
        const CapeDraws drawn =
            seed ? draw_cape(c, batch, tokens, 1, key_of(*seed, step, sequence)) : CapeDraws{};
        return to_python(cape_positions(c, batch, tokens, time_steps, lengths, drawn, padded));
      },
      nb::arg("batch"), nb::arg("tokens"), nb::kw_only(), nb::arg("max_global_shift") = 0.0,
      nb::arg("max_local_shift") = 0.0, nb::arg("max_global_scaling") = 1.0,
      nb::arg("local") = "whole", nb::arg("normalise") = false, nb::arg("padding") = "at_length",
      nb::arg("time_steps") = std::vector<double>{}, nb::arg("lengths") = std::vector<double>{},
      nb::arg("seed") = nb::none(), nb::arg("step") = 0, nb::arg("sequence") = 0,
      nb::arg("padded") = -(Index{1} << 40),
      nb::sig("def cape_positions(batch: int, tokens: int, *, max_global_shift: float = 0.0, "
              "max_local_shift: float "
              "= 0.0, max_global_scaling: float = 1.0, local: str = 'whole', normalise: bool = "
              "False, padding: str = "
              "'at_length', time_steps: Sequence[float] = (), lengths: Sequence[float] = (), seed: "
              "int | None = None, "
              "step: int = 0, sequence: int = 0, padded: int = -1099511627776) -> Any"),
      "CAPE's positions [batch, tokens], drawn by seed, step of training and number of the first "
      "sequence; seed None: evaluation, nothing is drawn. max_*: bounds of the draws; local: whole "
      "(the "
      "paper) or half (the public code); padding: at_length or after_length of lengths, positions "
      "`padded`; normalise: the mean of each row is subtracted.");
  m.def(
      "cape_grid_positions",
      [](Index first, Index second, Index batch, double global, double local, double scaling,
         std::string_view local_rule, std::string_view of, std::optional<Index> seed, Index step,
         Index sequence) {
        const Cape c = CapeFields{global, local, scaling, local_rule, "at_length", false}.cape();
        const CapeDraws drawn =
            seed ? draw_cape(c, batch, first * second, 2, key_of(*seed, step, sequence))
                 : CapeDraws{};
        return to_python(cape_grid_positions(first, second, batch, drawn,
                                             word_of<CapeStep>(of, {"cape", "local_step"})));
      },
      nb::arg("first"), nb::arg("second"), nb::arg("batch"), nb::kw_only(),
      nb::arg("max_global_shift") = 0.0, nb::arg("max_local_shift") = 0.0,
      nb::arg("max_global_scaling") = 1.0, nb::arg("local") = "whole",
      nb::arg("local_step") = "first_axis", nb::arg("seed") = nb::none(), nb::arg("step") = 0,
      nb::arg("sequence") = 0,
      nb::sig("def cape_grid_positions(first: int, second: int, batch: int, *, max_global_shift: "
              "float = 0.0, "
              "max_local_shift: float = 0.0, max_global_scaling: float = 1.0, local: str = "
              "'whole', local_step: str = "
              "'first_axis', seed: int | None = None, step: int = 0, sequence: int = 0) -> Any"),
      "CAPE's positions [2, batch, tokens] of a grid in [-1, 1], drawn like those of "
      "`cape_positions`. "
      "local_step: what local shifts are measured in, the step of the first_axis or of its "
      "own_axis.");
}

}  // namespace

void add_drawn_positions(nb::module_& m) {
  add_cape(m);
  m.def(
      "shape_offsets",
      [](Index batch, Index tokens, Index max_shift, std::string_view variant, Index table,
         Index seed, Index step, Index sequence) {
        const ShapeShift s{max_shift, word_of<ShapeVariant>(variant, {"shape", "variant"}), table};
        const std::vector<Index> v = offsets_of(s, batch, tokens, key_of(seed, step, sequence));
        const Index shape[] = {static_cast<Index>(v.size())};
        return new_array(v, shape);
      },
      nb::arg("batch"), nb::arg("tokens"), nb::kw_only(), nb::arg("max_shift"),
      nb::arg("variant") = "paper", nb::arg("table") = 0, nb::arg("seed"), nb::arg("step") = 0,
      nb::arg("sequence") = 0,
      nb::sig("def shape_offsets(batch: int, tokens: int, *, max_shift: int, variant: str = "
              "'paper', table: int = 0, "
              "seed: int, step: int = 0, sequence: int = 0) -> Any"),
      "SHAPE's offset of each row, drawn. variant: paper or code, whose rows are those of its "
      "table.");
  m.def(
      "shape_evaluation_offset",
      [](Index max_shift, std::string_view variant, Index table) {
        return shape_evaluation_offset(
            {max_shift, word_of<ShapeVariant>(variant, {"shape", "variant"}), table});
      },
      nb::kw_only(), nb::arg("max_shift"), nb::arg("variant") = "paper", nb::arg("table") = 0,
      nb::sig("def shape_evaluation_offset(*, max_shift: int, variant: str = 'paper', table: int = "
              "0) -> int"),
      "SHAPE's offset in evaluation.");
  m.def(
      "random_positions",
      [](Index max_length, Index tokens, Index seed, Index step, Index sequence,
         std::string_view first) {
        return to_python(
            random_positions(max_length, tokens, key_of(seed, step, sequence),
                             word_of<RandomisedFirst>(first, {"randomised", "first"})));
      },
      nb::arg("max_length"), nb::arg("tokens"), nb::kw_only(), nb::arg("seed"), nb::arg("step") = 0,
      nb::arg("sequence") = 0, nb::arg("first") = "drawn",
      nb::sig("def random_positions(max_length: int, tokens: int, *, seed: int, step: int = 0, "
              "sequence: int = 0, "
              "first: str = 'drawn') -> Any"),
      "Distinct positions of 0 .. max_length - 1, in order, drawn by seed, step and sequence. "
      "first: "
      "drawn, or zero: the smallest becomes 0.");
  m.def(
      "random_distances",
      [](Index max_length, Index tokens, Index seed, Index step, Index sequence) {
        const std::vector<Index> v =
            random_distances(max_length, tokens, key_of(seed, step, sequence));
        const Index shape[] = {static_cast<Index>(v.size())};
        return new_array(v, shape);
      },
      nb::arg("max_length"), nb::arg("tokens"), nb::kw_only(), nb::arg("seed"), nb::arg("step") = 0,
      nb::arg("sequence") = 0,
      nb::sig("def random_distances(max_length: int, tokens: int, *, seed: int, step: int = 0, "
              "sequence: int = 0) -> Any"),
      "The drawn distance that replaces each distance 0 .. tokens - 1, for "
      "`attend(past_distances=)`.");
}

}  // namespace posenc::python
