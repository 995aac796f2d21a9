// SPDX-License-Identifier: Apache-2.0
// The compatibility precisions against the numbers of the programs themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <string>

#include "core/convert.h"
#include "posenc/io/json.h"
#include "posenc/phase.h"
#include "rotary/compat.h"
#include "support/suite.h"

namespace posenc {
namespace {

const std::string kConformance = std::string(POSENC_SOURCE_DIR) + "/conformance/";

Json cases_of(const std::string& suite) {
  return read_json(kConformance + suite + "/cases.json").at("cases");
}

std::vector<Index> axes_of_pairs(const std::string& mode, const Json& sections, Index pairs) {
  std::vector<Index> axis(static_cast<std::size_t>(pairs), 0);
  if (mode == "NORMAL" || mode == "NEOX") return axis;
  Index n[4], total = 0;
  for (std::size_t i = 0; i < 4; ++i) total += n[i] = sections.as_array()[i].as_integer();
  for (Index i = 0; i < pairs; ++i) {
    const Index k = i % total;
    Index a = k < n[0] ? 0 : k < n[0] + n[1] ? 1 : k < n[0] + n[1] + n[2] ? 2 : 3;
    if (mode ==
        "IMROPE")  // ggml.h: sections in turn while they last, the rest by the fourth stream
      a = k % 3 == 1 && k < 3 * n[1]   ? 1
          : k % 3 == 2 && k < 3 * n[2] ? 2
          : k % 3 == 0 && k < 3 * n[0] ? 0
                                       : 3;
    axis[static_cast<std::size_t>(i)] = a;
  }
  return axis;
}

// The frequencies say only which axis turns a pair: the angle is the form's.
Spectrum ggml_spectrum(const Json& p, const std::vector<double>& factors) {
  const std::string mode = p.at("mode").as_string();
  GgmlForm g;
  g.base = p.at("freq_base").as_number();
  g.n_dims = p.at("n_dims").as_integer();
  g.freq_scale = p.at("freq_scale").as_number();
  g.ext_factor = p.at("ext_factor").as_number();
  g.attn_factor = p.at("attn_factor").as_number();
  g.beta_fast = p.at("beta_fast").as_number(), g.beta_slow = p.at("beta_slow").as_number();
  g.original_context = p.at("n_ctx_orig").as_integer();
  g.factors = factors;
  const Index pairs = mode == "VISION" ? g.n_dims : g.n_dims / 2;
  if (mode == "VISION") g.restart = {p.at("sections").as_array()[0].as_integer()};
  Spectrum s;
  const auto axis = axes_of_pairs(mode, p.at("sections"), pairs);
  s.axes = mode == "NORMAL" || mode == "NEOX" ? 1 : 4;
  s.frequency.assign(static_cast<std::size_t>(s.axes * pairs), 0.0);
  for (Index i = 0; i < pairs; ++i)
    s.frequency[static_cast<std::size_t>(axis[static_cast<std::size_t>(i)] * pairs + i)] =
        std::pow(g.base, -2.0 * static_cast<double>(i) / static_cast<double>(g.n_dims));
  s.ggml = g;
  return s;
}

struct Turned {
  double worst = 0, phase = 0;  // of what was turned; of cos and sin
  Index elements = 0;
};

// How far cosine and sine are from those that turned x into y; 0 for small x, whose y says little.
double phase_error(std::complex<double> x, std::complex<double> y, std::complex<double> ours) {
  if (std::norm(x) <= 1) return 0;
  const std::complex<double> off = y / x - ours;
  return std::max(std::fabs(off.real()), std::fabs(off.imag()));
}

// Turns x by the precision's cosines in float32 and compares with the peer's result.
Turned compare(const Json& p, const Spectrum& s, const support::SuiteArray& x,
               const support::SuiteArray& positions, const support::SuiteArray& want, bool back) {
  const Index tokens = x.dim(0), heads = x.dim(1), dim = x.dim(2), pairs = s.pairs();
  const Index offset = p.at("n_offs").as_integer();
  const bool interleaved = p.at("mode").as_string() == "NORMAL";
  const bool half = x.dtype == "F16";
  std::vector<float> c(static_cast<std::size_t>(pairs)), d(c.size());
  Turned r;
  const auto at = [](const support::SuiteArray& a, Index i) {
    return static_cast<float>(a.value[static_cast<std::size_t>(i)]);
  };
  const auto check = [&](float got, Index i) {
    if (half) got = f32_from_f16(f16_from(got));
    r.worst = std::max(r.worst, static_cast<double>(std::fabs(got - at(want, i))));
    ++r.elements;
  };
  for (Index t = 0; t < tokens; ++t) {
    double position[4];
    for (Index a = 0; a < s.axes; ++a)
      position[a] = positions.value[static_cast<std::size_t>(a * tokens + t)];
    detail::compat_phase(s, Precision::ggml, 0, position, 0, pairs, c.data(), d.data());
    // a part of the pairs gives the same
    float c1, d1;
    detail::compat_phase(s, Precision::ggml, 0, position, pairs - 1, pairs, &c1, &d1);
    EXPECT_EQ(c1, c.back());
    EXPECT_EQ(d1, d.back());
    for (Index h = 0; h < heads; ++h)
      for (Index k = 0; k < pairs; ++k) {
        const Index head = (t * heads + h) * dim + offset;
        const Index a = head + (interleaved ? 2 * k : k),
                    b = head + (interleaved ? 2 * k + 1 : pairs + k);
        const float cosine = c[static_cast<std::size_t>(k)];
        const float sine = back ? -d[static_cast<std::size_t>(k)] : d[static_cast<std::size_t>(k)];
        r.phase = std::max(r.phase, half ? 0
                                         : phase_error({at(x, a), at(x, b)},
                                                       {at(want, a), at(want, b)}, {cosine, sine}));
        check(at(x, a) * cosine - at(x, b) * sine, a);
        check(at(x, a) * sine + at(x, b) * cosine, b);
      }
  }
  return r;
}

TEST(CompatGgml, EveryCaseForwardAndBackward) {
  const support::Suite suite("rotary_engines");
  int count = 0;
  double worst = 0, phase = 0;
  std::string where;
  const Json cases = cases_of("rotary_engines");
  for (const Json& c : cases.as_array()) {
    const std::string name = c.at("name").as_string();
    const Json* compat = c.at_pointer("/tolerance/compat");
    if (name.rfind("ggml_", 0) != 0 || compat == nullptr) continue;
    ++count;
    const Json& p = c.at("params");
    const auto factors = c.at("inputs").find("freq_factors") ? suite(name, "freq_factors").value
                                                             : std::vector<double>{};
    const Spectrum s = ggml_spectrum(p, factors);
    ASSERT_NO_THROW(detail::check_compat(s, Precision::ggml)) << name;
    const double allowed = compat->at("abs").as_number();
    const auto at = suite(name, "positions");
    const Turned out = compare(p, s, suite(name, "x"), at, suite(name, "out"), false);
    const Turned grad = compare(p, s, suite(name, "grad_out"), at, suite(name, "grad_x"), true);
    EXPECT_GT(out.elements, 0);
    phase = std::max({phase, out.phase, grad.phase});
    EXPECT_LE(out.worst, allowed) << name;
    EXPECT_LE(grad.worst, allowed) << name;
    if (name.find("f16") == std::string::npos && std::max(out.worst, grad.worst) > worst)
      worst = std::max(out.worst, grad.worst), where = name;
  }
  EXPECT_EQ(count, 29);
  EXPECT_LE(phase, 1.1e-6) << "ggml's own cosines and sines";
  EXPECT_LE(worst, 1.8e-6);
  std::printf("  ggml: %d cases, worst %.3g (%s)\n", count, worst, where.c_str());
}

TEST(CompatHuggingFace, TablesFromTheStoredFrequencies) {
  const support::Suite suite("rotary_hugging_face");
  int count = 0;
  double worst = 0;
  Index all = 0, differ = 0;
  const Json cases = cases_of("rotary_hugging_face");
  for (const Json& c : cases.as_array()) {
    const Json* bound = c.at_pointer("/tolerance/hf_float32");
    if (bound == nullptr) continue;
    const double allowed = bound->at("cos_sin_abs").as_number();
    const std::string name = c.at("name").as_string();
    for (const Json::Member& output : c.at("outputs").as_object()) {
      if (output.first.rfind("inv_freq", 0) != 0 || output.first.ends_with("_f64")) continue;
      ++count;
      const std::string tail = output.first.substr(8);  // "", "_full_attention", "_at_4097"
      Spectrum s;
      s.frequency = suite(name, output.first).value;
      const std::string key = tail.empty()                 ? "all"
                              : tail.rfind("_at_", 0) == 0 ? "all" + tail
                                                           : tail.substr(1);
      s.gain = c.at("expect").at("attention_factor").at(key).as_number();
      const bool per_length = tail.rfind("_at_", 0) == 0;
      const auto at = suite(name, per_length ? "positions" + tail : "positions");
      const auto cos = suite(name, "cos" + tail), sin = suite(name, "sin" + tail);
      const std::string columns = c.at("expect").at("table_columns").as_array()[0].as_string();
      const TableLayout layout = columns == "half"          ? TableLayout::duplicated
                                 : columns == "interleaved" ? TableLayout::repeated
                                                            : TableLayout::half;
      const auto positions_ = at.integers();
      const auto rows = static_cast<Index>(positions_.size());
      ASSERT_EQ(cos.value.size() % positions_.size(), 0u) << name;
      const auto width = static_cast<Index>(cos.value.size()) / rows;
      ASSERT_EQ(width, s.pairs() * (layout == TableLayout::half ? 1 : 2)) << name;
      std::vector<double> c64(cos.value.size()), s64(c64.size());
      phase_rows(s, positions(positions_), tensor(c64.data(), {rows, width}),
                 tensor(s64.data(), {rows, width}), layout, Precision::hf_float32);
      std::vector<float> c32(c64.size()), s32(c64.size());
      phase_rows(s, positions(positions_), tensor(c32.data(), {rows, width}),
                 tensor(s32.data(), {rows, width}), layout, Precision::hf_float32);
      double e = 0;
      Index unequal = 0;
      for (std::size_t i = 0; i < c32.size(); ++i) {
        e = std::max({e, std::fabs(c64[i] - cos.value[i]), std::fabs(s64[i] - sin.value[i])});
        unequal += (c32[i] != cos.value[i]) + (s32[i] != sin.value[i]);
        ASSERT_NEAR(c32[i], cos.value[i], 1.2e-7) << name << tail << " " << i;
        ASSERT_NEAR(s32[i], sin.value[i], 1.2e-7) << name << tail << " " << i;
      }
      EXPECT_LE(e, allowed) << name << tail;
      worst = std::max(worst, e);
      all += 2 * rows * width, differ += unequal;
    }
  }
  EXPECT_GE(count, 49);
  std::printf("  hf_float32: %d tables, f64 rows within %.3g, %.2f %% of f32 values equal\n", count,
              worst, 100.0 - 100.0 * static_cast<double>(differ) / static_cast<double>(all));
  EXPECT_LT(10 * differ, all);
}

TEST(CompatHuggingFace, SeveralAxesTakeEachPairsOwn) {
  Spectrum s;
  s.axes = 2;
  s.frequency = {0.7, 0, 0, 0.3};
  const double position[] = {1e6 + 1, 5};
  float c[2], d[2];
  detail::compat_phase(s, Precision::hf_float32, 0, position, 0, 2, c, d);
  EXPECT_EQ(c[0], static_cast<float>(std::cos(static_cast<double>(0.7f * 1000001.0f))));
  EXPECT_EQ(d[1], static_cast<float>(std::sin(static_cast<double>(0.3f * 5.0f))));
  detail::compat_phase(s, Precision::hf_bfloat16_table, 0, position, 1, 2, c, d);
  EXPECT_EQ(d[0], f32_from_bf16(
                      bf16_from(static_cast<float>(std::sin(static_cast<double>(0.3f * 5.0f))))));
}

TEST(CompatGgml, RefusesWhatGgmlCannotSay) {
  const auto refused = [](Spectrum s) {
    try {
      detail::check_compat(s, Precision::ggml);
      return std::string("accepted");
    } catch (const std::invalid_argument& e) {
      return std::string(e.what()).substr(0, 6);
    }
  };
  const Spectrum plain = geometric_spectrum(1e4, 8);
  EXPECT_EQ(refused(plain), "accepted");
  Spectrum s = plain;
  s.ggml.reset();
  EXPECT_EQ(refused(s), "[ggml]");
  EXPECT_NO_THROW(detail::check_compat(s, Precision::hf_float32));
  s = plain, s.heads = 2;
  EXPECT_EQ(refused(s), "[ggml]");
  s = plain, s.axes = 2;  // pairs 0 and 2 of two: both axes
  EXPECT_EQ(refused(s), "[ggml]");
  s = plain, s.ggml->factors = {1, 2};
  EXPECT_EQ(refused(s), "[ggml]");
  s = plain, s.ggml->restart = {2, 1};
  EXPECT_EQ(refused(s), "[ggml]");
  s = plain, s.ggml->ext_factor = 1;
  EXPECT_EQ(refused(s), "[ggml]");
  s = plain, s.ggml->freq_scale = 0;
  EXPECT_EQ(refused(s), "[ggml]");
}

}  // namespace
}  // namespace posenc
