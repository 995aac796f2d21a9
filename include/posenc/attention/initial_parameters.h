// SPDX-License-Identifier: Apache-2.0
// The parameters of a plan at their published initial values, for training from the start and for tests.
// Implementation: src/attention/plan/initial_parameters.cpp.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "posenc/attention/plan.h"

namespace posenc::inline v0 {

// Owns one array of f64 for each parameter, as `--start SEED` of the command line draws it: the same on
// every machine. named() is valid while the object lives, also after a move.
//   const InitialParameters learned(plan.parameters(), 1);
//   const LoweredAttention lowered = plan.lower(learned.named(), distances);
// Throws [initial]: a parameter with an impossible shape.
class InitialParameters {
 public:
  POSENC_API InitialParameters(std::vector<Parameter> parameters, std::uint64_t seed);
  InitialParameters(InitialParameters&&) noexcept = default;
  InitialParameters& operator=(InitialParameters&&) noexcept = default;
  InitialParameters(const InitialParameters&) = delete;  // named() points into this object
  InitialParameters& operator=(const InitialParameters&) = delete;

  std::span<const NamedArray> named() const noexcept { return named_; }

 private:
  std::vector<Parameter> parameters_;
  std::vector<std::vector<double>> values_;
  std::vector<NamedArray> named_;
};

}  // namespace posenc::v0
