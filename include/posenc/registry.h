// SPDX-License-Identifier: Apache-2.0
// Every scheme and every scaling, one line each; nothing else lists them.
#pragma once
#include <string>
#include <variant>
#include <vector>

#include "posenc/absolute/boxes.h"
#include "posenc/absolute/cape2d.h"
#include "posenc/absolute/complex_order.h"
#include "posenc/absolute/continuous_axial.h"
#include "posenc/absolute/convolutional.h"
#include "posenc/absolute/coordinates.h"
#include "posenc/absolute/crossmodal.h"
#include "posenc/absolute/distance_offset.h"
#include "posenc/absolute/fourier_features.h"
#include "posenc/absolute/hierarchy.h"
#include "posenc/absolute/learnable_fourier.h"
#include "posenc/absolute/learned.h"
#include "posenc/absolute/learned_axes.h"
#include "posenc/absolute/paragraph_offset.h"
#include "posenc/absolute/sinusoidal.h"
#include "posenc/absolute/sinusoidal_nd.h"
#include "posenc/core/describe.h"
#include "posenc/relative/alibi.h"
#include "posenc/relative/beit.h"
#include "posenc/relative/bros.h"
#include "posenc/relative/clipped.h"
#include "posenc/relative/conformer.h"
#include "posenc/relative/conformer_absolute_key.h"
#include "posenc/relative/cope.h"
#include "posenc/relative/cpmant.h"
#include "posenc/relative/dape.h"
#include "posenc/relative/deberta.h"
#include "posenc/relative/decomposed.h"
#include "posenc/relative/dynamic_position_bias.h"
#include "posenc/relative/enformer.h"
#include "posenc/relative/fire.h"
#include "posenc/relative/forgetting.h"
#include "posenc/relative/indexed.h"
#include "posenc/relative/irpe.h"
#include "posenc/relative/kerple.h"
#include "posenc/relative/layoutlm.h"
#include "posenc/relative/levit.h"
#include "posenc/relative/local_window.h"
#include "posenc/relative/longt5.h"
#include "posenc/relative/marian_alibi.h"
#include "posenc/relative/modality_pairs.h"
#include "posenc/relative/nope.h"
#include "posenc/relative/prophetnet.h"
#include "posenc/relative/relative_projection.h"
#include "posenc/relative/sandwich.h"
#include "posenc/relative/segatron_xl.h"
#include "posenc/relative/shaw.h"
#include "posenc/relative/stick_breaking.h"
#include "posenc/relative/swin.h"
#include "posenc/relative/swin_v2.h"
#include "posenc/relative/t5.h"
#include "posenc/relative/tener.h"
#include "posenc/relative/transformer_xl.h"
#include "posenc/relative/transformer_xl_learned.h"
#include "posenc/relative/tupe.h"
#include "posenc/relative/udop.h"
#include "posenc/relative/wavlm.h"
#include "posenc/relative/xlnet.h"
#include "posenc/rotary/axial.h"
#include "posenc/rotary/mixed_axes.h"
#include "posenc/rotary/mrope.h"
#include "posenc/rotary/pope_scheme.h"
#include "posenc/rotary/rope.h"
#include "posenc/rotary/xpos.h"
#include "posenc/scaling/dynamic.h"
#include "posenc/scaling/dynamic_linear.h"
#include "posenc/scaling/dynamic_longrope.h"
#include "posenc/scaling/dynamic_yarn.h"
#include "posenc/scaling/fope.h"
#include "posenc/scaling/frequencies.h"
#include "posenc/scaling/linear.h"
#include "posenc/scaling/llama3.h"
#include "posenc/scaling/longrope.h"
#include "posenc/scaling/mscale_logit.h"
#include "posenc/scaling/ntk.h"
#include "posenc/scaling/ntk_by_parts.h"
#include "posenc/scaling/proportional.h"
#include "posenc/scaling/qwen_dynamic.h"
#include "posenc/scaling/raised_base.h"
#include "posenc/scaling/yarn.h"

