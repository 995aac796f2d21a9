// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "posenc/core/error.h"
#include "posenc/model/spec.h"

namespace posenc {

// transformers 5.23: modeling_llama4 (token counts from 1), modeling_ministral3 (from 0); log-n of
// Qwen-1: max(1, ln(p + 1) / ln(period)).
double query_factor(const QueryTemperature& t, double position) {
  if (!(t.period >= 1)) refuse("query_temperature", "period must be positive", t.period);
  const double period = static_cast<double>(t.period);
  switch (t.form) {
    case TemperatureForm::llama4:
      return 1 + t.beta * std::log1p(std::floor((position + 1) / period));
    case TemperatureForm::ministral:
      return 1 + t.beta * std::log1p(std::floor(position / period));
    case TemperatureForm::log_n:
      if (t.period < 2) refuse("query_temperature", "period of log_n must be above 1", t.period);
      return std::max(1.0, std::log(position + 1) / std::log(period));
  }
  refuse("query_temperature", "unknown form");
}

}  // namespace posenc
