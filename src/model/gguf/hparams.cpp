// SPDX-License-Identifier: Apache-2.0
// The order and the defaults are those of llama.cpp's load_hparams (commit 0c1e57098).
#include "model/gguf/hparams.h"

#include <algorithm>

namespace posenc::gguf {
namespace {

constexpr Index kMaxLayers = 512;  // llama.cpp's LLAMA_MAX_LAYERS

std::optional<Sourced<Index>> need(Keys& keys, std::string_view key) {
  const bool there = keys.has(key);
  auto v = keys.integer(key);
  if (!v && !there) keys.missing(key, "--assume " + std::string(key) + "=N");
  return v;
}

Mode mode_from(std::string_view layout) {
  if (layout == "norm") return Mode::norm;
  if (layout == "neox") return Mode::neox;
  if (layout == "mrope") return Mode::mrope;
  if (layout == "imrope") return Mode::imrope;
  return Mode::none;
}

void read_sections(const Architecture& arch, Keys& keys, Hparams& h) {
  h.mode = mode_from(arch.text("layout"));
  const std::string_view rule = arch.text("sections");
  constexpr std::string_view key = "rope.dimension_sections";
  if (rule.empty()) return;
  if (!keys.has(key)) {
    if (rule == "required" || h.mode == Mode::mrope || h.mode == Mode::imrope)
      keys.missing(key,
                   "convert the model again: the sections are mrope_section of its config.json");
    return;
  }
  auto sections = keys.per_layer(key, 1);
  if (!sections) return;
  const bool negative = std::any_of(sections->value.begin(), sections->value.end(),
                                    [](Index n) { return n < 0 || n > 65536; });
  if (sections->value.size() > 4 || negative) {
    keys.error("sections_sum", key, keys.full(key) + " must be up to 4 pair counts",
               "convert the model again: the sections are mrope_section of its config.json");
    return;
  }
  sections->value.resize(4, 0);
  const auto& s = sections->value;
  const bool multi = arch.name() == "dflash" ? s[0] + s[1] + s[2] + s[3] > 0 : s[0] > 0 && s[1] > 0;
  if (multi && arch.has("with_sections")) h.mode = mode_from(arch.text("with_sections"));
  if (h.mode != Mode::mrope && h.mode != Mode::imrope) return;
  // ggml divides by their sum.
  if (s[0] + s[1] + s[2] + s[3] == 0)
    keys.error("sections_sum", key,
               keys.full(key) + " must name at least one pair, all of its sections are 0",
               "convert the model again: the sections are mrope_section of its config.json");
  else
    h.sections = std::move(sections);
}

void read_counts(const Architecture& arch, Keys& keys, Hparams& h) {
  if (auto v = need(keys, "context_length")) h.context = *v;
  h.original_context = h.context;
  h.original_context.origin = Origin::derived;
  if (auto v = keys.integer("rope.scaling.original_context_length")) h.original_context = *v;
  if (h.original_context.value == 0) h.original_context = h.context;  // 0 counts as absent
  const auto blocks = need(keys, "block_count");
  if (!blocks) return;
  if (blocks->value < 1 || blocks->value > kMaxLayers) {
    keys.error("out_of_range", "block_count",
               "block_count must be 1 to 512, got " + std::to_string(blocks->value));
    return;
  }
  const auto next = keys.integer("nextn_predict_layers");
  const Index skipped = next ? next->value : 0;
  if (skipped > blocks->value) {
    keys.error("out_of_range", "nextn_predict_layers", "more next-token layers than layers");
    return;
  }
  h.layers = blocks->value - skipped;
  h.run_layers = h.layers;
  const auto loops = arch.flag("loops") ? keys.integer("num_loops") : std::nullopt;
  if (loops && (loops->value < 1 || loops->value * h.layers > kMaxLayers))
    keys.error("out_of_range", "num_loops", "num_loops must be 1 or more, 512 layers at most");
  else if (loops)
    h.run_layers = h.layers * loops->value;
  if (const auto dense = keys.integer("leading_dense_block_count")) h.leading_dense = dense->value;
}

void read_heads(const Architecture& arch, Keys& keys, Hparams& h) {
  const auto per_layer = [&](std::string_view key, const std::vector<Index>& absent) {
    const auto v = keys.per_layer(key, h.layers);
    return v ? v->value : absent;
  };
  const std::vector<Index> zeros(static_cast<std::size_t>(h.layers), 0);
  h.heads = per_layer("attention.head_count", zeros);
  h.kv_heads = per_layer("attention.head_count_kv", h.heads);
  h.feed_forward = per_layer("feed_forward_length", zeros);
  const auto width = need(keys, "embedding_length");
  const bool attends = h.mode != Mode::none;
  const Index first = h.heads.empty() ? 0 : h.heads[0];
  if (first <= 0 && attends) {
    keys.error(keys.has("attention.head_count") ? "out_of_range" : "missing_key",
               "attention.head_count", "attention.head_count must be positive",
               "--assume attention.head_count=N");
    return;
  }
  if (first <= 0 || !width) return;
  h.head_dim = {width->value / first, Origin::derived, "embedding_length / attention.head_count"};
  if (const auto v = keys.integer("attention.key_length")) h.head_dim = *v;
  h.rotary_dim = {h.head_dim.value, Origin::derived, "the head width"};
  if (const auto v = keys.integer("rope.dimension_count")) h.rotary_dim = *v;
  h.head_dim_sliding = h.head_dim;
  h.rotary_dim_sliding = h.rotary_dim;
  if (const auto v = keys.integer("attention.key_length_swa")) h.head_dim_sliding = *v;
  if (const auto v = keys.integer("rope.dimension_count_swa")) h.rotary_dim_sliding = *v;
  if (arch.text("rotary_dim") == "must_be_head" && h.rotary_dim.value != h.head_dim.value)
    keys.error("partial_out_of_range", "rope.dimension_count",
               "llama.cpp refuses a " + arch.name() + " that turns " +
                   std::to_string(h.rotary_dim.value) + " of " + std::to_string(h.head_dim.value) +
                   " channels",
               "--assume rope.dimension_count=" + std::to_string(h.head_dim.value) +
                   " turns whole heads, as llama.cpp wants");
  if (arch.text("rotary_dim") == "head") h.rotary_dim = h.head_dim;
  if (arch.text("rotary_dim") == "half_on_full") {
    h.rotary_dim.value /= 2;
    h.rotary_dim.origin = Origin::derived;
    h.rotary_dim.where += " / 2";
  }
}

// Latent attention multiplies heads of key_length_mla; their last channels turn.
void read_latent(const Architecture& arch, Keys& keys, Hparams& h) {
  if (!arch.flag("mla")) return;
  if (const auto v = keys.integer("attention.key_length_mla")) {
    h.head_dim = *v;
    h.head_dim_sliding = *v;
  }
  if (const auto v = keys.integer("attention.key_length_mla_swa")) h.head_dim_sliding = *v;
}

void check_width(Keys& keys, const Sourced<Index>& head, const Sourced<Index>& rotary,
                 std::string_view key) {
  const auto wrong = [&](const char* code, const Sourced<Index>& at, const std::string& message,
                         std::string_view better) {
    keys.report().error(code, message, at.where, keys.reconvert_hint(better));
  };
  const Sourced<Index>& width = rotary.origin == Origin::derived ? head : rotary;
  if (head.value < 1 || head.value > 65536)
    wrong("out_of_range", head,
          "the head width must be 1 to 65536, got " + std::to_string(head.value),
          "attention.key_length");
  else if (rotary.value < 2 || rotary.value % 2 != 0)
    wrong("partial_out_of_range", width,
          "the number of turned channels must be positive and even, got " +
              std::to_string(rotary.value),
          key);
  else if (rotary.value > head.value)
    wrong("partial_out_of_range", width,
          "turns " + std::to_string(rotary.value) + " channels of heads that have " +
              std::to_string(head.value),
          key);
}

}  // namespace

Hparams read_hparams(const Architecture& arch, Keys& keys) {
  Hparams h;
  read_counts(arch, keys, h);
  if (keys.failed()) return h;
  h.causal = {true, Origin::class_default, "llama.cpp"};
  if (arch.has("causal"))
    h.causal = arch.constant(false);
  else if (const auto v = keys.boolean("attention.causal"))
    h.causal = *v;
  read_sections(arch, keys, h);
  read_heads(arch, keys, h);
  read_latent(arch, keys, h);
  read_scaling(arch, keys, h);
  if (keys.failed()) return h;
  read_layers(arch, keys, h);
  if (keys.failed() || std::none_of(h.rotated.begin(), h.rotated.end(), [](bool b) { return b; }))
    return h;
  check_width(keys, h.head_dim, h.rotary_dim, "rope.dimension_count");
  if (std::any_of(h.sliding.begin(), h.sliding.end(), [](bool b) { return b; }))
    check_width(keys, arch.flag("layer_widths") ? h.head_dim_sliding : h.head_dim,
                h.rotary_dim_sliding, "rope.dimension_count_swa");
  return h;
}

}  // namespace posenc::gguf
