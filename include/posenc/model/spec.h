// SPDX-License-Identifier: Apache-2.0
// What a model's files state about positions, layer by layer, each value with its origin.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "posenc/model/attention_spec.h"
#include "posenc/model/finding.h"
#include "posenc/registry.h"

namespace posenc::inline v0 {

// Multiplies q by a function of the position (reference forms):
//   llama4      1 + beta * ln(1 + floor((p + 1) / period))
//   ministral   1 + beta * ln(1 + floor(p / period))
//   log_n       max(1, ln(p + 1) / ln(period))
//   log_floor   1 + beta * ln(max(1, (p + 1) / period))                         Inkling
enum class TemperatureForm : std::uint8_t { llama4, ministral, log_n, log_floor };
template <>
struct EnumNames<TemperatureForm> {
  static constexpr std::array<std::string_view, 4> value{"llama4", "ministral", "log_n",
                                                         "log_floor"};
};
// Which number of a query is p: its position, as the caller of the model passes it (position_ids), or its
// order, its index in the sequence including cached tokens and padding.
enum class TemperatureIndex : std::uint8_t { position, order };
template <>
struct EnumNames<TemperatureIndex> {
  static constexpr std::array<std::string_view, 2> value{"position", "order"};
};
struct QueryTemperature {
  TemperatureForm form = TemperatureForm::llama4;
  double beta = 0;
  Index period = 0;
  TemperatureIndex by = TemperatureIndex::position;
  bool operator==(const QueryTemperature&) const = default;
};
// The factor on q where p is `position`, regardless of `by`.
POSENC_API double query_factor(const QueryTemperature&, double position);

// How a layer normalises q and k before their product; `over` defines x:
//   rms          x / sqrt(mean(x^2) + eps)
//   layer_norm   (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps)
//   l2           x / max(|x|, eps)
//   l2_clip      x min(1, threshold / (|x| + eps))
enum class NormKind : std::uint8_t { rms, layer_norm, l2, l2_clip };
template <>
struct EnumNames<NormKind> {
  static constexpr std::array<std::string_view, 4> value{"rms", "layer_norm", "l2", "l2_clip"};
};
// One head, all heads of q (or of k) at once, the rotated channels of one head.
enum class NormSpan : std::uint8_t { head, all_heads, rotated };
template <>
struct EnumNames<NormSpan> {
  static constexpr std::array<std::string_view, 3> value{"head", "all_heads", "rotated"};
};
// Weights that multiply the result: none, one vector as wide as x, one for each head, one for k and
// none for q.
enum class NormWeights : std::uint8_t { none, shared, each_head, keys };
template <>
struct EnumNames<NormWeights> {
  static constexpr std::array<std::string_view, 4> value{"none", "shared", "each_head", "keys"};
};
struct QkNorm {
  NormKind kind = NormKind::rms;
  NormSpan over = NormSpan::head;
  NormWeights weights = NormWeights::shared;
  bool after_rotation = false;
  bool keys_only = false;
  bool plus_one = false;      // multiplies by 1 + weight
  std::optional<double> eps;  // none: not known
  double threshold = 0;       // of l2_clip
  std::string eps_key, note;  // the key of the file that holds it; what else belongs to it
  bool operator==(const QkNorm&) const = default;
};

// The default position of a token in a program: its index in the sequence, including padding; how many tokens
// before it the mask shows; how many before it are not padding.
enum class PositionRule : std::uint8_t { arange, mask, tokens };
template <>
struct EnumNames<PositionRule> {
  static constexpr std::array<std::string_view, 3> value{"arange", "mask", "tokens"};
};
// The coordinates (row, column) of the cell in row r and column c of an image:
//   index     r, c
//   from_one  r + 1, c + 1                                                     Pix2Struct
//   counted   2 pi (r + 1) / (rows + 1e-6), 2 pi (c + 1) / (columns + 1e-6)    DETR, no padding
//   centred   2 pi (r + 1/2) / (rows + 1e-6), columns likewise                 Deformable DETR
enum class CellCoordinates : std::uint8_t { index, from_one, counted, centred };
template <>
struct EnumNames<CellCoordinates> {
  static constexpr std::array<std::string_view, 4> value{"index", "from_one", "counted", "centred"};
};
struct ImageGrid {
  Index rows = 0, columns = 0;  // 0: the grid is that of each image
  CellCoordinates coordinates = CellCoordinates::index;
  bool of_model() const { return rows > 0; }
};
// What acts at the embedding: the scheme, and what its program knows besides.
struct InputEncoding : Sourced<Encoding> {
  // The tensors of the scheme's parameters, in its order: names, or endings of names (after a dot). The
  // same name several times: one tensor contains them one after the other. For a sinusoid: the table that
  // some checkpoints store. Empty: none.
  std::vector<std::string> tensors{};
  PositionRule counts = PositionRule::arange;
  std::optional<Index> positions{};     // 0 .. positions - 1 have a row; none: no end
  std::optional<Index> padding_row{};   // of the table: what padding reads, never trained
  std::optional<Index> image_prefix{};  // rows of an image: class tokens, then a square of patches
  // Of a scheme with an axis for rows and one for columns: what cells() of posenc/model/cells.h
  // needs to make its positions.
  std::optional<ImageGrid> grid{};
  std::string rows_key{};  // the key that counts the rows, where one does
};

// The rotary encoding of a layer, or none; used like a std::optional<const RotarySpec>. Copies share
// memory, so equal layers need the memory of one.
class SharedRotary {
 public:
  SharedRotary() = default;
  POSENC_API SharedRotary(RotarySpec);
  bool has_value() const noexcept { return bool{spec_}; }
  explicit operator bool() const noexcept { return has_value(); }
  const RotarySpec& operator*() const noexcept { return *spec_; }
  const RotarySpec* operator->() const noexcept { return spec_.get(); }
  POSENC_API bool operator==(const SharedRotary&) const;

