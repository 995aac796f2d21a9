// SPDX-License-Identifier: Apache-2.0
// Positions of padded images, of text mixed with images and sound, and of masked spans.

#include "bindings.h"
#include "grids.h"
#include "posenc/core/error.h"
#include "posenc/positions.h"

namespace posenc::python {
namespace {

using Indices = std::vector<Index>;
using Reals = std::vector<double>;

PositionsArgument given(nb::handle h) {
  return PositionsArgument(h, {"positions", "positions"});
}

void add_images(nb::module_& m) {
  m.def(
      "counted_grid",
      [](nb::handle mask, bool normalise, double scale, double eps) {
        const Borrowed b(mask, {"counted_grid", "mask"}, Use::read);
        return to_python(counted_grid(b.const_view(), {normalise, scale, eps}));
      },
      nb::arg("mask").none(), nb::kw_only(), nb::arg("normalise") = true,
      nb::arg("scale") = CountedGrid{}.scale, nb::arg("eps") = CountedGrid{}.eps,
      nb::sig("def counted_grid(mask: Any, *, normalise: bool = True, scale: float = "
              "6.283185307179586, eps: float = "
              "1e-06) -> Any"),
      "Running counts of the visible pixels along each axis, from 1: DETR's positions of padded "
      "images, "
      "[2, batch, rows * columns]. mask [batch, rows, columns], 1 = visible. normalise: count / "
      "(last "
      "count + eps) * scale.");
  m.def(
      "normalised",
      [](nb::handle p, const Reals& size, double low, double high) {
        return to_python(normalised(given(p).value(), size, low, high));
      },
      nb::arg("positions").none(), nb::arg("size"), nb::kw_only(), nb::arg("low") = -1.0,
      nb::arg("high") = 1.0,
      nb::sig("def normalised(positions: PositionsLike, size: Sequence[float], *, low: float = "
              "-1.0, high: float = "
              "1.0) -> Any"),
      "c / size[axis] * (high - low) + low.");
  m.def(
      "in_float32", [](nb::handle p) { return to_python(in_float32(given(p).value())); },
      nb::arg("positions").none(), nb::sig("def in_float32(positions: PositionsLike) -> Any"),
      "Every coordinate rounded to float32.");
  m.def(
      "augmented",
      [](nb::handle p, const Reals& shift, const Reals& log_jitter, double log_rescale) {
        return to_python(augmented(given(p).value(), {shift, log_jitter, log_rescale}));
      },
      nb::arg("positions").none(), nb::kw_only(), nb::arg("shift") = Reals{},
      nb::arg("log_jitter") = Reals{}, nb::arg("log_rescale") = 0.0,
      nb::sig("def augmented(positions: PositionsLike, *, shift: Sequence[float] = (), log_jitter: "
              "Sequence[float] = "
              "(), log_rescale: float = 0.0) -> Any"),
      "DINOv3's augmentation with the numbers that were drawn: plus shift, times exp(log_jitter), "
      "one an "
      "axis, times exp(log_rescale).");
}

void add_spans(nb::module_& m) {
  m.def(
      "glm_positions",
      [](Index context, const std::vector<Indices>& spans) {
        std::vector<GlmSpan> list;
        for (const Indices& s : spans) {
          if (s.size() != 2)
            refuse_field("glm", "spans", "must be pairs (mask, tokens)", std::to_string(s.size()));
          list.push_back({s[0], s[1]});
        }
        return to_python(glm_positions(context, list));
      },
      nb::arg("context"), nb::arg("spans"),
      nb::sig("def glm_positions(context: int, spans: Sequence[Sequence[int]]) -> Any"),
      "GLM's two streams [2, 1, tokens]. spans: (place of its mask in the context, its tokens).");
  m.def(
      "chatglm_positions",
      [](nb::handle ids, nb::handle mask, const Indices& tokens, bool two_streams, bool counts_on,
         Index padded) {
        if (tokens.size() != 4)
          refuse_field("chatglm", "tokens", "must be the ids of start, mask, gmask and smask",
                       std::to_string(tokens.size()));
        const Borrowed t(ids, {"chatglm", "ids"}, Use::read);
        const Borrowed real = optional_array(mask, {"chatglm", "mask"}, Use::read);
        return to_python(chatglm_positions(
            {{tokens[0], tokens[1], tokens[2], tokens[3]}, two_streams, counts_on, padded},
            t.const_view(), real.const_view()));
      },
      nb::arg("ids").none(), nb::kw_only(), nb::arg("mask") = nb::none(),
      nb::arg("tokens") = Indices{130004, 130000, 130001, 130002}, nb::arg("two_streams") = true,
      nb::arg("gmask_counts_on") = false, nb::arg("padded") = 0,
      nb::sig("def chatglm_positions(ids: Any, *, mask: Any = None, tokens: Sequence[int] = "
              "(130004, 130000, 130001, "
              "130002), two_streams: bool = True, gmask_counts_on: bool = False, padded: int = 0) "
              "-> Any"),
      "ChatGLM-6B's positions of token ids. tokens: the ids of start, mask, gmask and smask; "
      "gmask_counts_on: the first stream continues to count after gmask.");
}

void add_modalities(nb::module_& m) {
  m.def(
      "modality_positions",
      [](nb::handle list, std::int32_t axes) {
        std::vector<Modality> all;
        for (const nb::object& h :
             items_of(list, {"modalities", "modalities"}, "must be a list of dicts")) {
          nb::dict d;
          if (!nb::try_cast<nb::dict>(h, d) || !d.contains("positions"))
            refuse_field("modalities", "modalities",
                         "must be dicts of id, positions, stream, scale and origin",
                         text_of(nb::repr(h)));
          const auto numbers = [&](const char* name, auto v) {
            if (d.contains(name) && !nb::try_cast<decltype(v)>(d[name], v))
              refuse_field("modalities", name, "must be numbers", text_of(nb::repr(d[name])));
            return v;
          };
          all.push_back({numbers("id", Index{0}), owned(given(d["positions"]).value()),
                         numbers("stream", Indices{}), numbers("scale", Reals{}),
                         numbers("origin", Reals{})});
        }
        return to_python(modality_positions(all, axes));
      },
      nb::arg("modalities").none(), nb::arg("axes"),
      nb::sig("def modality_positions(modalities: Iterable[Mapping[str, Any]], axes: int) -> Any"),
      "Stretches of tokens of several kinds on common axes, [1 + axes, 1, tokens], axis 0 the "
      "kind. Each "
      "has id, positions, stream (the axis of positions for each common axis, -1: none), scale and "
      "origin.");
}

OmniRule omni_rule(std::string_view rule, double positions_per_second,
                   std::optional<double> seconds_per_chunk) {
  const bool chunks = rule == "qwen2_5_omni";
  if (!chunks && rule != "qwen3_omni")
    refuse_field("omni", "rule", "must be one of qwen2_5_omni, qwen3_omni", rule);
  if (chunks != seconds_per_chunk.has_value())
    refuse_field("omni", "seconds_per_chunk",
                 chunks ? "must be given with rule qwen2_5_omni" : "belongs to rule qwen2_5_omni");
  return chunks ? qwen2_5_omni_rule(positions_per_second, *seconds_per_chunk)
                : qwen3_omni_rule(positions_per_second);
}

void add_media(nb::module_& m) {
  m.def(
      "omni_positions",
      [](nb::handle types, std::string_view rule, double positions_per_second,
         std::optional<double> seconds_per_chunk, nb::handle images, nb::handle videos,
         nb::handle mask) {
        const Borrowed t(types, {"omni", "token_types"}, Use::read);
        const Borrowed real = optional_array(mask, {"omni", "mask"}, Use::read);
        const OmniPositions p =
            omni_positions(omni_rule(rule, positions_per_second, seconds_per_chunk), t.const_view(),
                           real.const_view(), grids_of("omni", images, "images"),
                           grids_of("omni", videos, "videos"));
        const Index rows[] = {static_cast<Index>(p.delta.size())};
        return nb::make_tuple(to_python(p.positions), new_array(p.delta, rows));
      },
      nb::arg("token_types").none(), nb::kw_only(), nb::arg("rule"),
      nb::arg("positions_per_second"), nb::arg("seconds_per_chunk") = nb::none(),
      nb::arg("images") = nb::none(), nb::arg("videos") = nb::none(), nb::arg("mask") = nb::none(),
      nb::sig("def omni_positions(token_types: Any, *, rule: str, positions_per_second: float, "
              "seconds_per_chunk: float "
              "| None = None, images: Iterable[Sequence[int]] | None = None, videos: "
              "Iterable[Sequence[float]] | None = "
              "None, mask: Any = None) -> tuple[Any, Any]"),
      "M-RoPE of text, images, videos and sound: positions [3, b, t], and what a row adds to the "
      "length of "
      "its cache. token_types [b, t]: 0 text, 1 image, 2 video, 3 sound. rule: qwen2_5_omni or "
      "qwen3_omni.");
}

void add_more_media(nb::module_& m) {
  m.def(
      "omni_sound_tokens",
      [](Index frames, std::string_view rule, Index window) {
        if (rule == "qwen2_5_omni") return qwen2_5_omni_sound_tokens(frames);
        if (rule == "qwen3_omni") return qwen3_omni_sound_tokens(frames, window);
        refuse_field("omni", "rule", "must be one of qwen2_5_omni, qwen3_omni", rule);
      },
      nb::arg("frames"), nb::kw_only(), nb::arg("rule"), nb::arg("window") = 50,
      nb::sig("def omni_sound_tokens(frames: int, *, rule: str, window: int = 50) -> int"),
      "Tokens of a recording of so many mel frames. window: n_window of qwen3_omni.");
  m.def(
      "xd_rope_positions",
      [](nb::handle types, nb::handle images, nb::handle mask, Index axes, Index merge,
         std::string_view number, Index padded) {
        const Borrowed t(types, {"xd_rope", "token_types"}, Use::read);
        const Borrowed real = optional_array(mask, {"xd_rope", "mask"}, Use::read);
        const MropePositions p = xd_rope_positions(
            {axes, merge, word_of<ImageNumber>(number, {"xd_rope", "image_number"}), padded},
            t.const_view(), real.const_view(), grids_of("xd_rope", images, "images"));
        const Index rows[] = {static_cast<Index>(p.delta.size())};
        return nb::make_tuple(to_python(p.positions), new_array(p.delta, rows));
      },
      nb::arg("token_types").none(), nb::kw_only(), nb::arg("images") = nb::none(),
      nb::arg("mask") = nb::none(), nb::arg("axes") = 4, nb::arg("merge") = 2,
      nb::arg("image_number") = "over_batch", nb::arg("padded") = 0,
      nb::sig("def xd_rope_positions(token_types: Any, *, images: Iterable[Sequence[int]] | None = "
              "None, mask: Any = "
              "None, axes: int = 4, merge: int = 2, image_number: str = 'over_batch', padded: int "
              "= 0) -> tuple[Any, "
              "Any]"),
      "HunYuan's XD-RoPE: positions [axes, b, t] of text and images, and what a row adds to the "
      "length of "
      "its cache. image_number: over_batch or per_row.");
}

}  // namespace

void add_modal_positions(nb::module_& m) {
  add_images(m);
  add_spans(m);
  add_modalities(m);
  add_media(m);
  add_more_media(m);
}

}  // namespace posenc::python