namespace posenc::inline v0 {

// clang-format off
using Scalings = TypeList<
    Linear,
    RaisedBase,
    Ntk,
    NtkByParts,
    Yarn,
    Llama3,
    LongRope,
    Proportional,
    Dynamic,
    QwenDynamic,
    DynamicLinear,
    DynamicYarn,
    DynamicNtkByParts,
    DynamicLongRope,
    Fope,
    Frequencies,
    Divisors,
    LearnedStretch,
    MscaleLogit
>;

using RotarySchemes = TypeList<
    Rope,
    Mrope,
    Axial,
    MixedAxes,
    Xpos
>;

// Phases without a rotation of pairs: scalings change its frequencies, and it has its own plan.
using PolarSchemes = TypeList<
    Pope
>;

using AbsoluteSchemes = TypeList<
    Sinusoidal,
    SinusoidalNd,
    FourierFeatures,
    LearnableFourier,
    ContinuousAxial,
    Coordinates,
    Cape2d,
    CrossModal,
    Learned,
    LearnedAxes,
    Boxes,
    Hierarchy,
    ParagraphOffset
>;

// At the input, but not a row that is composed with x: these have their own functions.
using InputModules = TypeList<
    ComplexOrder,
    Convolutional,
    DistanceOffset
>;

using RelativeSchemes = TypeList<
    Alibi,
    T5,
    TransformerXl,
    LocalWindow,
    Shaw,
    XlNet,
    Conformer,
    ConformerAbsoluteKey,
    TransformerXlLearned,
    Tener,
    Deberta,
    Cope,
    Forgetting,
    StickBreaking,
    RelativeProjection,
    Nope,
    SegatronXl,
    ProphetNet,
    Kerple,
    Sandwich,
    Fire,
    Clipped,
    Dape,
    Swin,
    SwinV2,
    Beit,
    Levit,
    Decomposed,
    Indexed,
    Tupe,
    Bros,
    ModalityPairs,
    LayoutLm,
    Udop,
    CpmAnt,
    WavLm,
    DynamicPositionBias,
    MarianAlibi,
    Irpe,
    Enformer,
    LongT5
>;
// clang-format on

using Schemes =
    Concat<RotarySchemes, PolarSchemes, AbsoluteSchemes, InputModules, RelativeSchemes>::type;

// One scaling of the registry, by value: a std::variant, whose copies are compiled once, in registry.cpp.
struct Scaling : Scalings::Variant {
  using Scalings::Variant::variant;
  POSENC_API Scaling() noexcept;
  POSENC_API Scaling(const Scaling&);
  POSENC_API Scaling(Scaling&&) noexcept;
  POSENC_API Scaling& operator=(const Scaling&);
  POSENC_API Scaling& operator=(Scaling&&) noexcept;
  POSENC_API ~Scaling();
  POSENC_API bool operator==(const Scaling&) const;
  POSENC_API Spectrum rescale(Spectrum, Context) const;
  POSENC_API const Card& card() const;
};

// One scheme of the registry, the same.
struct Scheme : Schemes::Variant {
  using Schemes::Variant::variant;
  POSENC_API Scheme() noexcept;
  POSENC_API Scheme(const Scheme&);
  POSENC_API Scheme(Scheme&&) noexcept;
  POSENC_API Scheme& operator=(const Scheme&);
  POSENC_API Scheme& operator=(Scheme&&) noexcept;
  POSENC_API ~Scheme();
  POSENC_API bool operator==(const Scheme&) const;
};

struct Encoding {
  Scheme scheme;
  std::vector<Scaling> scalings;
  bool operator==(const Encoding&) const = default;
};

// The SCHEME grammar: "rope head_dim=128 pairing=half_split + yarn factor=4 original_context=4096".
// ` + ` has a space on both sides, so 1e+5 stays a number; lists are [1.1,1.2]; @name reads a list from
// `arrays`; text with spaces is in double quotes; an optional field may be none.
// parse_encoding(to_text(e)) == e; to_text omits optional fields with their default.
// Throws std::invalid_argument("[scheme] ...") naming word, rule and value.
struct ArrayLookup;  // core/array_lookup.h
POSENC_API Encoding parse_encoding(std::string_view);
POSENC_API Encoding parse_encoding(std::string_view, const ArrayLookup& arrays);
POSENC_API std::string to_text(const Encoding&);
POSENC_API std::string to_text(const Scheme&);
POSENC_API std::string to_text(const Scaling&);
POSENC_API const Card& card(const Scheme&);

POSENC_API bool is_rotary(const Scheme&);
// Whether it acts in the score of attention, as terms (relative/scheme.h).
POSENC_API bool is_relative(const Scheme&);
// Throws [NAME] when the scheme is not rotary.
POSENC_API RotarySpec resolve(const Encoding&, Context = {});
// The frequencies of a scheme after its scalings: every rotary scheme, pope, sinusoidal. Throws
// [NAME] when the scheme has none.
POSENC_API Spectrum resolve_spectrum(const Encoding&, Context = {});
// Every phase of what a scheme at the input was lowered to, after the scalings of its encoding
// (position interpolation of a sinusoid and the like). Throws [encoding]: scalings without
// frequencies to change, or with a gain, which rows at the input do not have.
POSENC_API void rescale(LoweredInput&, const Encoding&, Context = {});

}  // namespace posenc::v0
