// SPDX-License-Identifier: Apache-2.0
// Encodings at the input as the last calls lowered them: a step of training and its backward pass lower once.
#pragma once
#include <memory>
#include <vector>

#include "posenc/absolute/plan.h"
#include "posenc/registry.h"

namespace posenc::python {

// An encoding lowered with one set of parameters, and what their gradients need. It is not changed.
struct LoweredRows {
  // Throws what the scheme's lower, rescale and InputPlan throw.
  LoweredRows(Encoding, Context, DType, std::vector<std::vector<double>> values);
  LoweredRows(const LoweredRows&) = delete;
  std::vector<ConstTensorView> views() const;

  Encoding encoding;
  Context context;
  std::vector<Parameter> parameters;
  std::vector<std::vector<double>> values;  // of the parameters
  LoweredInput lowered;
  InputPlan plan;
};

// Lowered now, or by one of the last calls with an equal encoding, context and type, and with the
// same numbers bit by bit. The last 32 are kept, with at most 2^22 numbers of parameters together. From any thread.
std::shared_ptr<const LoweredRows> lowered_rows(Encoding, Context, DType,
                                                std::vector<std::vector<double>> values);

}  // namespace posenc::python
