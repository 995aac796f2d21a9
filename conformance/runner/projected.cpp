// SPDX-License-Identifier: Apache-2.0
#include "conformance/runner/projected.h"

#include <cmath>
#include <cstring>
#include <initializer_list>

#include "posenc/core/error.h"

namespace posenc::conformance {
namespace {

std::size_t at(Index i) {
  return static_cast<std::size_t>(i);
}

// A LayerNorm of each row.
std::vector<double> normed(const std::vector<double>& x, Index width,
                           const std::vector<double>& gamma, const std::vector<double>& beta,
                           double epsilon) {
  std::vector<double> y(x.size());
  for (std::size_t from = 0; from < x.size(); from += at(width)) {
    double mean = 0, square = 0;
    for (std::size_t c = 0; c < at(width); ++c) mean += x[from + c] / static_cast<double>(width);
    for (std::size_t c = 0; c < at(width); ++c)
      square += (x[from + c] - mean) * (x[from + c] - mean) / static_cast<double>(width);
    for (std::size_t c = 0; c < at(width); ++c)
      y[from + c] = (x[from + c] - mean) / std::sqrt(square + epsilon) * gamma.at(c) + beta.at(c);
  }
  return y;
}

void known_members(const Json& words, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : words.as_object())
    if (std::find(known.begin(), known.end(), key) == known.end())
      refuse("case", "project has no such member", key);
}

std::vector<double> numbers(const Check& check, const Json& names, const char* key) {
  const Json* name = names.find(key);
  return name == nullptr ? std::vector<double>{} : slice(check.in_case, name->as_string()).values();
}

}  // namespace

std::unique_ptr<Projected> Projected::of(const Check& check) {
  if (check.part("project") == nullptr) return nullptr;
  return std::unique_ptr<Projected>(new Projected(check));
}

Projected::Projected(const Check& check) {
  const Json& words = *check.find("project");
  known_members(words, {"heads", "residual", "tokens", "norm", "q", "k", "v", "out"});
  heads_ = words.at("heads").as_integer();
  if (heads_ < 1) refuse_field("case", "project", "needs heads", heads_);
  const Json* residual = words.find("residual");
  residual_ = residual != nullptr && residual->as_bool();
  for (const char* name : {"q", "k", "v", "out"}) read_linear(check, name, linear(name));
  if (q_.x.empty() || k_.x.empty() || v_.x.empty())
    refuse_field("case", "project", "needs q, k and v");
  check_sizes();
  if (const Json* norm = words.find("norm")) {
    known_members(*norm, {"gamma", "beta", "epsilon"});
    normed_ = true;
    for (Hidden& h : hidden_)
      h.normed = normed(h.value, h.width, numbers(check, *norm, "gamma"),
                        numbers(check, *norm, "beta"), norm->at("epsilon").as_number());
  }
  read_tokens(check, words);
}

// Every size that the loops below count on.
void Projected::check_sizes() const {
  const auto needs = [](bool holds, const char* rule, Index value) {
    if (!holds) refuse("case", rule, value);
  };
  for (const Hidden& h : hidden_)
    needs(h.rows == hidden_[0].rows, "project needs as many rows of each hidden state", h.rows);
  for (const Linear* l : {&q_, &k_, &v_}) {
    const Hidden& x = hidden_[of_linear(*l)];
    needs(l->outputs > 0 && l->outputs % heads_ == 0, "heads of project must divide the outputs",
          l->outputs);
    needs(static_cast<Index>(l->weight.size()) == l->outputs * x.width,
          "a weight of project must be [outputs, width of the hidden states]",
          static_cast<Index>(l->weight.size()));
  }
  needs(q_.outputs == k_.outputs, "q and k of project must have one width", k_.outputs);
  const Index merged = v_.outputs, outputs = out_.weight.empty() ? merged : out_.outputs;
  needs(out_.weight.empty() || static_cast<Index>(out_.weight.size()) == outputs * merged,
        "the weight out of project must be [outputs, width of v]",
        static_cast<Index>(out_.weight.size()));
  for (const Linear* l : {&q_, &k_, &v_, &out_})
    needs(l->bias.empty() ||
              static_cast<Index>(l->bias.size()) == (l == &out_ ? outputs : l->outputs),
          "a bias of project must have one number an output", static_cast<Index>(l->bias.size()));
  needs(!residual_ || outputs == hidden_[of_linear(q_)].width,
        "a residual of project needs as many outputs as the hidden states are wide", outputs);
}

