// SPDX-License-Identifier: Apache-2.0
// operators: a GGUF model against the arguments with which llama.cpp builds its rope and attention
// operators. What they mean is written here once more, after ggml.h (ggml_rope_ext) and YaRN
// (arXiv:2309.00071), so that it shares nothing with the library.
#include <algorithm>
#include <cmath>

#include "conformance/runner/encoding.h"
#include "posenc/core/error.h"
#include "posenc/io/gguf.h"

namespace posenc::conformance {
namespace {

// The peer keeps these numbers in float32.
constexpr double kFloat32 = 1.2e-7;

double member(const Json& setting, std::string_view key) {
  return setting.at(key).as_number();
}

// theta_i = base^(-2i/n) / factor_i; YaRN blends it with freq_scale * theta_i between two whole
// pair numbers.
std::vector<double> ggml_frequencies(const Json& setting, const std::vector<double>& factors) {
  const double n = member(setting, "n_dims"), base = member(setting, "freq_base");
  const double scale = member(setting, "freq_scale"), ext = member(setting, "ext_factor");
  const auto correction = [&](double rotations) {
    const double pi = std::acos(-1.0);
    return n * std::log(member(setting, "n_ctx_orig") / (rotations * 2 * pi)) /
           (2 * std::log(base));
  };
  const double low = std::max(0.0, std::floor(correction(member(setting, "beta_fast"))));
  const double high = std::min(n - 1, std::ceil(correction(member(setting, "beta_slow"))));
  std::vector<double> frequency;
  for (Index i = 0; i < static_cast<Index>(n) / 2; ++i) {
    const auto pair = static_cast<double>(i);
    double theta = std::pow(base, -2 * pair / n);
    if (!factors.empty()) theta /= factors.at(static_cast<std::size_t>(i));
    const double ramp =
        1 - std::min(1.0, std::max(0.0, (pair - low) / std::max(0.001, high - low)));
    const double mix = ext == 0 ? 0 : ramp * ext;
    frequency.push_back(theta * scale * (1 - mix) + theta * mix);
  }
  return frequency;
}

// Which position stream turns each pair; empty: one stream.
std::vector<Index> ggml_streams(const Json& setting) {
  const std::string mode = setting.at("mode").as_string();
  if (mode != "MROPE" && mode != "IMROPE") return {};
  std::vector<Index> sections, streams;
  Index sum = 0;
  for (const Json& s : setting.at("sections").as_array()) {
    sections.push_back(s.as_integer());
    sum += sections.back();
  }
  if (sections.size() < 3 || *std::min_element(sections.begin(), sections.end()) < 0 || sum < 1)
    refuse_field("case", "sections", "must be 3 or more numbers of pairs", sum);
  for (Index i = 0; i < static_cast<Index>(member(setting, "n_dims")) / 2; ++i) {
    const Index sector = i % sum;
    Index stream = 3;
    if (mode == "IMROPE") {
      if (sector % 3 < 3 && sector < 3 * sections[static_cast<std::size_t>(sector % 3)])
        stream = sector % 3;
    } else {
      Index end = 0;
      for (stream = 0; stream < 3; ++stream)
        if (sector < (end += sections[static_cast<std::size_t>(stream)])) break;
    }
    streams.push_back(stream);
  }
  return streams;
}

std::vector<double> factors_of(const Check& check, const Json& setting) {
  const Json& named = setting.at("factors");
  if (!named.is_string()) return {};
  const std::filesystem::path path = model_path(check);
  const MappedFile mapped(path);
  const GgufFile file = parse_gguf(mapped.bytes(), path.string());
  const GgufTensor* tensor = file.tensor(named.as_string());
  if (tensor == nullptr) refuse("case", "the file has no such tensor", named.as_string());
  return file.values(*tensor);
}

void near(Check& check, double got, double want, const std::string& what) {
  check.comparison.element(got, want, kFloat32 * std::abs(want), what,
                           [] { return std::vector<Index>{}; });
}

// A stream that the pair does not follow must not move it.
void expect_streams(Check& check, const Spectrum& s, const std::vector<Index>& streams,
                    const std::vector<double>& want, const std::string& where) {
  for (const Index stream : streams)
    if (stream >= s.axes && !(stream == 3 && s.axes < 4))
      refuse("case", "the model has no such axis of positions", stream);
  for (Index p = 0; p < s.pairs(); ++p) {
    const auto at = [&](Index axis) {
      return s.frequency[static_cast<std::size_t>(axis * s.pairs() + p)];
    };
    const auto pair = static_cast<std::size_t>(p);
    double turned = 0;
    for (Index a = 0; a < s.axes; ++a) turned += at(a);
    // The fourth stream of a text is 0: without an axis of its own such a pair stands still.
    const bool fourth = !streams.empty() && streams[pair] == 3 && s.axes < 4;
    near(check, turned, fourth ? 0 : want[pair], where + " pair " + std::to_string(p));
    if (!streams.empty() && !fourth)
      near(check, at(streams[pair]), want[pair], where + " axis of pair " + std::to_string(p));
  }
}

void expect_rope(Check& check, const Json& setting, const LayerSpec& layer,
                 const std::string& where) {
  check.expect(layer.rotary.has_value() && layer.rotary->blocks.size() == 1,
               where + " should turn one window");
  if (!layer.rotary || layer.rotary->blocks.size() != 1) return;
  const RotaryBlock& block = layer.rotary->blocks[0];
  const auto n = static_cast<Index>(member(setting, "n_dims"));
  check.expect(block.width() == n, where + " turns " + std::to_string(block.width()) + " channels");
  const Pairing pairing =
      setting.at("mode").as_string() == "NORM" ? Pairing::interleaved : Pairing::half_split;
  check.expect(block.pairing == pairing && block.direction == 1 &&
                   block.output_order == OutputOrder::in_place,
               where + " pairs its channels otherwise");
  // Where the peer turns a slice of the head on its own, the slice is our window.
  const auto width = static_cast<Index>(member(setting, "head_width"));
  const auto offset = static_cast<Index>(member(setting, "n_offs"));
  const bool slice_alone = width == n && layer.rotary->head_dim > width;
  check.expect(slice_alone || (layer.rotary->head_dim == width && block.offset == offset),
               where + " has heads of " + std::to_string(layer.rotary->head_dim) + " channels");
  near(check, block.spectrum.gain, member(setting, "amplitude"), where + " amplitude");
  if (block.width() == n)
    expect_streams(check, block.spectrum, ggml_streams(setting),
                   ggml_frequencies(setting, factors_of(check, setting)), where);
}

void expect_attention(Check& check, const Json& setting, const LayerSpec& layer,
                      const std::string& where) {
  const bool alibi = member(setting, "max_bias") > 0;
  check.expect((layer.scheme == "alibi") == alibi, where + " has the scheme " + layer.scheme);
  const double scale = member(setting, "scale");
  if (scale == 1 || !layer.rotary) return;  // 1: the peer scaled q beforehand
  near(check, layer.rotary->logit_factor() / std::sqrt(double(layer.rotary->head_dim)), scale,
       where + " softmax scale");
}

// Whether the graph turns the layer at all.
bool turns(const Json& operators, std::int64_t layer) {
  for (const Json& op : operators.as_array())
    if (op.at("setting").at("op").as_string() == "rope")
      for (const Json& l : op.at("layers").as_array())
        if (l.as_integer() == layer) return true;
  return false;
}

}  // namespace

void run_operators(Check& check) {
  const Json graphs = check.in_case.parameter(check.text("of"));
  for (const Json& graph : graphs.as_array()) {
    const Check inner = check.inherited(Json::object({{"context", graph.at("n_ctx")}}));
    const ModelSpec model = read_case_model(inner);
    require_readable(model);
    const Json& operators = graph.at("operators");
    for (const Json& op : operators.as_array())
      for (const Json& l : op.at("layers").as_array()) {
        const std::int64_t i = l.as_integer();
        const std::string where = "layer " + std::to_string(i);
        const bool there = i >= 0 && i < static_cast<std::int64_t>(model.layers.size());
        check.expect(there, where + " is missing");
        if (!there) continue;
        const LayerSpec& layer = model.layers[static_cast<std::size_t>(i)];
        const Json& setting = op.at("setting");
        if (setting.at("op").as_string() == "rope") {
          expect_rope(check, setting, layer, where);
          continue;
        }
        expect_attention(check, setting, layer, where);
        if (!turns(operators, i)) check.expect(!layer.rotary, where + " should not be turned");
      }
  }
}

}  // namespace posenc::conformance
