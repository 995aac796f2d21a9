// SPDX-License-Identifier: Apache-2.0
// Positions and grids as numpy's arrays: [t], [b, t] or [axes, b, t].

#include "arrays.h"
#include "bindings.h"
#include "grids.h"
#include "posenc/core/error.h"
#include "posenc/positions/cache.h"
#include "posenc/positions/mrope.h"

namespace posenc::python {
namespace {

using Indices = std::vector<Index>;
constexpr const char* kWho = "positions";

nb::object list_of(const Indices& v) {
  const Index shape[] = {static_cast<Index>(v.size())};
  return new_array(v, shape);
}

PositionsArgument given(nb::handle h) {
  return PositionsArgument(h, {kWho, "positions"});
}

void add_text(nb::module_& m) {
  m.def(
      "arange",
      [](Index first, Index count, Index step) { return to_python(arange(first, count, step)); },
      nb::arg("first"), nb::arg("count"), nb::arg("step") = 1,
      nb::sig("def arange(first: int, count: int, step: int = 1) -> Any"),
      "first, first + step, ...: count of them.");
  m.def(
      "from_mask",
      [](nb::handle mask, Index padded, Index first) {
        const Borrowed b(mask, {kWho, "mask"}, Use::read);
        return to_python(from_mask(b.const_view(), padded, first));
      },
      nb::arg("mask").none(), nb::kw_only(), nb::arg("padded"), nb::arg("first") = 0,
      nb::sig("def from_mask(mask: Any, *, padded: int, first: int = 0) -> Any"),
      "Running count of the real tokens (1 in the mask) of each row; `padded` elsewhere.");
  m.def(
      "left_padded",
      [](nb::handle mask, Index padded) {
        const Borrowed b(mask, {kWho, "mask"}, Use::read);
        return to_python(left_padded(b.const_view(), padded));
      },
      nb::arg("mask").none(), nb::kw_only(), nb::arg("padded"),
      nb::sig("def left_padded(mask: Any, *, padded: int) -> Any"),
      "As `from_mask`; rejects a row whose real tokens are not all on the right.");
  m.def(
      "right_padded",
      [](nb::handle mask, Index padded) {
        const Borrowed b(mask, {kWho, "mask"}, Use::read);
        return to_python(right_padded(b.const_view(), padded));
      },
      nb::arg("mask").none(), nb::kw_only(), nb::arg("padded"),
      nb::sig("def right_padded(mask: Any, *, padded: int) -> Any"),
      "As `from_mask`; rejects a row whose real tokens are not all on the left.");
  m.def(
      "from_lengths",
      [](const Indices& lengths, Index tokens, Index padded, Index first) {
        return to_python(from_lengths(lengths, tokens, padded, first));
      },
      nb::arg("lengths"), nb::arg("tokens"), nb::kw_only(), nb::arg("padded"), nb::arg("first") = 0,
      nb::sig("def from_lengths(lengths: Sequence[int], tokens: int, *, padded: int, first: int = "
              "0) -> Any"),
      "Rows whose first lengths[b] tokens are real.");
  m.def(
      "from_tokens",
      [](nb::handle ids, Index padding_idx, Index past) {
        const Borrowed b(ids, {kWho, "ids"}, Use::read);
        return to_python(from_tokens(b.const_view(), padding_idx, past));
      },
      nb::arg("ids").none(), nb::kw_only(), nb::arg("padding_idx"), nb::arg("past") = 0,
      nb::sig("def from_tokens(ids: Any, *, padding_idx: int, past: int = 0) -> Any"),
      "As fairseq and RoBERTa count: real tokens from padding_idx + 1.");
}

MropeRule rule_of(std::string_view name, std::optional<double> tokens_per_second) {
  if (name == "qwen2_5_vl") {
    if (!tokens_per_second)
      refuse_field("mrope", "tokens_per_second", "must be given with rule qwen2_5_vl");
    return qwen2_5_vl_rule(*tokens_per_second);
  }
  if (tokens_per_second)
    refuse_field("mrope", "tokens_per_second", "belongs to rule qwen2_5_vl", name);
  if (name == "qwen2_vl") return qwen2_vl_rule();
  if (name == "qwen2_vl_classic") return qwen2_vl_classic_rule();
  if (name == "qwen3_vl") return qwen3_vl_rule();
  refuse_field("mrope", "rule", "must be one of qwen2_vl, qwen2_vl_classic, qwen2_5_vl, qwen3_vl",
               name);
}

nb::object mrope(nb::handle types, std::string_view rule, nb::handle images, nb::handle videos,
                 nb::handle mask, std::optional<double> tokens_per_second) {
  const Borrowed t(types, {"mrope", "token_types"}, Use::read);
  const Borrowed m = optional_array(mask, {"mrope", "mask"}, Use::read);
  const MropePositions p =
      mrope_positions(rule_of(rule, tokens_per_second), t.const_view(), m.const_view(),
                      grids_of("mrope", images, "images"), grids_of("mrope", videos, "videos"));
  return nb::make_tuple(to_python(p.positions), list_of(p.delta));
}

void add_packing(nb::module_& m) {
  m.def(
      "packed",
      [](const Indices& cu_seqlens, Index first) { return to_python(packed(cu_seqlens, first)); },
      nb::arg("cu_seqlens"), nb::kw_only(), nb::arg("first") = 0,
      nb::sig("def packed(cu_seqlens: Sequence[int], *, first: int = 0) -> Any"),
      "Documents packed in one row: positions restart at every boundary.");
  m.def(
      "document_index",
      [](const Indices& cu_seqlens) { return list_of(document_index(cu_seqlens)); },
      nb::arg("cu_seqlens"), nb::sig("def document_index(cu_seqlens: Sequence[int]) -> Any"),
      "Which document each token belongs to, [tokens]: `query_document` and `key_document` of "
      "`attend`.");
  m.def(
      "decode_positions",
      [](const Indices& lengths, Index count) {
        return to_python(decode_positions(lengths, count));
      },
      nb::arg("lengths"), nb::arg("count") = 1,
      nb::sig("def decode_positions(lengths: Sequence[int], count: int = 1) -> Any"),
      "Positions of the tokens that follow the cached tokens of each row.");
}

void add_moved(nb::module_& m) {
  m.def(
      "shifted",
      [](nb::handle p, nb::handle delta) {
        const PositionsArgument from = given(p);
        Indices rows;
        if (nb::try_cast<Indices>(delta, rows)) return to_python(shifted(from.value(), rows));
        Index whole = 0;
        if (nb::try_cast<Index>(delta, whole)) return to_python(shifted(from.value(), whole));
        double real = 0;
        if (nb::try_cast<double>(delta, real)) return to_python(shifted(from.value(), real));
        refuse_field("shifted", "delta", "must be a number, or a whole number for each row",
                     text_of(nb::repr(delta)));
      },
      nb::arg("positions").none(), nb::arg("delta").none(),
      nb::sig("def shifted(positions: PositionsLike, delta: float | Sequence[int]) -> Any"),
      "Every position plus delta, or row b plus delta[b].");
  m.def(
      "repeated_axes",
      [](nb::handle p, std::int32_t axes) {
        return to_python(repeated_axes(given(p).value(), axes));
      },
      nb::arg("positions").none(), nb::arg("axes"),
      nb::sig("def repeated_axes(positions: PositionsLike, axes: int) -> Any"),
      "One axis repeated on several, as for text in M-RoPE.");
  m.def(
      "with_special_tokens",
      [](nb::handle p, Index before, Index after, Index value) {
        return to_python(with_special_tokens(given(p).value(), before, after, value));
      },
      nb::arg("positions").none(), nb::kw_only(), nb::arg("before") = 0, nb::arg("after") = 0,
      nb::arg("value") = 0,
      nb::sig("def with_special_tokens(positions: PositionsLike, *, before: int = 0, after: int = "
              "0, value: int = 0) -> Any"),
      "More tokens before and after, at `value` on all axes.");
}

void add_grids(nb::module_& m) {
  m.def(
      "grid", [](const Indices& shape, Index first) { return to_python(grid(shape, first)); },
      nb::arg("shape"), nb::kw_only(), nb::arg("first") = 0,
      nb::sig("def grid(shape: Sequence[int], *, first: int = 0) -> Any"),
      "Coordinates of the cells of a grid, row by row, one axis of positions for each axis.");
  m.def(
      "scaled_grid",
      [](const Indices& shape, const std::vector<double>& reference, double offset) {
        return to_python(scaled_grid(shape, reference, offset));
      },
      nb::arg("shape"), nb::arg("reference"), nb::kw_only(), nb::arg("offset") = 0.0,
      nb::sig("def scaled_grid(shape: Sequence[int], reference: Sequence[float], *, offset: float "
              "= 0.0) -> Any"),
      "(index + offset) / shape * reference: patches of another resolution where those trained on "
      "lay.");
  m.def(
      "linspace_grid",
      [](const Indices& shape, double low, double high) {
        return to_python(linspace_grid(shape, low, high));
      },
      nb::arg("shape"), nb::kw_only(), nb::arg("low") = -1.0, nb::arg("high") = 1.0,
      nb::sig("def linspace_grid(shape: Sequence[int], *, low: float = -1.0, high: float = 1.0) -> "
              "Any"),
      "low to high on every axis.");
  m.def(
      "patch_centres",
      [](Index rows, Index columns, std::string_view by) {
        return to_python(patch_centres(rows, columns,
                                       word_of<CentreNormalisation>(by, {"patch_centres", "by"})));
      },
      nb::arg("rows").none(), nb::arg("columns"), nb::kw_only(), nb::arg("by") = "separate",
      nb::sig("def patch_centres(rows: int, columns: int, *, by: str = 'separate') -> Any"),
      "Centres of patches in [-1, 1]. by: separate, max or min of the two sizes.");
  m.def(
      "swap_xy", [](nb::handle p) { return to_python(swap_xy(given(p).value())); },
      nb::arg("positions").none(), nb::sig("def swap_xy(positions: PositionsLike) -> Any"),
      "The last two axes exchanged.");
  m.def(
      "merge_blocks",
      [](nb::handle p, Index rows, Index columns, Index merge) {
        return to_python(merge_blocks(given(p).value(), rows, columns, merge));
      },
      nb::arg("positions").none(), nb::arg("rows").none(), nb::arg("columns"), nb::arg("merge"),
      nb::sig(
          "def merge_blocks(positions: PositionsLike, rows: int, columns: int, merge: int) -> Any"),
      "Tokens in the order of merge x merge blocks, as Qwen2-VL's patch merger reads them.");
}

}  // namespace

void add_positions(nb::module_& m) {
  add_text(m);
  add_packing(m);
  add_moved(m);
  add_position_maps(m);
  add_drawn_positions(m);
  add_modal_positions(m);
  m.def(
      "mrope_positions", &mrope, nb::arg("token_types").none(), nb::kw_only(), nb::arg("rule"),
      nb::arg("images") = nb::none(), nb::arg("videos") = nb::none(), nb::arg("mask") = nb::none(),
      nb::arg("tokens_per_second") = nb::none(),
      nb::sig("def mrope_positions(token_types: Any, *, rule: str, images: Iterable[Sequence[int]] "
              "| None = None, videos: Iterable[Sequence[float]] | None = None, mask: Any = None, "
              "tokens_per_second: float | None = None) -> tuple[Any, Any]"),
      "M-RoPE of text, images and videos: positions [3, b, t], and what a row adds to the length "
      "of its cache. token_types [b, t]: 0 text, 1 image, 2 video; grids before merging. rule: "
      "qwen2_vl, qwen2_vl_classic, qwen2_5_vl or qwen3_vl.");
  add_grids(m);
}

}  // namespace posenc::python
