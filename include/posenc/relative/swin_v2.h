// SPDX-License-Identifier: Apache-2.0
// Cosine attention with a continuous bias. Swin V2, Liu et al., arXiv:2111.09883, equations 2 and 3:
//   S_ij = exp(min(logit_scale_h, ln 100)) cos(q_i, k_j) + 16 sigmoid(MLP(dy', dx'))_h
//   d' = sign(d) log2(1 + |8 d / (size - 1)|) / 3, size: of the window, or of the one it was
//   trained with; MLP(c) = w2 relu(w1 c + b1). A window of size 1 has d' = 0.
// form = cr (timm's Swin V2 CR): d' = sign(d) ln(1 + |d|), MLP(c) = w2 relu(w1 c + b1) + b2 without
// sigmoid, logit_scale [heads]. cosine = false: only the bias (timm's RelPosMlp). class_token:
// tokens that query_class and key_class mark have no bias.
#pragma once
#include "posenc/relative/scheme.h"

namespace posenc::inline v0 {

enum class SwinV2Form : std::uint8_t { swin, cr };
template <>
struct EnumNames<SwinV2Form> {
  static constexpr std::array<std::string_view, 2> value{"swin", "cr"};
};

struct SwinV2 {
  static constexpr Card card{"swin_v2", "cosine attention, bias of log-spaced offsets",
                             "arXiv:2111.09883", "eq. 2, 3"};
  Index height = 8, width = 8;
  Index pretrained_height = 0, pretrained_width = 0;
  Index hidden = 512;
  SwinV2Form form = SwinV2Form::swin;
  bool cosine = true, class_token = false;

  Index rows() const noexcept { return (2 * height - 1) * (2 * width - 1); }
  // d' of the rows of the table, [rows, 2].
  POSENC_API std::vector<double> coordinates() const;

  // logit_scale [heads, 1, 1] (ln 10), w1 [hidden, 2], b1 [hidden], w2 [heads, hidden], of cr
  // b2 [heads].
  POSENC_API std::vector<Parameter> parameters(const ScoreShape& s) const;
  POSENC_API std::vector<Input> inputs(const ScoreShape& s) const;
  POSENC_API void lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                        LoweredTerms& out) const;
  POSENC_API void bind(const ScoreShape& s, std::span<const ConstTensorView> p,
                       const CallData& call, std::span<Term> terms, TermStore& store) const;
  POSENC_API void pull_back(const ScoreShape& s, std::span<const ConstTensorView> p,
                            const CallData&, const LoweredGradient& g,
                            std::span<const TensorView> dp,
                            std::span<const TensorView> d_inputs) const;

  bool operator==(const SwinV2&) const = default;
  template <class S, class V>
  static constexpr void describe(S& s, V&& v) {
    v("height", s.height, Field{.doc = "rows of the window", .min = 1, .max = 4096});
    v("width", s.width, Field{.doc = "columns of the window", .min = 1, .max = 4096});
    v("pretrained_height", s.pretrained_height,
      Field{.doc = "rows of the window in training, 0 = height",
            .min = 0,
            .max = 4096,
            .from = "height"});
    v("pretrained_width", s.pretrained_width,
      Field{.doc = "columns of the window in training, 0 = width",
            .min = 0,
            .max = 4096,
            .from = "width"});
    v("hidden", s.hidden, Field{.doc = "units of the MLP", .min = 1, .max = 65536});
    v("form", s.form, Field{.doc = "coordinates and MLP of Swin V2 or of Swin V2 CR"});
    v("cosine", s.cosine, Field{.doc = "cosine of q and k times the learned scale"});
    v("class_token", s.class_token, Field{.doc = "inputs mark class tokens, which have no bias"});
  }

 private:
  struct Layers;
  void check_fields(const ScoreShape& s) const;
};

}  // namespace posenc::v0
