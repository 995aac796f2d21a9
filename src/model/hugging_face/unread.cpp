// SPDX-License-Identifier: Apache-2.0
// What a file says about positions and nobody reads.
#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "model/hugging_face/layers.h"

namespace posenc::inline v0::hf {
namespace {

// Keys by which the code of some model changes its positions. Where the class of a file does not
// read one of them, the file was meant for other code.
constexpr std::string_view kOfPositions[] = {"alibi",
                                             "use_alibi",
                                             "dual_chunk_attention_config",
                                             "rope_ratio",
                                             "rope_scaling_layers",
                                             "layer_rope_theta",
                                             "compress_rope_theta",
                                             "rotary_emb_base",
                                             "rotary_embedding_base",
                                             "rotary_emb_fraction",
                                             "rotary_emb_scale_base",
                                             "rotary_scaling_factor",
                                             "rotary_pct",
                                             "rotary_percent",
                                             "rope_pct",
                                             "rope_percent",
                                             "rotary_dim",
                                             "use_dynamic_ntk",
                                             "use_logn_attn",
                                             "use_rotary_embedding",
                                             "use_mem_rope",
                                             "no_rope_layers",
                                             "no_rope_layer_interval",
                                             "rope_interleave",
                                             "rope_interleaved",
                                             "rotary_emb_interleaved",
                                             "mrope_section",
                                             "mrope_interleaved",
                                             "xdrope_section",
                                             "original_max_position_embeddings",
                                             "attn_temperature_tuning",
                                             "floor_scale",
                                             "attn_scale",
                                             "llama_4_scaling",
                                             "llama_4_scaling_beta",
                                             "log_scaling_n_floor",
                                             "attention_types",
                                             "use_sliding_window",
                                             "max_window_layers",
                                             "sliding_window_pattern",
                                             "global_attn_every_n_layers",
                                             "full_attention_interval",
                                             "position_embedding_type"};
// How many tokens a token sees.
constexpr std::string_view kWindows[] = {"sliding_window",       "sliding_window_size",
                                         "attention_window",     "attention_window_size",
                                         "attention_chunk_size", "local_attention"};

// Names of other programs, or of one class, for something that has another name in most.
struct Alias {
  std::string_view key, means;
};
constexpr Alias kAliases[] = {{"theta", "rope_theta"},
                              {"rope_base", "rope_theta"},
                              {"rotary_base", "rope_theta"},
                              {"rope_freq_base", "rope_theta"},
                              {"rope_thetas", "rope_theta by layer"},
                              {"global_rope_theta", "rope_theta of full layers"},
                              {"rope_local_base_freq", "rope_theta of sliding layers"},
                              {"local_rope_theta", "rope_theta of sliding layers"},
                              {"swa_rope_theta", "rope_theta of sliding layers"},
                              {"rope_scale", "factor of rope_scaling"},
                              {"rope_scaling_factor", "factor of rope_scaling"},
                              {"ntk_alpha", "alpha of rope_scaling"},
                              {"n_ctx", "the length, n_positions or max_position_embeddings"},
                              {"rope_percentage", "partial_rotary_factor"},
                              {"rotary_percentage", "partial_rotary_factor"},
                              {"partial_rotary_factors", "partial_rotary_factor by layer"}};

// Read where the table of classes does not say so: by a default for layer_types that the file
// states, by masks that are not described here.
constexpr std::string_view kReadElsewhere[][2] = {
    {"CohereCompassTextConfig", "sliding_window_pattern"},
    {"Dots3NoteTextConfig", "use_sliding_window"},
    {"MistralLarge4TextConfig", "no_rope_layer_interval"},
    {"PhimoeConfig", "original_max_position_embeddings"},
    {"LEDConfig", "attention_window"},
    {"LongformerConfig", "attention_window"},
    {"IQuestCoderConfig", "use_sliding_window"}};
// Handed to FlashAttention and to no other kernel.
constexpr std::string_view kOneKernel[][2] = {{"OlmoeConfig", "sliding_window"}};
// Set to null by the class, or no class with a key cache.
constexpr std::string_view kNotCached[][2] = {{"Qwen3VLMoeTextConfig", "sliding_window"},
                                              {"TimesFm2_5Config", "sliding_window"},
                                              {"TimesFm2_5Config", "attention_chunk_size"}};
// Held by a class whose model does not look at it.
constexpr std::string_view kHeldOnly[][2] = {{"NemotronHConfig", "sliding_window"},
                                             {"MoshiConfig", "sliding_window"},
                                             {"KyutaiSpeechToTextConfig", "sliding_window"}};

bool any_of(std::initializer_list<std::string_view> names, std::string_view key) {
  return std::find(names.begin(), names.end(), key) != names.end();
}

// Keys that nobody read, held against what the layers came to.
class Unread {
 public:
  Unread(const ConfigView& view, const std::vector<LayerSpec>& layers)
      : view_(view), layers_(layers) {}

