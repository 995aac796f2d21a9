// SPDX-License-Identifier: Apache-2.0
// Fields of schemes of the score that depend on the kind of a layer or on its stage: Inkling, LeViT.
#include "model/hugging_face/image_rows.h"
#include "model/hugging_face/score/side.h"

namespace posenc::inline v0::hf {
namespace {

constexpr Index kLongest = 1'000'000'000;

// The bias of layers with a window reaches as far as that; that of others grows with the logarithm.
bool inkling_of(const ConfigView& view, const ScorePlace& place, const char* by,
                EncodingBuilder& made) {
  const auto reach =
      view.integer(place.sliding ? "sliding_window" : "rel_extent", 1, 10'000'000, true);
  if (!reach) return false;
  made.set("max_distance", *reach);
  if (place.sliding || !view.value_or_none("log_scaling_n_floor")) return true;
  const auto floor = view.integer("log_scaling_n_floor", 1, kLongest);
  const auto alpha = view.value("log_scaling_alpha");
  if (!floor) return false;
  if (!alpha || number_of(alpha).value_or(-1) < 0)
    return view.must_be("log_scaling_alpha", "a number of 0 or more",
                        alpha.value_or(view.of_class(Json())));
  made.set("log_scaling_n_floor", *floor);
  made.set("log_scaling_alpha", *alpha);
  made.set("log_scaling_by", view.of_class(by));
  return true;
}

// LevitEncoder: image_size // patch_size rows and columns; each stage but the last shrinks them to
// every second one.
std::optional<Index> levit_rows(const ConfigView& view, Index stage) {
  const auto image = view.integer("image_size", 1, 1 << 20, true);
  const auto patch = view.integer("patch_size", 1, 1 << 20, true);
  if (!image || !patch) return std::nullopt;
  Index rows = image->value / patch->value;
  if (rows < 1 || rows > 4096)
    return view.wrong_type({"image_size // patch_size must lie between 1 and 4096, got {} // {}",
                            image->value, patch->value},
                           *image);
  const std::optional<LayerCountRules>& count = view.rules().layer_count;
  const Index shrinking = count ? count->shrinking.value_or(0) : 0;
  for (Index s = 0; s < std::min(stage, shrinking); ++s) rows = (rows - 1) / 2 + 1;
  return rows;
}

}  // namespace

bool inkling_fields(const ConfigView& view, const ScorePlace& place, EncodingBuilder& made) {
  return inkling_of(view, place, "order", made);
}

bool inkling2_fields(const ConfigView& view, const ScorePlace& place, EncodingBuilder& made) {
  const auto limit = view.value("rel_l2_clip_threshold");
  if (!limit || !(number_of(limit).value_or(0) > 0))
    return view.must_be("rel_l2_clip_threshold", "a positive number",
                        limit.value_or(view.of_class(Json())));
  made.set("l2_clip", *limit);
  return inkling_of(view, place, "position", made);
}

bool levit_fields(const ConfigView& view, const ScorePlace& place, EncodingBuilder& made) {
  const auto rows = levit_rows(view, place.stage);
  if (!rows) return false;
  const char* where = "image_size // patch_size, halved by each stage before";
  made.set("height", derived(*rows, where));
  made.set("width", derived(*rows, where));
  return true;
}

// Behind each layer of a stage stands its MLP, unless mlp_ratio has a 0 there; what is added to its
// input lies in `module`.
std::string levit_module(const ConfigView& view, const ScorePlace& place) {
  const auto ratios = view.value_or_none("mlp_ratio");
  const auto stage = static_cast<std::size_t>(place.stage);
  bool mlp = true;
  if (ratios && ratios->value.is_array() && stage < ratios->value.as_array().size())
    mlp = number_of(ratios->value.as_array()[stage]).value_or(1) > 0;
  return std::to_string(mlp ? 2 * place.block : place.block) + (place.shrinks ? "" : ".module");
}

}  // namespace posenc::v0::hf
