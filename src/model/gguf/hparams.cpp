// SPDX-License-Identifier: Apache-2.0
// The order and the defaults are those of llama.cpp's load_hparams (commit 0c1e57098).
#include "model/gguf/hparams.h"

#include <algorithm>
#include <array>

namespace posenc::inline v0::gguf {
namespace {

constexpr Index kMaxLayers = 512;  // llama.cpp's LLAMA_MAX_LAYERS

constexpr const char* kSectionsFix =
    "convert the model again: the sections are mrope_section of its config.json";

bool need(Keys& keys, std::string_view key, Sourced<Index>& value) {
  const bool found = keys.take(key, value);
  if (!found && !keys.has(key)) keys.missing(key, "--assume " + std::string(key) + "=N");
  return found;
}

Mode mode_from(std::string_view layout) {
  constexpr std::array<std::string_view, 5> names{"none", "norm", "neox", "mrope", "imrope"};
  const auto at = std::ranges::find(names, layout);
  return at == names.end() ? Mode::none : static_cast<Mode>(at - names.begin());
}

void read_sections(const Architecture& arch, Keys& keys, Hparams& h) {
  h.mode = mode_from(arch.text("layout"));
  const auto multi = [&] { return h.mode == Mode::mrope || h.mode == Mode::imrope; };
  const std::string_view rule = arch.text("sections");
  constexpr std::string_view key = "rope.dimension_sections";
  if (rule.empty()) return;
  if (!keys.has(key)) {
    if (rule == "required" || multi()) keys.missing(key, kSectionsFix);
    return;
  }
  auto sections = keys.per_layer(key, 1);
  if (!sections) return;
  auto& s = sections->value;
  const bool wrong = std::ranges::any_of(s, [](Index n) { return n < 0 || n > 65536; });
  if (s.size() > 4 || wrong)
    return keys.error("sections_sum", key, {"{} must be up to 4 pair counts", keys.full(key)},
                      kSectionsFix);
  s.resize(4, 0);
  const Index sum = s[0] + s[1] + s[2] + s[3];
  if ((arch.name() == "dflash" ? sum > 0 : s[0] > 0 && s[1] > 0) && arch.has("with_sections"))
    h.mode = mode_from(arch.text("with_sections"));
  if (!multi()) return;
  if (sum > 0)
    h.sections = std::move(sections);
  else  // ggml divides by their sum
    keys.error("sections_sum", key,
               {"{} must name at least one pair, all of its sections are 0", keys.full(key)},
               kSectionsFix);
}

void read_counts(const Architecture& arch, Keys& keys, Hparams& h) {
  need(keys, "context_length", h.context);
  h.original_context = h.context;
  h.original_context.origin = Origin::derived;
  keys.take("rope.scaling.original_context_length", h.original_context);
  if (h.original_context.value == 0) h.original_context = h.context;  // 0 counts as absent
  Sourced<Index> blocks, skipped, loops, dense;
  if (!need(keys, "block_count", blocks)) return;
  const auto beyond = [&](std::string_view key, bool wrong, const std::string& message) {
    if (wrong) keys.error("out_of_range", key, message);
    return wrong;
  };
  if (beyond("block_count", blocks.value < 1 || blocks.value > kMaxLayers,
             "block_count must be 1 to 512, got " + std::to_string(blocks.value)))
    return;
  keys.take("nextn_predict_layers", skipped);
  if (beyond("nextn_predict_layers", skipped.value > blocks.value,
             "more next-token layers than layers"))
    return;
  h.layers = h.run_layers = blocks.value - skipped.value;
  if (arch.flag("loops") && keys.take("num_loops", loops) &&
      !beyond("num_loops", loops.value < 1 || loops.value * h.layers > kMaxLayers,
              "num_loops must be 1 or more, 512 layers at most"))
    h.run_layers = h.layers * loops.value;
  keys.take("leading_dense_block_count", dense);
  h.leading_dense = dense.value;
}

void read_heads(const Architecture& arch, Keys& keys, Hparams& h) {
  const auto per_layer = [&](std::string_view key, const std::vector<Index>& absent) {
    const auto v = keys.per_layer(key, h.layers);
    return v ? v->value : absent;
  };
  const std::vector<Index> zeros(static_cast<std::size_t>(h.layers), 0);
  constexpr std::string_view key = "attention.head_count";
  h.heads = per_layer(key, zeros);
  h.kv_heads = per_layer("attention.head_count_kv", h.heads);
  h.feed_forward = per_layer("feed_forward_length", zeros);
  Sourced<Index> width;
  const bool wide = need(keys, "embedding_length", width);
  const Index first = of_layer(h.heads, 0);
  if (first <= 0 && h.mode != Mode::none)
    keys.error(keys.has(key) ? "out_of_range" : "missing_key", key,
               "attention.head_count must be positive", "--assume attention.head_count=N");
  if (first <= 0 || !wide) return;
  h.head_dim = {width.value / first, Origin::derived, "embedding_length / attention.head_count"};
  const bool own_width = keys.take("attention.key_length", h.head_dim) ||
                         (arch.flag("mla") && keys.has("attention.key_length_mla"));
  if (!own_width && h.mode != Mode::none && width.value % first != 0)
    keys.error("out_of_range", "embedding_length",
               {"embedding_length must be a multiple of attention.head_count, got {} for {} heads",
                width.value, first},
               "--assume attention.key_length=N for heads of another width");
  h.rotary_dim = {h.head_dim.value, Origin::derived, "the head width"};
  keys.take("rope.dimension_count", h.rotary_dim);
  h.head_dim_sliding = h.head_dim;
  h.rotary_dim_sliding = h.rotary_dim;
  keys.take("attention.key_length_swa", h.head_dim_sliding);
  keys.take("rope.dimension_count_swa", h.rotary_dim_sliding);
  const std::string_view rule = arch.text("rotary_dim");
  const std::string head = std::to_string(h.head_dim.value);
  if (rule == "must_be_head" && h.rotary_dim.value != h.head_dim.value)
    keys.error("partial_out_of_range", "rope.dimension_count",
               {"llama.cpp refuses a {} that rotates {} of {} channels", arch.name(),
                h.rotary_dim.value, head},
               {"--assume rope.dimension_count={} rotates whole heads, as llama.cpp wants", head});
  if (rule == "head") h.rotary_dim = h.head_dim;
  if (rule == "half_on_full")
    h.rotary_dim = {h.rotary_dim.value / 2, Origin::derived, h.rotary_dim.where + " / 2"};
}

// Latent attention multiplies heads of key_length_mla; their last channels turn.
void read_latent(const Architecture& arch, Keys& keys, Hparams& h) {
  if (!arch.flag("mla")) return;
  if (keys.take("attention.key_length_mla", h.head_dim)) h.head_dim_sliding = h.head_dim;
  keys.take("attention.key_length_mla_swa", h.head_dim_sliding);
}

void check_width(Keys& keys, const Sourced<Index>& head, const Sourced<Index>& rotary,
                 std::string_view key) {
  const std::string wide = std::to_string(head.value), turned = std::to_string(rotary.value);
  const Sourced<Index>& width = rotary.origin == Origin::derived ? head : rotary;
  if (head.value < 1 || head.value > 65536)
    keys.report().error("out_of_range", {"the head width must be 1 to 65536, got {}", wide},
                        head.where, keys.reconvert_hint("attention.key_length"));
  else if (rotary.value < 2 || rotary.value % 2 != 0)
    keys.report().error(
        "partial_out_of_range",
        {"the number of rotated channels must be positive and even, got {}", turned}, width.where,
        keys.reconvert_hint(key));
  else if (rotary.value > head.value)
    keys.report().error("partial_out_of_range",
                        {"rotates {} channels of heads that have {}", turned, wide}, width.where,
                        keys.reconvert_hint(key));
}

}  // namespace

Hparams read_hparams(const Architecture& arch, Keys& keys) {
  Hparams h;
  read_counts(arch, keys, h);
  if (keys.failed()) return h;
  if (arch.has("causal"))
    h.causal = arch.constant(false);
  else
    keys.take("attention.causal", h.causal);
  read_sections(arch, keys, h);
  read_heads(arch, keys, h);
  read_latent(arch, keys, h);
  read_scaling(arch, keys, h);
  if (keys.failed()) return h;
  read_layers(arch, keys, h);
  if (keys.failed() || !contains(h.rotated, true)) return h;
  check_width(keys, h.head_dim, h.rotary_dim, "rope.dimension_count");
  if (contains(h.sliding, true))
    check_width(keys, arch.flag("layer_widths") ? h.head_dim_sliding : h.head_dim,
                h.rotary_dim_sliding, "rope.dimension_count_swa");
  return h;
}

}  // namespace posenc::v0::gguf
