// SPDX-License-Identifier: Apache-2.0
// Cosine and sine of position x frequency by MPFR: shares nothing with the library.
#pragma once
#include <mpfr.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace posenc::test {

class Angle {
 public:
  Angle() {
    mpfr_inits2(400, angle_, term_, static_cast<mpfr_ptr>(nullptr));
    mpfr_inits2(160, sine_, cosine_, static_cast<mpfr_ptr>(nullptr));
  }
  ~Angle() { mpfr_clears(angle_, term_, sine_, cosine_, static_cast<mpfr_ptr>(nullptr)); }
  Angle(const Angle&) = delete;
  Angle& operator=(const Angle&) = delete;

  void clear() { mpfr_set_zero(angle_, 1); }
  void add(std::int64_t position, double frequency) {
    mpfr_set_d(term_, frequency, MPFR_RNDN);
    mpfr_mul_si(term_, term_, position, MPFR_RNDN);
    mpfr_add(angle_, angle_, term_, MPFR_RNDN);
  }
  void add(double position, double frequency) {
    mpfr_set_d(term_, frequency, MPFR_RNDN);
    mpfr_mul_d(term_, term_, position, MPFR_RNDN);
    mpfr_add(angle_, angle_, term_, MPFR_RNDN);
  }
  void done() { mpfr_sin_cos(sine_, cosine_, angle_, MPFR_RNDN); }
  // got - gain * cos, with the difference formed before anything is rounded.
  double cos_error(double got, double gain) { return error(cosine_, got, gain); }
  double sin_error(double got, double gain) { return error(sine_, got, gain); }
  double cos() const { return mpfr_get_d(cosine_, MPFR_RNDN); }
  double sin() const { return mpfr_get_d(sine_, MPFR_RNDN); }

 private:
  double error(mpfr_t exact, double got, double gain) {
    mpfr_mul_d(term_, exact, gain, MPFR_RNDN);
    mpfr_d_sub(term_, got, term_, MPFR_RNDN);
    return std::fabs(mpfr_get_d(term_, MPFR_RNDN));
  }
  mpfr_t angle_, term_, sine_, cosine_;
};

}  // namespace posenc::test