  void find() {
    theta_of_attention();
    for (const Alias& alias : kAliases)
      if (const Json* held = unread(alias.key))
        view_.report().warn("alias_not_read",
                            std::string(alias.key) + " (" + std::string(alias.means) +
                                ") is not read by " + view_.class_name() + ", got " + shown(*held),
                            view_.where(alias.key),
                            "write the name that the class reads, if it is meant");
    for (const std::string_view key : kOfPositions)
      if (const Json* held = unread(key)) warn(key, *held, kOtherCode, kRemove);
    for (const std::string_view key : kWindows)
      if (const Json* held = unread(key)) window(key, *held);
  }

 private:
  static constexpr const char* kOtherCode = ": weights made with it need other code";
  static constexpr const char* kRemove = "remove it, or use the code that reads it";

  void warn(std::string_view key, const Json& held, const std::string& so, const std::string& fix) {
    view_.report().warn(
        "key_ignored",
        std::string(key) + " is not read by " + view_.class_name() + ", got " + shown(held) + so,
        view_.where(key), fix);
  }

  void window(std::string_view key, const Json& held) {
    if (lists(kOneKernel, key))
      return view_.report().warn(
          "key_ignored",
          std::string(key) + " " + shown(held) + " is handed to FlashAttention only by " +
              view_.class_name() + ": with every other kernel a token sees all before it",
          view_.where(key), "use the kernel that the weights were trained with, or remove it");
    if (!cache_forgets(key)) return warn(key, held, kOtherCode, kRemove);
    warn(key, held,
         ": its attention sees every earlier token, but the key cache that transformers makes of "
         "the file (DynamicCache) keeps as many tokens only, so that a text read at once and one "
         "read token by token differ",
         "remove it if the weights were trained without a window; otherwise use the code that "
         "reads it");
  }

  // transformers makes the cache of a decoder without layer types by these two keys, whatever the
  // class's own mask shows (run: 20 classes with rotary, BLOOM, MPT).
  bool cache_forgets(std::string_view key) const {
    const Json* types = view_.object().find("layer_types");
    const bool typed =
        view_.rules().typed || (types && !types->is_null()) || lists(kNotCached, key);
    return any_of({"sliding_window", "attention_chunk_size"}, key) && !typed && !layers_.empty() &&
           !view_.rules().bidirectional &&
           std::all_of(layers_.begin(), layers_.end(), [](const LayerSpec& layer) {
             return layer.attention.kind == AttentionKind::full && layer.attention.right == 0 &&
                    any_of({"rope", "alibi"}, layer.scheme);
           });
  }

  // What the file holds under a key that matters and that nobody looked at.
  const Json* unread(std::string_view key) const {
    const Json* held = view_.object().find(key);
    if (!held || !truthy(*held)) return nullptr;
    const bool read = view_.report().visited.count(view_.where(key)) != 0 || view_.holds(key) ||
                      names_key(view_.rules(), key) || lists(kReadElsewhere, key);
    if (read && !lists(kHeldOnly, key)) return nullptr;
    return says_nothing_new(key, *held) ? nullptr : held;
  }
  template <std::size_t N>
  bool lists(const std::string_view (&pairs)[N][2], std::string_view key) const {
    return std::any_of(std::begin(pairs), std::end(pairs), [&](const auto& pair) {
      return pair[0] == view_.class_name() && pair[1] == key;
    });
  }

  // How the class puts positions into its attention: rope, alibi, none ...
  std::string scheme() const { return view_.rules().scheme; }

