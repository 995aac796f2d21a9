// SPDX-License-Identifier: Apache-2.0
// Tokens at the positions of several others: a region of an image has the mean of the rows of the words
// that it is aligned to. VisualBERT, arXiv:1908.03557, section 3.2:
//   row_i = mean over the entries j of alignment i of table[j];  no entry: zeros
#pragma once
#include "posenc/core/tensor_view.h"

namespace posenc::inline v0 {

// table [n, c] of any float; alignment [t, k] or [b, t, k] of i64 or i32, a negative entry is
// none; y [t, c] or [b, t, c] of the dtype of the table, in double, rounded once. Use the
// rows in an InputTerm or an embedding. Throws [aligned_rows]: shapes, dtypes, an
// entry without a row.
POSENC_API void aligned_rows(const ConstTensorView& table, const ConstTensorView& alignment,
                             const TensorView& y);
// Its transpose, ACCUMULATED into d_table [n, c] of any float.
POSENC_API void aligned_rows_gradient(const ConstTensorView& d_y, const ConstTensorView& alignment,
                                      const TensorView& d_table);

}  // namespace posenc::v0
