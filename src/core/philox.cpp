// SPDX-License-Identifier: Apache-2.0
#include "posenc/core/philox.h"

#include <cmath>
#include <limits>

namespace posenc::inline v0 {
namespace {

// ln x = e ln 2 + 2 atanh((m - 1) / (m + 1)), m in [1/sqrt 2, sqrt 2): the series' 12th term is
// below 2^-60. The system's logarithm may differ in the last bit from machine to machine.
double portable_log(double x) {
  int e = 0;
  double m = std::frexp(x, &e);
  if (m < 0.70710678118654752) m *= 2, --e;
  const double s = (m - 1) / (m + 1), z = s * s;
  double sum = 0;
  for (int k = 12; k >= 1; --k) sum = (sum + 1.0 / (2 * k + 1)) * z;
  const double ln2_high = 0x1.62e42fefa38p-1, ln2_low = 0x1.ef35793c7673p-45;
  return e * ln2_high + (e * ln2_low + (2 * s + 2 * s * sum));
}

double polynomial(const double (&c)[8], double x) {
  double sum = c[7];
  for (int k = 6; k >= 0; --k) sum = sum * x + c[k];
  return sum;
}

// Numerators and denominators of AS 241.
constexpr double kA[] = {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
                         1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
                         3.3430575583588128105e4, 2.5090809287301226727e3};
constexpr double kB[] = {1.0,
                         4.2313330701600911252e1,
                         6.8718700749205790830e2,
                         5.3941960214247511077e3,
                         2.1213794301586595867e4,
                         3.9307895800092710610e4,
                         2.8729085735721942674e4,
                         5.2264952788528545610e3};
constexpr double kC[] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                         5.76949722146069140550e0,  3.64784832476320460504e0,
                         1.27045825245236838258e0,  2.41780725177450611770e-1,
                         2.27238449892691845833e-2, 7.74545014278341407640e-4};
constexpr double kD[] = {1.0,
                         2.05319162663775882187e0,
                         1.67638483018380384940e0,
                         6.89767334985100004550e-1,
                         1.48103976427480074590e-1,
                         1.51986665636164571966e-2,
                         5.47593808499534494600e-4,
                         1.05075007164441684324e-9};
constexpr double kE[] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                         1.78482653991729133580e0,  2.96560571828504891230e-1,
                         2.65321895265761230930e-2, 1.24266094738807843860e-3,
                         2.71155556874348757815e-5, 2.01033439929228813265e-7};
constexpr double kF[] = {1.0,
                         5.99832206555887937690e-1,
                         1.36929880922735805310e-1,
                         1.48753612908506148525e-2,
                         7.86869131145613259100e-4,
                         1.84631831751005468180e-5,
                         1.42151175831644588870e-7,
                         2.04426310338993978564e-15};

}  // namespace

double normal_quantile(double p) noexcept {
  if (!(p > 0 && p < 1)) return std::numeric_limits<double>::quiet_NaN();
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * polynomial(kA, r) / polynomial(kB, r);
  }
  double r = std::sqrt(-portable_log(q < 0 ? p : 1 - p));
  const double x = r <= 5 ? (r -= 1.6, polynomial(kC, r) / polynomial(kD, r))
                          : (r -= 5, polynomial(kE, r) / polynomial(kF, r));
  return q < 0 ? -x : x;
}

double Draws::normal(std::uint64_t index) const noexcept {
  // The middle of one of 2^52 equal parts of (0, 1): never an end.
  return normal_quantile((static_cast<double>(bits(index) >> 12) + 0.5) * 0x1p-52);
}

double Draws::truncated_normal(std::uint64_t index) const noexcept {
  for (std::uint32_t attempt = 0;; ++attempt) {
    const double x =
        normal_quantile((static_cast<double>(bits(index, attempt) >> 12) + 0.5) * 0x1p-52);
    if (std::fabs(x) <= 2) return x;
  }
}

// The high half of bits x n; the few products that would favour some values are drawn again.
std::uint64_t Draws::below(std::uint64_t index, std::uint64_t n) const noexcept {
  if (n == 0) return 0;
  const std::uint64_t unfair = (0 - n) % n;
  for (std::uint32_t attempt = 0;; ++attempt) {
    const std::uint64_t x = bits(index, attempt);
    // 64 x 64 -> 128 bits by halves, which every compiler has.
    const std::uint64_t x0 = x & 0xffffffffU, x1 = x >> 32, n0 = n & 0xffffffffU, n1 = n >> 32;
    const std::uint64_t low = x0 * n0, middle = x1 * n0 + (low >> 32);
    const std::uint64_t other = x0 * n1 + (middle & 0xffffffffU);
    const std::uint64_t product_low = other << 32 | (low & 0xffffffffU);
    if (product_low >= unfair) return x1 * n1 + (middle >> 32) + (other >> 32);
  }
}

}  // namespace posenc::v0