  // Whether an unread key says what the class does anyway, so that nothing is lost with it.
  bool says_nothing_new(std::string_view key, const Json& held) const {
    if (key == "position_embedding_type") {
      const std::string said = held.is_string() ? held.as_string() : "";
      const bool turns = said == "rope" || said == "rotary";
      return said == "absolute" || (turns && scheme() == "rope") ||
             (said == scheme() && !said.empty());
    }
    if (any_of({"alibi", "use_alibi"}, key)) return scheme() == "alibi";
    if (key == "use_rotary_embedding") return scheme() == "rope";
    if (any_of({"rope_interleave", "rope_interleaved", "rotary_emb_interleaved"}, key))
      return view_.rules().pairing == "interleaved";
    if (key == "mrope_interleaved") {
      return view_.rules().mrope && view_.rules().mrope->layout == "interleaved";
    }
    if (key == "max_window_layers" || is_window(key)) return sees_no_less(key, held);
    return held.is_number() && same_number(key, held.as_number());
  }

  static bool is_window(std::string_view key) {
    return std::find(std::begin(kWindows), std::end(kWindows), key) != std::end(kWindows);
  }

  // A window as long as the longest text hides nothing, one that the file switches off is none,
  // and the class may have the same under its own name.
  bool sees_no_less(std::string_view key, const Json& held) const {
    const Json* used = view_.object().find("use_sliding_window");
    if (key == "max_window_layers") return !used || !truthy(*used);
    const auto longest = view_.value("max_position_embeddings");
    if (held.is_number() && longest && longest->value.is_number() &&
        held.as_number() >= longest->value.as_number())
      return true;
    if (used && !truthy(*used) && !cache_forgets(key)) return true;
    return std::any_of(layers_.begin(), layers_.end(), [&](const LayerSpec& layer) {
      const FieldValue* own = layer.field("window");
      return own && own->value == held;
    });
  }

  bool same_number(std::string_view key, double number) const {
    if (any_of({"theta", "rope_base", "rotary_base", "rope_freq_base", "rotary_emb_base",
                "rotary_embedding_base", "global_rope_theta", "local_rope_theta", "swa_rope_theta",
                "rope_local_base_freq"},
               key))
      return turns_by(number);
    if (any_of({"original_max_position_embeddings", "n_ctx"}, key)) {
      const auto longest = view_.value("max_position_embeddings");
      if (!longest || !longest->value.is_number())
        return key == "n_ctx";  // nothing counts a length
      return longest->value.as_number() == number;
    }
    const bool share = key.ends_with("fraction") || key.ends_with("pct") ||
                       key.ends_with("percent") || key.ends_with("percentage");
    if (share || key == "rotary_dim") return turns_width(number, share);
    return number == 1 && (any_of({"rope_ratio", "rope_scale", "no_rope_layer_interval"}, key) ||
                           key.ends_with("scaling_factor"));
  }

  bool turns_by(double theta) const {
    return std::any_of(layers_.begin(), layers_.end(), [&](const LayerSpec& layer) {
      const FieldValue* base = layer.rotary ? layer.field("base") : nullptr;
      return base && base->value.is_number() && base->value.as_number() == theta;
    });
  }
  // The width that turns is this number of channels, or this share of the head.
  bool turns_width(double number, bool share) const {
    return std::any_of(layers_.begin(), layers_.end(), [&](const LayerSpec& layer) {
      if (!layer.rotary) return false;
      const double head = share ? static_cast<double>(layer.rotary->head_dim) : 1;
      return head * number == static_cast<double>(layer.rotary->blocks.front().width());
    });
  }

  // DBRX's files state theta where its class stores it and its rotary does not look; other classes
  // have no such object.
  void theta_of_attention() const {
    const Json* inner = view_.object().find("attn_config");
    const Json* theta = inner && inner->is_object() ? inner->find("rope_theta") : nullptr;
    if (scheme() != "rope" || !theta || !theta->is_number() || turns_by(theta->as_number())) return;
    view_.report().warn(
        "key_ignored",
        "attn_config.rope_theta is " + shown(*theta) + ", and " + view_.class_name() +
            " turns by rope_parameters: a theta the model was trained with is "
            "lost",
        view_.where("attn_config") + "/rope_theta", "state rope_theta at the top level");
  }

  const ConfigView& view_;
  const std::vector<LayerSpec>& layers_;
};

}  // namespace

void unread_positions(const ConfigView& view, const std::vector<LayerSpec>& layers) {
  Unread(view, layers).find();
}

}  // namespace posenc::v0::hf
