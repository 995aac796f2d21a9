// SPDX-License-Identifier: Apache-2.0
// Fields of schemes of the score that no one key of a file holds: one function a rule of the class
// table.
#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "model/hugging_face/image_rows.h"
#include "model/hugging_face/score/side.h"

namespace posenc::inline v0::hf {
namespace {

constexpr Index kMost = 1'000'000'000;

using Layer = const ScorePlace&;

// T5: encoders split their buckets between past and future.
bool direction(const ConfigView& view, Layer, EncodingBuilder& made) {
  made.set("bidirectional", view.of_class<Json>(view.rules().bidirectional && !is_decoder(view)));
  return true;
}

// Sizes that must be there; a finding and none otherwise.
Sides sides(const ConfigView& view, const std::string& key) {
  const auto out = image_sides(view, key);
  if (!out && !view.stated(key))
    view.error("missing_key", {"{} is missing", key}, view.where(key),
               "state the sizes of the model");
  return out;
}
Sides patches(const ConfigView& view) {
  const auto image = sides(view, "image_size"), patch = sides(view, "patch_size");
  if (!image || !patch) return std::nullopt;
  const Sides out{{image->first / patch->first, image->second / patch->second}};
  if (out->first > 0 && out->second > 0) return out;
  return view.wrong_type(
      {"no patch fits into the image: image_size is {}, patch_size {}",
       std::min(image->first, image->second), std::max(patch->first, patch->second)},
      view.where("image_size"));
}

bool set_window(const ConfigView& view, const Sides& window, std::string_view key,
                EncodingBuilder& made) {
  if (!window) return false;
  made.set("height", derived(window->first, view.where(key)));
  made.set("width", derived(window->second, view.where(key)));
  return true;
}
bool set_size(const ConfigView& view, const Sides& size, std::string_view key,
              EncodingBuilder& made) {
  if (!size) return false;
  made.set("size", derived(Json::array({size->first, size->second}), view.where(key)));
  return true;
}

// The grid of the calls, which a person states as --assume grid=HxW; none after a finding.
Sides stated_grid(const ConfigView& view, const Value& given) {
  constexpr Index kMostSide = 4096;
  Index side[2] = {0, 0};
  bool fine = false;
  if (given.value.is_array() && given.value.as_array().size() == 2) {
    const Json::Array& two = given.value.as_array();
    fine = two[0].is_integer() && two[1].is_integer();
    if (fine) side[0] = two[0].as_integer(), side[1] = two[1].as_integer();
  } else if (given.value.is_string()) {
    const std::string& text = given.value.as_string();
    const char *at = text.data(), *end = text.data() + text.size();
    const auto first = std::from_chars(at, end, side[0]);
    fine = first.ec == std::errc{} && first.ptr != end && *first.ptr == 'x';
    const auto last = fine ? std::from_chars(first.ptr + 1, end, side[1]) : first;
    fine = fine && last.ec == std::errc{} && last.ptr == end;
  }
  if (fine && std::min(side[0], side[1]) > 0 && std::max(side[0], side[1]) <= kMostSide)
    return {{side[0], side[1]}};
  view.error("wrong_type", {"grid must be HxW, rows and columns of patches up to {}", kMostSide},
             given.where, "state the patches of the image, as --assume grid=14x14");
  return std::nullopt;
}

// Swin.
bool window(const ConfigView& view, Layer, EncodingBuilder& made) {
  return set_window(view, sides(view, "window_size"), "window_size", made);
}

// BEiT: the window is the whole image.
bool window_of_patches(const ConfigView& view, Layer, EncodingBuilder& made) {
  if (const auto given = view.report().assumed("grid")) {
    const Sides grid = stated_grid(view, *given), own = patches(view);
    if (!grid || !own) return false;
    if (grid != own)
      return view.error(
          "refused",
          {"grid is {} x {}, and the table of this layer has the offsets of {} x {} patches",
           grid->first, grid->second, own->first, own->second},
          given->where,
          message("resize the table as transformers does, posenc extend --suffix 3 --how bilinear "
                  "--to {}x{}, and state the new image_size",
                  2 * grid->first - 1, 2 * grid->second - 1));
  }
  return set_window(view, patches(view), "image_size", made);
}

// Swin V2: no window is larger than the image; stages halve that, those of Swin2SR do not.
bool window_in_image(const ConfigView& view, Index shrink, EncodingBuilder& made) {
  const auto all = patches(view), size = sides(view, "window_size");
  if (!all || !size) return false;
  const auto least = [&](Index window, Index cells) {
    return std::max<Index>(1, std::min(window, cells >> std::min<Index>(shrink, 32)));
  };
  return set_window(view, {{least(size->first, all->first), least(size->second, all->second)}},
                    "window_size", made);
}
bool same_image(const ConfigView& view, Layer, EncodingBuilder& made) {
  return window_in_image(view, 0, made);
}
bool halved_image(const ConfigView& view, Layer l, EncodingBuilder& made) {
  if (!window_in_image(view, l.stage, made)) return false;
  const auto list = view.value_or_none("pretrained_window_sizes");
  if (!list) return true;
  const auto wrong = [&] {
    return view.wrong_type(
        {"pretrained_window_sizes must have a window for each stage, got {}", list->value}, *list);
  };
  const auto stage = static_cast<std::size_t>(l.stage);
  if (!list->value.is_array() || list->value.as_array().size() <= stage) return wrong();
  const Json& one = list->value.as_array()[stage];
  const bool two = one.is_array() && one.as_array().size() == 2;
  const Json height = two ? one.as_array()[0] : one, width = two ? one.as_array()[1] : one;
  if (!height.is_integer() || !width.is_integer() || height.as_integer() < 0) return wrong();
  if (height.as_integer() == 0) return true;
  made.set("pretrained_height", height, list->origin, list->where);
  made.set("pretrained_width", width, list->origin, list->where);
  return true;
}

// Whether a list of layers has this one; none after a finding.
std::optional<bool> listed(const ConfigView& view, const char* key, Index layer) {
  const auto list = view.value_or_none(key);
  if (!list) return false;
  bool found = false, fine = list->value.is_array();
  for (std::size_t i = 0; fine && i < list->value.as_array().size(); ++i) {
    const Json& n = list->value.as_array()[i];
    fine = n.is_integer();
    found = found || n == Json(layer);
  }
  if (fine) return found;
  return view.must_be(key, "a list of layers", *list, "state the layers by number, from 0");
}

// SegGPT; SAM and similar models, ViTDet: windows of some layers, else the whole image. Of a call
// on another grid the tables are resized to its offsets.
bool size_of_patches(const ConfigView& view, Layer, EncodingBuilder& made) {
  const auto given = view.report().assumed("grid");
  const Sides own = patches(view);
  if (!given || !own) return set_size(view, own, "image_size", made);
  const Sides grid = stated_grid(view, *given);
  if (!grid) return false;
  made.set("size",
           Sourced<Json>{Json::array({grid->first, grid->second}), given->origin, given->where});
  made.set("table_rows", derived(Json::array({2 * own->first - 1, 2 * own->second - 1}),
                                 "2 image_size / patch_size - 1"));
  return true;
}
bool size_of_window(const ConfigView& view, bool windowed, EncodingBuilder& made) {
  const auto n = view.integer("window_size", 0, 4096, true);
  if (!n) return false;
  if (!windowed || n->value == 0) return size_of_patches(view, {}, made);
  return set_size(view, {{n->value, n->value}}, "window_size", made);
}
bool windows_but_global(const ConfigView& view, Layer l, EncodingBuilder& made) {
  const auto global = listed(view, "global_attn_indexes", l.layer);
  return global && size_of_window(view, !*global, made);
}
bool windows_of_blocks(const ConfigView& view, Layer l, EncodingBuilder& made) {
  const auto windowed = listed(view, "window_block_indices", l.layer);
  return windowed && size_of_window(view, *windowed, made);
}

// BROS: a quarter of the width is shared by the coordinates of a box, a sine and a cosine each.
bool boxes(const ConfigView& view, Layer, EncodingBuilder& made) {
  const auto width = view.integer("hidden_size", 1, kMost, true),
             count = view.integer("dim_bbox", 1, 1024, true);
  if (!width || !count) return false;
  const Index each = width->value / 4 / count->value;
  if (each < 2 || each % 2 != 0 || each * count->value * 4 != width->value)
    return view.wrong_type({"hidden_size {} must be 8 times dim_bbox {} times a whole number",
                            width->value, count->value},
                           *width, "state the sizes of the model", width->value);
  made.set("coordinates", *count);
  made.set("frequencies", derived(each / 2, "hidden_size / 4 / dim_bbox / 2"));
  return true;
}

// The largest distance of DeBERTa: max_position_embeddings where the file has none.
bool largest_distance(const ConfigView& view, EncodingBuilder& made) {
  auto n = view.integer("max_relative_positions", -kMost, kMost);
  if (!n || n->value < 1) n = view.integer("max_position_embeddings", 1, kMost, true);
  if (n) made.set("max_relative_positions", *n);
  return n.has_value();
}
void set_terms(const ConfigView& view, EncodingBuilder& made) {
  for (const char* term : {"c2p", "p2c"})
    made.set(term, derived(lists_word(view, "pos_att_type", term), view.where("pos_att_type")));
}

bool deberta(const ConfigView& view, Layer, EncodingBuilder& made) {
  if (!largest_distance(view, made)) return false;
  const auto buckets = view.integer("position_buckets", -kMost, 65536);
  made.set("position_buckets", buckets && buckets->value > 0 ? *buckets : view.of_class<Index>(0));
  set_terms(view, made);
  const bool shared = view.flag("share_att_key", false);
  made.set("projection", derived(shared ? "shared" : "own", view.where("share_att_key")));
  made.set("norm",
           derived(lists_word(view, "norm_rel_ebd", "layer_norm"), view.where("norm_rel_ebd")));
  if (const auto eps = view.value_or_none("layer_norm_eps")) made.set("norm_epsilon", *eps);
  return true;
}

// Version 1 counts every entry of pos_att_type in the scale.
bool deberta_v1(const ConfigView& view, Layer, EncodingBuilder& made) {
  if (!largest_distance(view, made)) return false;
  set_terms(view, made);
  if (lists_word(view, "pos_att_type", "p2p"))
    made.set("count", derived(Index{2} + lists_word(view, "pos_att_type", "c2p") +
                                  lists_word(view, "pos_att_type", "p2c"),
                              view.where("pos_att_type")));
  return true;
}

// relative_bias_args: one object a table.
bool udop(const ConfigView& view, Layer, EncodingBuilder& made) {
  const auto list = view.value_or_none("relative_bias_args");
  if (!list || !list->value.is_array())
    return view.wrong_type(
        {"relative_bias_args must be a list of tables, got {}", list ? list->value : Json(nullptr)},
        view.place(list, "relative_bias_args"), "state the tables of the model");
  constexpr std::array<std::array<const char*, 3>, 3> kTables{
      {{"1d", "num_buckets", "max_distance"},
       {"horizontal", "horizontal_buckets", "horizontal_max_distance"},
       {"vertical", "vertical_buckets", "vertical_max_distance"}}};
  const Json::Array& all = list->value.as_array();
  if (all.size() != kTables.size())
    return view.wrong_type("relative_bias_args must have the tables 1d, horizontal and vertical",
                           *list, "state the tables of the model");
  for (const auto& [type, count, distance] : kTables) {
    const auto one = std::ranges::find_if(all, [&, name = type](const Json& x) {
      const Json* t = x.is_object() ? x.find("type") : nullptr;
      return t != nullptr && *t == Json(name);
    });
    if (one == all.end())
      return view.wrong_type({"relative_bias_args has no table of type {}", Json(type)}, *list,
                             "state the tables of the model");
    if (const Json* n = one->find("relative_attention_num_buckets"))
      made.set(count, *n, list->origin, list->where);
    if (const Json* n = one->find("max_distance"))
      made.set(distance, *n, list->origin, list->where);
  }
  return true;
}

bool xlnet(const ConfigView& view, Layer, EncodingBuilder& made) {
  const auto most = view.integer("clamp_len", -kMost, kMost);
  if (most && most->value > 0) made.set("clamp_len", *most);
  return true;
}

// The class token is apart from the pooled tokens only with separate_cls.
bool funnel(const ConfigView& view, Layer, EncodingBuilder& made) {
  made.set("class_token", derived(view.flag("separate_cls", true), view.where("separate_cls")));
  return true;
}

bool layoutlm(const ConfigView& view, Layer, EncodingBuilder&) {
  if (view.flag("has_relative_attention_bias", true)) return true;
  view.note("encoding_not_covered",
            "has_relative_attention_bias is false: buckets of boxes act without those of the "
            "order, which have no scheme here",
            view.where("has_relative_attention_bias"));
  return false;
}

// SpeechT5: clipped to -n .. n - 1.
bool clipped_below(const ConfigView& view, Layer, EncodingBuilder& made) {
  const auto n = view.integer("encoder_max_relative_position", 1, 1'000'000, true);
  if (!n) return false;
  made.set("left", derived(n->value - 1, n->where + " - 1"));
  made.set("right", *n);
  return true;
}

using Rule = bool (*)(const ConfigView&, Layer, EncodingBuilder&);
constexpr std::pair<std::string_view, Rule> kRules[] = {{"direction", direction},
                                                        {"window", window},
                                                        {"window_of_patches", window_of_patches},
                                                        {"same_image", same_image},
                                                        {"halved_image", halved_image},
                                                        {"size_of_patches", size_of_patches},
                                                        {"windows_but_global", windows_but_global},
                                                        {"windows_of_blocks", windows_of_blocks},
                                                        {"boxes", boxes},
                                                        {"deberta", deberta},
                                                        {"deberta_v1", deberta_v1},
                                                        {"udop", udop},
                                                        {"xlnet", xlnet},
                                                        {"funnel", funnel},
                                                        {"layoutlm", layoutlm},
                                                        {"clipped_below", clipped_below},
                                                        {"inkling", inkling_fields},
                                                        {"inkling2", inkling2_fields},
                                                        {"levit", levit_fields}};

}  // namespace

bool score_fields(const ConfigView& view, const std::string& rule, const ScorePlace& place,
                  EncodingBuilder& made) {
  if (rule.empty()) return true;
  const auto* it = std::ranges::find_if(kRules, [&](const auto& r) { return r.first == rule; });
  if (it == std::end(kRules)) refuse("read", "no rule of the score has the name", rule);
  return it->second(view, place, made);
}

}  // namespace posenc::v0::hf
