// SPDX-License-Identifier: Apache-2.0
#include "attention/random_scheme.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "posenc/registry.h"
#include "registry/field_ref.h"

namespace posenc {
namespace {

using test::Random;

Index any_of(Random& r, std::initializer_list<Index> x) {
  return x.begin()[r.integer(0, static_cast<Index>(x.size()) - 1)];
}

// Numbers that make small arrays, by the name of the field.
Index number_of_field(std::string_view name, const Field& f, Random& r) {
  if (name == "axis") return r.integer(0, 2);
  if (name == "batch" || name == "depth") return any_of(r, {1, 1, 2});
  if (name == "groups" || name == "alibi_heads") return any_of(r, {0, 1, 2});
  if (name.find("buckets") != name.npos) return any_of(r, {4, 6, 8});
  if (name.find("max_distance") != name.npos) return any_of(r, {5, 9, 20});
  if (name == "d_model") return any_of(r, {4, 6, 8});
  if (name == "kernel") return any_of(r, {1, 3});
  const auto low = static_cast<Index>(std::max(f.min, 0.0));
  return std::min(low + r.integer(0, 5), static_cast<Index>(std::min(f.max, 1e6)));
}
double real_of_field(std::string_view name, const Field& f, Random& r) {
  if (name == "base") return r.uniform(2, 100);
  if (name == "epsilon" || name == "norm_epsilon") return r.uniform(0.01, 0.2);
  return std::clamp(r.uniform(-1, 3), std::max(f.min, -1.0), std::min(f.max, 3.0));
}

void fill_at_random(const ValueRef& to, std::string_view name, const Field& f, Random& r) {
  if (auto* x = std::get_if<double*>(&to.target)) **x = real_of_field(name, f, r);
  if (auto* x = std::get_if<Index*>(&to.target)) **x = number_of_field(name, f, r);
  if (auto* x = std::get_if<bool*>(&to.target)) **x = r.coin();
  if (auto* x = std::get_if<EnumRef>(&to.target))
    x->set(x->value,
           static_cast<std::size_t>(r.integer(0, static_cast<Index>(x->names.size()) - 1)));
  if (auto* x = std::get_if<OptionalRef>(&to.target); x != nullptr && r.coin())
    fill_at_random(x->engage(x->value), name, f, r);
}

// What the fields of a scheme must have together.
template <class S>
void fit(S&, Random&) {}
void fit(Alibi& s, Random& r) {
  const bool fixed = s.learned == AlibiLearned::fixed;
  if (fixed || r.coin()) s.batch = 1;
  if (fixed && s.future == AlibiFuture::own_slopes) s.future = AlibiFuture::symmetric;
  if (!fixed || s.future == AlibiFuture::half_heads) s.alibi_heads = 0;
  s.total_heads = any_of(r, {0, 64});
  s.first_head = s.total_heads > 0 ? 2 * r.integer(0, 20) : 0;
  s.precision = AlibiPrecision::exact;
  s.sequences = 0;
  if (fixed && r.integer(0, 4) == 0) {
    s.precision = AlibiPrecision::falcon_bfloat16;
    s.future = AlibiFuture::symmetric, s.slopes = AlibiSlopes::published;
    s.past_offset = 0, s.axis = 0;
  }
  if (!fixed && s.future != AlibiFuture::half_heads && r.integer(0, 3) == 0)
    s.sequences = r.integer(1, 3), s.batch = 1;
  s.height = s.width = 0;
  if (r.integer(0, 4) > 0 || s.sequences > 0 || s.precision != AlibiPrecision::exact) return;
  s.height = r.integer(1, 4), s.width = r.integer(1, 4);
  s.future = AlibiFuture::symmetric;
  s.past_offset = 0, s.axis = 0;
}
void fit(Conformer& s, Random& r) {
  s.rows = any_of(r, {0, 1401});  // of every distance that occurs
}
void fit(ConformerAbsoluteKey& s, Random&) {
  s.rows = 400;
}
void fit(Tupe& s, Random& r) {
  s.positions = 400;
  s.num_buckets = any_of(r, {0, 8});
}
void fit(SegatronXl& s, Random& r) {
  s.widths = r.coin() ? std::vector<Index>{} : std::vector<Index>{2, 4};
  s.d_model = 6;
}
void fit(Decomposed& s, Random& r) {
  s.size.clear(), s.key_size.clear(), s.table_rows.clear();
  const bool other = r.coin(), resized = r.coin();
  for (Index n = r.integer(2, 3); n > 0; --n) {
    s.size.push_back(r.integer(1, 4));
    if (other) s.key_size.push_back(r.integer(1, 3));
    if (resized) s.table_rows.push_back(r.integer(1, 6));
  }
}
void fit(ModalityPairs& s, Random& r) {
  s.modalities = r.integer(1, 3);
  s.query_modality.clear(), s.key_modality.clear(), s.axis.clear(), s.clip.clear();
  const bool keys = r.coin(), axes = r.coin();
  for (Index n = r.integer(0, 3); n > 0; --n) {
    s.query_modality.push_back(r.integer(0, s.modalities - 1));
    if (keys) s.key_modality.push_back(r.integer(0, s.modalities - 1));
    if (axes) s.axis.push_back(r.integer(0, 2));
    s.clip.push_back(r.integer(0, 4));
  }
}
void fit(Shaw& s, Random& r) {
  if (s.beyond == ShawBeyond::refuse) s.left = s.right = 700 + r.integer(0, 2);
}
void fit(XlNet& s, Random& r) {
  s.segments = s.class_token ? any_of(r, {0, 2}) : r.integer(0, 5);  // classes are 0 and 1
  s.shared_segment = r.integer(-1, std::max<Index>(s.segments, 1) - 1);
}
void fit(Fire& s, Random& r) {
  s.initial_length = r.uniform(1, 9);
  s.initial_c = r.uniform(0.2, 2);
}
void fit(Enformer& s, Random& r) {
  s.length = 700;
  s.features = any_of(r, {6, 12, 24});
}
void fit(Irpe& s, Random& r) {
  s.alpha = r.uniform(0.5, 2);
  s.beta = s.alpha + r.uniform(0, 3);
  s.gamma = s.alpha + r.uniform(0.5, 9);
}
void fit(DynamicPositionBias& s, Random& r) {
  s.width = r.integer(2, 4);
}

template <class S>
Index classes_of(const S&) {
  return 2;
}
Index classes_of(const CpmAnt& s) {
  return s.segments;
}
Index classes_of(const XlNet& s) {
  return s.class_token ? 2 : s.segments;
}
Index classes_of(const Alibi& s) {
  return std::max<Index>(s.sequences, 1);
}
Index classes_of(const ModalityPairs& s) {
  return s.modalities;
}
Index classes_of(const Indexed& s) {
  return s.rows;
}

std::size_t count_of(const Parameter& p) {
  return std::accumulate(p.shape.begin(), p.shape.end(), std::size_t{1},
                         [](std::size_t n, Index s) { return n * static_cast<std::size_t>(s); });
}

template <class S>
bool serves(const S&, const ScoreShape&, const RandomSizes&) {
  return true;
}
bool serves(const Alibi& s, const ScoreShape&, const RandomSizes& n) {
  return s.batch == 1 || s.batch == n.batch;
}
bool serves(const Cope& s, const ScoreShape& shape, const RandomSizes& n) {
  if (s.gates == CopeGates::mixed) return n.key_heads == shape.heads;
  return s.gates != CopeGates::values || shape.value_dim == shape.head_dim;
}

bool stands(const AnyRelativeScheme& s, const ScoreShape& shape) {
  try {
    const std::vector<Parameter> p = s.parameters(shape);
    std::vector<std::vector<double>> values;
    std::vector<ConstTensorView> views;
    values.reserve(p.size());
    for (const Parameter& x : p) {
      values.emplace_back(count_of(x), 0.3);
      views.push_back(tensor(static_cast<const void*>(values.back().data()), DType::f64, x.shape));
    }
    LoweredTerms low;
    s.lower(shape, views, low);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

template <class S>
RandomScheme make_random(const ScoreShape& shape, const RandomSizes& n, Random& r) {
  for (int tries = 0; tries < 400; ++tries) {
    S s{};
    for (const FieldRef& f : field_refs(s)) fill_at_random(f.value, f.name, f.field, r);
    fit(s, r);
    if (serves(s, shape, n) && stands(s, shape)) return {s, to_text(Scheme(s)), classes_of(s)};
  }
  throw std::logic_error("no fields at random stand for " + std::string(S::card.name));
}

using Make = RandomScheme (*)(const ScoreShape&, const RandomSizes&, Random&);
template <class... S>
constexpr std::array<Make, sizeof...(S)> makers(TypeList<S...>) {
  return {&make_random<S>...};
}
template <class... S>
constexpr std::array<std::string_view, sizeof...(S)> names(TypeList<S...>) {
  return {S::card.name...};
}

}  // namespace

std::size_t scheme_count() {
  return RelativeSchemes::size;
}
std::string_view scheme_name(std::size_t which) {
  static constexpr auto all = names(RelativeSchemes{});
  return all[which];
}
RandomScheme random_scheme(std::size_t which, const ScoreShape& shape, const RandomSizes& n,
                           Random& r) {
  static constexpr auto all = makers(RelativeSchemes{});
  return all[which](shape, n, r);
}

std::vector<double> random_parameter(const Parameter& p, Random& r) {
  std::vector<double> x = r.normals(count_of(p));
  const bool constant = p.initial.kind == InitialKind::constant;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool given = !p.initial_values.empty();
    const double start = given ? p.initial_values[i] : constant ? p.initial.a : 0;
    x[i] = start + (start != 0 ? 0.1 * std::fabs(start) : 0.4) * x[i];
  }
  return x;
}

}  // namespace posenc
