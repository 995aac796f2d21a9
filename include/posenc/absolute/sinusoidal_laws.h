// SPDX-License-Identifier: Apache-2.0
// Properties of sinusoids, as functions (Vaswani et al., arXiv:1706.03762, section 3.5).
#pragma once
#include <vector>

#include "posenc/absolute/sinusoidal.h"

namespace posenc::inline v0 {

// M with PE(p + k) = M PE(p) for every p, row-major [width, width]: block-diagonal in the pairs,
// (s, c) -> (s cos wk + c sin wk, c cos wk - s sin wk). Orthogonal on the channels of pairs,
// M_k M_l = M_(k+l), M_-k = M_k^T. Throws [shift_matrix]: pairs that are cut (odd=truncate) or
// wrapped (odd=marian).
POSENC_API std::vector<double> shift_matrix(const Sinusoidal&, double k);

// PE(p) . PE(p + distance) without the gain: the sum over the pairs of cos(w_m distance). It
// depends only on the distance and not on its sign; at 0 it is the number of pairs, the square of
// the norm sqrt(width / 2) that every position has. Throws [inner_product] as above.
POSENC_API double inner_product(const Sinusoidal&, double distance);

// Its approximation for 1 << |distance| << base: (width / 2) (1 - (ln |distance| + gamma) / ln
// base), gamma = 0.5772...; logarithmic, not 1 / distance. Throws [inner_product_law]: distance 0,
// base 1, another spacing than paper.
POSENC_API double inner_product_law(const Sinusoidal&, double distance);

}  // namespace posenc::v0
