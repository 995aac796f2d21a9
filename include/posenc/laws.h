// SPDX-License-Identifier: Apache-2.0
// Laws of position encodings over lengths, as functions: which pairs complete a rotation, which base a
// length needs, how far a bias and a stack of windows reach, and up to which length a scheme computes
// nothing that it did not compute in training. docs/laws.md compares them with papers and with the lab.
#pragma once
#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "posenc/model/attention_spec.h"
#include "posenc/registry.h"

namespace posenc::inline v0 {

// A pair of frequency w makes length |w| / 2 pi rotations over `length` positions. Frequencies of several
// axes are added: a token of text has the same position on each axis.
struct PairTurns {
  Index head = 0, pair = 0;
  double frequency = 0;  // rad per position
  double turns = 0;
  bool is_complete() const noexcept { return turns >= 1; }
  bool is_still() const noexcept { return frequency == 0; }
};
// In the order of the spectrum. Throws [law]: length not positive.
POSENC_API std::vector<PairTurns> turns_over(const Spectrum&, Index length);

// The scaling laws of RoPE, arXiv:2310.05209 (Liu et al., ICLR 2024). `width` channels rotate by
// base^(-2i/width), and the model was trained on `trained` tokens. All throw [law]: base not above 1, width
// not positive and even, a length not above 2 pi.
//
// Critical dimension: the channels of pairs that complete a rotation in training,
//   2 ceil(width / 2 log_base(trained / 2 pi)),   at most width
POSENC_API Index critical_dimension(double base, Index width, double trained);
// Larger bases: the length over which the first pair beyond the critical dimension completes one rotation of
// another base,
//   2 pi base^(dimension / width)
// None if the dimension is the width: every pair has shown all its angles.
POSENC_API std::optional<double> longest_of_base(double base, Index width, Index dimension);
// Its inverse, the least base for a length: (length / 2 pi)^(width / dimension). Throws [law]: dimension
// outside (0, width].
POSENC_API double least_base_of(double length, Index width, Index dimension);
// The same without rounding the dimension up: the critical base of fine-tuning on `tuned` tokens,
//   base^(log_(trained / 2 pi)(tuned / 2 pi))
POSENC_API double critical_base(double base, double trained, double tuned);
// The critical dimension after fine-tuning on `tuned` tokens with another base: that of the new base and
// length, but not less than that of the first training.
POSENC_API Index tuned_dimension(Index dimension, double base, Index width, double tuned);
// Smaller bases: with 2 T / pi, T / pi and T / 2 pi every pair goes through a quarter, a half and a whole
// rotation within the T tokens of fine-tuning.
POSENC_API std::array<double, 3> smaller_bases(double tuned);

// The base bounds the context, arXiv:2405.14591 (Xu, Men et al., NeurIPS 2024). For random vectors q and k and
// k* close to q, E[q R(m) k*] - E[q R(m) k] is proportional to
//   B(m) = sum over the pairs of cos(m w_i)
// A negative sum means that a similar token gets less attention at distance m than a random one.
// Channels that do not rotate add 1 for each two of them.
POSENC_API double similarity(const RotarySpec&, double distance);
// The least whole distance with a negative sum, of any head and of all blocks together, up to `most`;
// none: there is none. Throws [law]: most above 2^20.
POSENC_API std::optional<Index> first_negative(const RotarySpec&, Index most);
// The greatest lower bound of the bases b with B(m) >= 0 for m = 0 .. length - 1, in relative steps of at
// most 1e-6: from b the search goes to the next base at which the sum that is negative at b can become 0, by
// the derivative of the sum. The bases above it are not all valid, since B is not monotone in b.
// still: pairs that do not rotate. Throws [law]: length above 2^20, width below 4 or
// above 4096.
POSENC_API double least_base(Index width, Index length, Index still = 0);

// The bias of a scheme by distance, query - key: [heads, distances], row-major.
using BiasByDistance = std::function<std::vector<double>(std::span<const Index> distances)>;
// The least distance at which the factor exp(bias(d) - bias(0)) of a key's weight is at most `share`, among
// keys before the query and after it. None: not within 2^40. Every distance up to 4096 is compared; beyond,
// the bias is taken as monotone between powers of two.
struct BiasReach {
  std::optional<Index> past, future;
};
POSENC_API std::vector<BiasReach> bias_reach(const BiasByDistance&, Index heads, double share);

// What the last of several layers sees through all of them. Each layer with a window adds it: L layers that
// see `left` keys before the query's own reach L left positions back. Layers of the same chunks that follow each
// other count once, since their chunks end at the same places. None: unbounded.
struct ReceptiveField {
  std::optional<Index> back, ahead;
};
POSENC_API ReceptiveField receptive_field(std::span<const AttentionSpec> layers);

// Up to which length a scheme computes nothing that it did not compute while it was trained on `trained`
// tokens, positions 0 .. trained - 1.
//   angles    frequencies: pairs that completed no rotation reach an angle that did not occur. Scalings of the
//             encoding act after training, so they move that length
//   rows      a table by position or by distance: the next row was not trained
//   inputs    a learned function of the distance or the position: the next one did not occur
//   none      nothing new: all rows and angles occurred, or the bias is a fixed function of the distance
enum class Unseen : std::uint8_t { angles, rows, inputs, none };
template <>
struct EnumNames<Unseen> {
  static constexpr std::array<std::string_view, 4> value{"angles", "rows", "inputs", "none"};
};
struct TrainedRange {
  Unseen unseen = Unseen::none;
  std::optional<Index> longest;  // tokens; none: no end
  std::string reason;            // one sentence
};
// Relative sinusoids of both sides (xlnet, tener, conformer) show 2 trained - 1 distances; those of
// transformer_xl, keys before the query. head_dim: for tener, whose sinusoid has the width of a head.
// Throws [law]: trained or head_dim not positive; a scheme for which no rule is known.
POSENC_API TrainedRange trained_range(const Encoding&, Index trained, Context = {},
                                      Index head_dim = 64);

}  // namespace posenc::v0