// Rows of the hidden states: lists, one a row of the batch, or an array [batch, tokens].
void Projected::read_tokens(const Check& check, const Json& words) {
  const Slice x = slice(check.in_case, q_.x);
  batch_ = x.shape.size() > 2 ? x.shape[0] : 1;
  count_ = hidden_[0].rows / batch_;
  const Json* tokens = words.find("tokens");
  if (tokens == nullptr) return;
  if (tokens->is_string()) {
    const Slice ids = slice(check.in_case, tokens->as_string());
    for (const double id : ids.values()) tokens_.push_back(number_as<Index>(id));
    batch_ = ids.shape.at(0), count_ = ids.shape.at(1);
  } else {
    batch_ = static_cast<Index>(tokens->as_array().size());
    for (const Json& list : tokens->as_array())
      for (const Json& t : list.as_array()) tokens_.push_back(t.as_integer());
    count_ = batch_ == 0 ? 0 : static_cast<Index>(tokens_.size()) / batch_;
  }
  if (static_cast<Index>(tokens_.size()) != batch_ * count_)
    refuse_field("case", "project", "needs as many tokens in each row",
                 static_cast<Index>(tokens_.size()));
  for (const Index t : tokens_)
    if (t >= hidden_[0].rows) refuse("case", "a token must be a row of the hidden states", t);
}

void Projected::read_linear(const Check& check, std::string_view name, Linear& to) {
  const Json* words = check.find("project")->find(std::string(name));
  if (words == nullptr) return;
  known_members(*words, {"x", "weight", "bias"});
  if (const Json* x = words->find("x")) {
    to.x = x->as_string();
    hidden(check, to.x);
  }
  to.weight = numbers(check, *words, "weight");
  to.bias = numbers(check, *words, "bias");
  if (const Json* weight = words->find("weight"))
    to.outputs = slice(check.in_case, weight->as_string()).shape.at(0);
  to.d_weight.resize(to.weight.size());
  to.d_bias.resize(to.bias.size());
}

Projected::Hidden& Projected::hidden(const Check& check, const std::string& name) {
  for (Hidden& h : hidden_)
    if (h.name == name) return h;
  const Slice s = slice(check.in_case, name);
  if (s.shape.empty() || s.count() == 0)
    refuse("case", "hidden states must be rows of numbers", s.text);
  Hidden h{name, s.values(), {}, {}, 0, s.shape.back()};
  h.rows = s.count() / h.width;
  h.gradient.resize(h.value.size());
  hidden_.push_back(std::move(h));
  return hidden_.back();
}

std::size_t Projected::of_linear(const Linear& l) const {
  for (std::size_t n = 0; n < hidden_.size(); ++n)
    if (hidden_[n].name == l.x) return n;
  refuse("case", "project has no such hidden states", l.x);
}

Projected::Linear& Projected::linear(std::string_view name) {
  return name == "q" ? q_ : name == "k" ? k_ : name == "v" ? v_ : out_;
}
const Projected::Linear& Projected::linear(std::string_view name) const {
  return name == "q" ? q_ : name == "k" ? k_ : name == "v" ? v_ : out_;
}

HeadsArray Projected::heads(std::string_view name) const {
  const Linear& l = linear(name);
  const Hidden& x = hidden_[of_linear(l)];
  const std::vector<double>& rows = normed_ ? x.normed : x.value;
  Array a = make_array(DType::f64, {batch_, count_, heads_, l.outputs / heads_});
  for (Index t = 0; t < batch_ * count_; ++t)
    for (Index o = 0; o < l.outputs; ++o) {
      double sum = l.bias.empty() ? 0 : l.bias[at(o)];
      for (Index c = 0; row(t) >= 0 && c < x.width; ++c)
        sum += l.weight[at(o * x.width + c)] * rows[at(row(t) * x.width + c)];
      std::memcpy(a.bytes.data() + 8 * (t * l.outputs + o), &sum, 8);
    }
  const std::vector<Index> shape = a.shape;
  return {std::move(a), Axes(shape, "bthd", {})};
}