 private:
  std::shared_ptr<const RotarySpec> spec_;
};

// What acts on q, k or the score of a layer.
struct LayerEncoding : Sourced<Encoding> {
  // The tensors of its parameters: name of the parameter, name of the tensor or its ending (after a dot).
  std::vector<std::pair<std::string, std::string>> tensors{};
};

// The factor of q.k: factor * head_dim^power.
struct ContentScale {
  double factor = 1, power = -0.5;
  // Exact for head_dim^-1/2 as others write it, 1 / sqrt(head_dim).
  POSENC_API double at(Index head_dim) const;
  bool operator==(const ContentScale&) const = default;
};

// What multiplies channel c of q after its projection: factor / sqrt(head_dim) ln(1 + exp(t_c)), t
// the values of the tensor. The score terms that read q read it so.
struct ChannelScale {
  std::string tensor;
  double factor = 1;
  bool operator==(const ChannelScale&) const = default;
};

// LayerSpec::scheme where positions act neither on q and k nor in the score.
inline constexpr std::string_view kNoScheme = "none";

struct LayerSpec {
  Index index = 0;
  AttentionSpec attention;
  // What acts on q, k or the score, by its name in the registry: rope, alibi, t5 ...
  std::string scheme{kNoScheme};
  bool has_scheme() const { return scheme != kNoScheme; }
  std::vector<LayerEncoding> encodings;
  SharedRotary rotary;  // resolved for the requested context
  // value or attention output rotated too (RoFormer's and CLVP's v, DeepSeek-V4's output by -p)
  bool rotates_value = false, unrotates_output = false;
  std::optional<QueryTemperature> query_temperature;
  std::optional<QkNorm> qk_norm;            // none: not normalised, or not known
  std::optional<ChannelScale> query_scale;  // beside `scale`
  // Besides RotarySpec::logit_factor; none: not known.
  std::optional<ContentScale> scale;
  std::optional<double> softcap;     // scores become c tanh(score / c); none: none
  bool softcap_after_terms = false;  // it caps q.k with the score terms; false: only q.k
  std::string
      sinks;  // tensor of a learned score for each head besides those of the keys; empty: none
  // Tensor [heads, width] that projects such a score from the hidden state, for each head and query.
  std::string query_sinks;
  // Queries are at every so many-th row and column of the keys' grid, from the first (LeViT).
  Index query_step = 1;
  // Channels of keys that one token leaves in the cache of this layer, over all key heads (the
  // latent and the rotated part of multi-head latent attention); none: no cache, or not known.
  std::optional<Sourced<Index>> cached_key_channels;
  std::vector<FieldValue> fields;
  const FieldValue* field(std::string_view name) const;
};

// What an engine must do for a layer besides rotating q and k by `rotary`.
struct Requirement {
  // valid_range, qk_norm, rotates_value, query_temperature, logit_factor, query_scale, scale,
  // softcap, sinks, query_sinks, score_term, query_step, window, mask_by_token_type,
  // unrotates_output
  std::string what;
  Json value;
  std::string text;  // one line for a person: what to do
};
// In the order of a layer's computation; empty: the rotation is enough.
POSENC_API std::vector<Requirement> must_honour(const LayerSpec&);

// Adds fields for the values of `rotary` and `attention` that have none yet: those that the definition
// derives from the stated ones (inv_freq, axes, the factors), and those that are 0.
POSENC_API void complete_fields(LayerSpec&);

struct Tower {
  std::string name;  // vision, audio, decoder
  std::vector<LayerSpec> layers;
  std::vector<InputEncoding> input{};  // what acts at its embedding
};

struct ModelSpec {
  std::string file, model_type, reader;  // reader: transformers | llama_cpp
  // The folder of the config, or the GGUF file, which may contain weights. Empty: read from a pipe.
  std::string weights;
  Sourced<Index> context;
  std::optional<Index> trained_context;
  // The longest text that the file states (max_position_embeddings), regardless of the requested context.
  std::optional<Index> stated_context;
  Sourced<Index> cache_element_bytes{2, Origin::derived, "no dtype is stated: 16 bit taken"};
  std::vector<InputEncoding> input;  // what acts at the embedding
  std::vector<LayerSpec> layers;
  std::vector<Tower> towers;
  std::vector<Finding> findings;
  bool has_error() const;
  // The rotary encoding of a layer, resolved for `context`. Throws ModelError where the model has
  // errors, no such layer, or another encoding there.
  POSENC_API const RotarySpec& rotary(Index layer = 0) const;
};

}  // namespace posenc::v0
