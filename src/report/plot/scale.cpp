// SPDX-License-Identifier: Apache-2.0
#include "scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace posenc::report {

Scale::Scale(const Axis& axis, double low, double high, double from, double to)
    : log_(axis.logarithmic),
      whole_(axis.whole),
      low_(axis.min.value_or(low)),
      high_(axis.max.value_or(high)),
      from_(from),
      to_(to) {
  if (log_) {
    low_ = std::max(low_, 1e-300);
    high_ = std::max(high_, low_);
    if (!axis.min) low_ = std::pow(10.0, std::floor(std::log10(low_) + 1e-9));
    if (!axis.max) high_ = std::pow(10.0, std::ceil(std::log10(high_) - 1e-9));
    if (high_ <= low_) high_ = low_ * 10;
  } else {
    if (high_ <= low_) high_ = low_ + 1;
    const double margin = 0.03 * (high_ - low_);
    if (!axis.min && low_ != 0) low_ -= margin;
    if (!axis.max) high_ += margin;
  }
}

double Scale::operator()(double v) const {
  const double f = log_ ? (std::log10(std::max(v, low_ * 1e-3)) - std::log10(low_)) /
                              (std::log10(high_) - std::log10(low_))
                        : (v - low_) / (high_ - low_);
  return from_ + f * (to_ - from_);
}

std::vector<double> Scale::ticks() const {
  std::vector<double> t;
  if (log_) {
    const int first = static_cast<int>(std::ceil(std::log10(low_) - 1e-9));
    const int last = static_cast<int>(std::floor(std::log10(high_) + 1e-9));
    const int step = std::max(1, (last - first) / 8);
    for (int e = first; e <= last; e += step) t.push_back(std::pow(10.0, e));
    return t;
  }
  const double raw = (high_ - low_) / 6, power = std::pow(10.0, std::floor(std::log10(raw)));
  const double m = raw / power;
  double step = power * (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10);
  if (whole_) step = std::max(1.0, step);
  for (double v = std::ceil(low_ / step - 1e-9) * step; v <= high_ + 1e-9 * step; v += step)
    t.push_back(std::abs(v) < 1e-12 * step ? 0 : v);
  return t;
}

std::string Scale::tick_text(double v) const {
  if (log_) {
    const double e = std::round(std::log10(v));
    if (e >= 0 && e <= 3) return fmt::format("{:g}", v);
    if (e >= 6 && e <= 8) return fmt::format("{:g}M", v / 1e6);
    if (e == 4 || e == 5) return fmt::format("{:g}k", v / 1000);
    return fmt::format("1e{:g}", e);
  }
  const double a = std::abs(v);
  if (a >= 1e6) return fmt::format("{:g}M", v / 1e6);
  if (a >= 1e4) return fmt::format("{:g}k", v / 1e3);
  return fmt::format("{:.6g}", v);
}

}  // namespace posenc::report