// Of the rows that are tokens: with tokens [rows of the hidden states, outputs], each at its place.
std::vector<double> Projected::output(const HeadsArray& out) const {
  const std::vector<double> given = out.data.doubles();
  const std::vector<Index> walk = out.axes.walk("bthd");
  const Index merged = out.axes['h'].size * out.axes['d'].size;
  const Index outputs = out_.weight.empty() ? merged : out_.outputs;
  const Hidden& x = hidden_[of_linear(q_)];
  const bool scattered = !tokens_.empty() && !residual_;
  std::vector<double> y(at((scattered ? x.rows : batch_ * count_) * outputs));
  for (Index t = 0; t < batch_ * count_; ++t) {
    if (row(t) < 0) continue;
    for (Index o = 0; o < outputs; ++o) {
      double sum = out_.bias.empty() ? 0 : out_.bias[at(o)];
      for (Index c = 0; c < merged; ++c) {
        const double v = given[at(walk[at(t * merged + c)])];
        if (out_.weight.empty())
          sum += c == o ? v : 0;
        else
          sum += out_.weight[at(o * merged + c)] * v;
      }
      if (residual_) sum += x.value[at(row(t) * x.width + o)];
      y[at((scattered ? row(t) : t) * outputs + o)] = sum;
    }
  }
  return y;
}

HeadsArray Projected::pull_output(const std::vector<double>& d_output, const HeadsArray& out) {
  if (residual_ || normed_)
    refuse("case", "project has no gradient of a norm or of what goes around", heads_);
  const std::vector<double> given = out.data.doubles();
  HeadsArray d = out;
  const std::vector<Index> walk = out.axes.walk("bthd");
  const Index merged = out.axes['h'].size * out.axes['d'].size;
  const Index outputs = out_.weight.empty() ? merged : out_.outputs;
  for (Index t = 0; t < batch_ * count_; ++t)
    for (Index c = 0; c < merged; ++c) {
      const Index place = walk[at(t * merged + c)];
      double sum = 0;
      for (Index o = 0; row(t) >= 0 && o < outputs; ++o) {
        const double up = d_output.at(at(row(t) * outputs + o));
        if (out_.weight.empty()) {
          sum += c == o ? up : 0;
          continue;
        }
        sum += out_.weight[at(o * merged + c)] * up;
        out_.d_weight[at(o * merged + c)] += given[at(place)] * up;
        if (c == 0 && !out_.bias.empty()) out_.d_bias[at(o)] += up;
      }
      std::memcpy(d.data.bytes.data() + 8 * place, &sum, 8);
    }
  return d;
}

void Projected::pull_heads(std::string_view name, const HeadsArray& d) {
  Linear& l = linear(name);
  Hidden& x = hidden_[of_linear(l)];
  const std::vector<double> up = d.data.doubles();
  const std::vector<Index> walk = d.axes.walk("bthd");
  for (Index t = 0; t < batch_ * count_; ++t)
    for (Index o = 0; o < l.outputs; ++o) {
      const double u = up[at(walk[at(t * l.outputs + o)])];
      if (!l.bias.empty()) l.d_bias[at(o)] += u;
      for (Index c = 0; row(t) >= 0 && c < x.width; ++c) {
        l.d_weight[at(o * x.width + c)] += u * x.value[at(row(t) * x.width + c)];
        x.gradient[at(row(t) * x.width + c)] += u * l.weight[at(o * x.width + c)];
      }
    }
}

void Projected::expect_gradients(Check& back) const {
  const auto expect = [&](const std::string& ours, const std::vector<double>& got) {
    if (const std::string* name = back.array_name("out", ours))
      back.expect(slice(back.in_case, *name), got);
  };
  if (hidden_.size() == 1) expect("x", hidden_[0].gradient);
  for (const std::string name : {"q", "k", "v", "out"}) {
    expect(name + ".weight", linear(name).d_weight);
    expect(name + ".bias", linear(name).d_bias);
  }
}

}  // namespace posenc::conformance
