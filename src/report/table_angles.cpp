// SPDX-License-Identifier: Apache-2.0
// posenc table --what angles: position x frequency in rad.
#include <fmt/format.h>

#include <cmath>

#include "table_angles.h"

namespace posenc::report {
namespace {

__extension__ using U128 = unsigned __int128;

// Rounded once, to nearest, for positions of all 64 bits too: the whole product of the position and
// the 53 bits of the frequency fits 117 bits.
double product(Index position, double frequency) {
  int exponent = 0;
  const double fraction = std::frexp(frequency, &exponent);
  const auto bits = static_cast<std::uint64_t>(std::ldexp(std::abs(fraction), 53));
  const std::uint64_t size = position < 0 ? 0 - static_cast<std::uint64_t>(position)
                                          : static_cast<std::uint64_t>(position);
  const double rounded = std::ldexp(static_cast<double>(U128{size} * bits), exponent - 53);
  return (position < 0) == (frequency < 0) ? rounded : -rounded;
}

double product(double position, double frequency) {
  return position * frequency;
}

template <class T>
double angle(const Spectrum& s, const Positions& p, Index row, Index pair) {
  const T* at = static_cast<const T*>(p.data) + row / p.count * p.batch_stride +
                row % p.count * p.token_stride;
  double sum = 0;
  for (Index a = 0; a < s.axes; ++a)
    sum +=
        product(at[a * p.axis_stride], s.frequency[static_cast<std::size_t>(a * s.pairs() + pair)]);
  if (!std::isfinite(sum))
    throw InputError(
        fmt::format("the angle of pair {} at position {} is beyond what a double "
                    "holds",
                    pair, *at));
  return sum;
}

}  // namespace

Array angles(const Spectrum& s, const PositionList& list) {
  if (s.heads != 1) throw InputError("angles of a spectrum per head: write inv_freq instead");
  const Positions p = spread_over_axes(list, s.axes);
  const Index rows = p.batch * p.count;
  Array out = make_array(DType::f64, {rows, s.pairs()});
  double* to = reinterpret_cast<double*>(out.bytes.data());
  for (Index r = 0; r < rows; ++r)
    for (Index i = 0; i < s.pairs(); ++i)
      *to++ = p.type == DType::i64 ? angle<Index>(s, p, r, i) : angle<double>(s, p, r, i);
  return out;
}

}  // namespace posenc::report
